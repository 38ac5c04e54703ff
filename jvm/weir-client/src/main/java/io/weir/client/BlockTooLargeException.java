package io.weir.client;

/** The block is larger than the memory that the caller has for it. Nothing of it was read. */
public final class BlockTooLargeException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** Bytes. */
    private final long size;

    BlockTooLargeException(String block, long size, long room) {
        super(block + " has " + size + " bytes, and there is room for " + room
                + "; get it as a stream, or with more room", null);
        this.size = size;
    }

    /**
     * Size of the block, as its holder says.
     *
     * @return a number of bytes
     */
    public long size() {
        return size;
    }
}

package io.weir.client;

/**
 * The holders of a block have other bytes under its name than those that were handed out already. A caller that can drop
 * what it read may get the block again from its start.
 */
public final class BlockChangedException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** Bytes. */
    private final long read;

    BlockChangedException(String block, long read, Throwable cause) {
        super(block + " changed after " + read + " bytes of it were read; drop them and get it again", cause);
        this.read = read;
    }

    /**
     * Bytes that were handed out before the change was seen.
     *
     * @return a number of bytes
     */
    public long read() {
        return read;
    }
}

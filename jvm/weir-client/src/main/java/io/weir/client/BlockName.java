package io.weir.client;

/** Which block is got, and for whom. */
final class BlockName {
    final long coflow;
    final String block;
    final byte[] bytes;
    /** The host of the receiver. */
    final int host;

    BlockName(long coflow, String block, int host) {
        this.coflow = coflow;
        this.block = block;
        this.bytes = Wire.name(block);
        this.host = host;
    }

    @Override
    public String toString() {
        return "block `" + block + "` of coflow " + Long.toUnsignedString(coflow);
    }
}

package io.weir.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.SecureRandom;

/**
 * Which bytes a block has: two blocks of one identity have the same bytes. 16 bytes, a hash of the bytes (highest bit set)
 * or drawn at random.
 */
public final class Identity {
    /** Not known, as in requests that take whichever bytes there are. */
    public static final Identity UNKNOWN = new Identity(0, 0);
    /** Bytes of an identity on the wire. */
    static final int BYTES = 16;

    private static final long CONTENT_BIT = 1L << 63;
    private static final SecureRandom RANDOM = new SecureRandom();

    private final long high;
    private final long low;

    private Identity(long high, long low) {
        this.high = high;
        this.low = low;
    }

    /**
     * An identity drawn at random.
     *
     * @return one that no other block has
     */
    public static Identity drawn() {
        long high = RANDOM.nextLong() & ~CONTENT_BIT;
        long low = RANDOM.nextLong();
        return new Identity(high, high == 0 && low == 0 ? 1 : low);
    }

    /** The identity that is the hash of the bytes, of which 127 bits are kept. */
    static Identity ofContent(long hashHigh, long hashLow) {
        return new Identity(hashHigh | CONTENT_BIT, hashLow);
    }

    /**
     * Whether it is a hash of the bytes.
     *
     * @return false if it was drawn, or is not known
     */
    public boolean isContent() {
        return (high & CONTENT_BIT) != 0;
    }

    /**
     * Whether anything is known of the bytes.
     *
     * @return false for {@link #UNKNOWN}
     */
    public boolean isKnown() {
        return high != 0 || low != 0;
    }

    /** From 16 bytes at {@code at} of a buffer, whatever its order of bytes is. */
    static Identity read(ByteBuffer bytes, int at) {
        boolean swapped = bytes.order() == ByteOrder.LITTLE_ENDIAN;
        long high = bytes.getLong(at);
        long low = bytes.getLong(at + 8);
        return swapped ? new Identity(Long.reverseBytes(high), Long.reverseBytes(low)) : new Identity(high, low);
    }

    /** From the control plane: 16 bytes, or nothing known. */
    static Identity ofWire(byte[] bytes) {
        return bytes.length == BYTES ? read(ByteBuffer.wrap(bytes), 0) : UNKNOWN;
    }

    /** The 16 bytes. */
    byte[] toWire() {
        return ByteBuffer.allocate(BYTES).putLong(high).putLong(low).array();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Identity && ((Identity) other).high == high && ((Identity) other).low == low;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(high * 31 + low);
    }

    @Override
    public String toString() {
        return String.format("%016x%016x", high, low);
    }
}

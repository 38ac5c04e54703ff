package io.weir.bench;

/** Numbers that look random, the same for a seed on each machine (SplitMix64). */
final class Numbers {
    private long state;

    Numbers(long kind, long number) {
        this.state = Digest.of(kind, number);
    }

    long next() {
        state += 0x9e3779b97f4a7c15L;
        return Digest.mix(state);
    }

    /** From 0 to 1, without 1. */
    double fraction() {
        return (next() >>> 11) * 0x1.0p-53;
    }

    /** From 0 to a limit, without the limit. */
    long below(long limit) {
        return (long) (fraction() * limit);
    }

    /** Bytes that no compression makes smaller. */
    byte[] bytes(int length) {
        byte[] bytes = new byte[length];
        long word = 0;
        for (int at = 0; at < length; at++) {
            word = at % 8 == 0 ? next() : word >>> 8;
            bytes[at] = (byte) word;
        }
        return bytes;
    }

    /** A text of letters of an alphabet. */
    String text(String alphabet, int length) {
        char[] text = new char[length];
        for (int at = 0; at < length; at++) {
            text[at] = alphabet.charAt((int) below(alphabet.length()));
        }
        return new String(text);
    }
}

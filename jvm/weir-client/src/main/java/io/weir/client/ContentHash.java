package io.weir.client;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The hash that stands for the bytes of a block in its {@link Identity}: XXH3, 128 bits, seed 0, as the specification of xxHash
 * (doc/xxhash_spec.md, sections on XXH3) has it. Bytes may come in pieces of any length.
 */
final class ContentHash {
    private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INTS = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private static final int STRIPE = 64;
    private static final int BLOCK = 1024;
    private static final int LONGEST_SHORT = 240;
    private static final long PRIME32_1 = 0x9E3779B1L;
    private static final long PRIME32_2 = 0x85EBCA77L;
    private static final long PRIME32_3 = 0xC2B2AE3DL;
    private static final long PRIME64_1 = 0x9E3779B185EBCA87L;
    private static final long PRIME64_2 = 0xC2B2AE3D27D4EB4FL;
    private static final long PRIME64_3 = 0x165667B19E3779F9L;
    private static final long PRIME64_4 = 0x85EBCA77C2B2AE63L;
    private static final long PRIME64_5 = 0x27D4EB2F165667C5L;
    private static final long MIX_1 = 0x165667919E3779F9L;
    private static final long MIX_2 = 0x9FB21C651E98DF25L;

    /** The default secret of the specification. */
    private static final byte[] SECRET = bytes("b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
            + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
            + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
            + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
            + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
            + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");

    /**
     * The secret from each of its bytes on. Read through a view of bytes instead, in loops that overlap, it has the second
     * compiler of JDK 17.0.15 make code that is wrong once it is hot: ContentHashTest has a case that is large enough to see it.
     */
    private static final long[] SECRET_LONGS = new long[SECRET.length - Long.BYTES + 1];

    static {
        for (int at = 0; at < SECRET_LONGS.length; at++) {
            SECRET_LONGS[at] = (long) LONGS.get(SECRET, at);
        }
    }

    private final long[] lanes = {
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1
    };
    /** The latest bytes: a block is taken in once bytes after it are there. The first 64 are the end of the block before. */
    private final byte[] pending = new byte[STRIPE + BLOCK];
    private int count;
    private long total;

    /** The identity of all bytes of a buffer, which keeps its position. */
    static Identity of(ByteBuffer bytes) {
        ContentHash hash = new ContentHash();
        hash.update(bytes.duplicate());
        return hash.identity();
    }

    /** Takes in what a buffer has left. */
    void update(ByteBuffer bytes) {
        while (bytes.hasRemaining()) {
            if (count == BLOCK) {
                takeBlock();
            }
            int part = Math.min(bytes.remaining(), BLOCK - count);
            bytes.get(pending, STRIPE + count, part);
            count += part;
            total += part;
        }
    }

    private void takeBlock() {
        stripes(lanes, BLOCK / STRIPE);
        for (int lane = 0; lane < 8; lane++) {
            long mixed = lanes[lane] ^ lanes[lane] >>> 47 ^ secret(SECRET.length - STRIPE + 8 * lane);
            lanes[lane] = mixed * PRIME32_1;
        }
        System.arraycopy(pending, BLOCK, pending, 0, STRIPE);
        count = 0;
    }

    private void stripes(long[] into, int stripes) {
        for (int stripe = 0; stripe < stripes; stripe++) {
            stripe(into, STRIPE + stripe * STRIPE, 8 * stripe);
        }
    }

    /** Lanes go in pairs: each takes the value of its neighbour. */
    private void stripe(long[] into, int at, int secretAt) {
        for (int lane = 0; lane < 8; lane += 2) {
            long even = (long) LONGS.get(pending, at + 8 * lane);
            long odd = (long) LONGS.get(pending, at + 8 * lane + 8);
            into[lane] += odd + product(even ^ secret(secretAt + 8 * lane));
            into[lane + 1] += even + product(odd ^ secret(secretAt + 8 * lane + 8));
        }
    }

    /** The lower half times the upper one. */
    private static long product(long value) {
        return (value & 0xffffffffL) * (value >>> 32);
    }

    /** The identity of the bytes so far. */
    Identity identity() {
        if (total <= LONGEST_SHORT) {
            return ofShort((int) total);
        }
        long[] last = lanes.clone();
        stripes(last, (count - 1) / STRIPE);
        // The last 64 bytes of all, which may begin in the block before.
        stripe(last, count, SECRET.length - STRIPE - 7);
        long low = merge(last, 11, total * PRIME64_1);
        long high = merge(last, SECRET.length - STRIPE - 11, ~(total * PRIME64_2));
        return Identity.ofContent(high, low);
    }

    private static long merge(long[] lanes, int secretAt, long start) {
        long sum = start;
        for (int pair = 0; pair < 4; pair++) {
            sum += fold(lanes[2 * pair] ^ secret(secretAt + 16 * pair), lanes[2 * pair + 1] ^ secret(secretAt + 16 * pair + 8));
        }
        return avalanche(sum);
    }

    private Identity ofShort(int length) {
        if (length > 16) {
            return ofMiddle(length);
        } else if (length > 8) {
            return of9To16(length);
        } else if (length > 3) {
            return of4To8(length);
        } else if (length > 0) {
            return of1To3(length);
        }
        return Identity.ofContent(avalanche64(secret(80) ^ secret(88)), avalanche64(secret(64) ^ secret(72)));
    }

    private Identity of1To3(int length) {
        int first = pending[STRIPE] & 0xff;
        int middle = pending[STRIPE + (length >> 1)] & 0xff;
        int last = pending[STRIPE + length - 1] & 0xff;
        int low = first << 16 | middle << 24 | last | length << 8;
        int high = Integer.rotateLeft(Integer.reverseBytes(low), 13);
        long flipLow = (secretInt(0) ^ secretInt(4)) & 0xffffffffL;
        long flipHigh = (secretInt(8) ^ secretInt(12)) & 0xffffffffL;
        return Identity.ofContent(avalanche64(high & 0xffffffffL ^ flipHigh), avalanche64(low & 0xffffffffL ^ flipLow));
    }

    private Identity of4To8(int length) {
        long first = (int) INTS.get(pending, STRIPE) & 0xffffffffL;
        long last = (int) INTS.get(pending, STRIPE + length - 4) & 0xffffffffL;
        long keyed = (first | last << 32) ^ secret(16) ^ secret(24);
        long factor = PRIME64_1 + ((long) length << 2);
        long low = keyed * factor;
        long high = unsignedHigh(keyed, factor) + (low << 1);
        low ^= high >>> 3;
        low = (low ^ low >>> 35) * MIX_2;
        return Identity.ofContent(avalanche(high), low ^ low >>> 28);
    }

    private Identity of9To16(int length) {
        long first = input(0);
        long last = input(length - 8);
        long mixed = first ^ last ^ secret(32) ^ secret(40);
        long low = mixed * PRIME64_1 + ((long) (length - 1) << 54);
        last ^= secret(48) ^ secret(56);
        long high = unsignedHigh(mixed, PRIME64_1) + last + (last & 0xffffffffL) * (PRIME32_2 - 1);
        low ^= Long.reverseBytes(high);
        long end = unsignedHigh(low, PRIME64_2) + high * PRIME64_2;
        return Identity.ofContent(avalanche(end), avalanche(low * PRIME64_2));
    }

    private Identity ofMiddle(int length) {
        long[] sums = {length * PRIME64_1, 0};
        if (length <= 128) {
            for (int at = (length - 1) / 32; at >= 0; at--) {
                mix(sums, 16 * at, length - 16 * (at + 1), 32 * at);
            }
        } else {
            for (int at = 0; at < 128; at += 32) {
                mix(sums, at, at + 16, at);
            }
            sums[0] = avalanche(sums[0]);
            sums[1] = avalanche(sums[1]);
            for (int at = 128; at + 32 <= length; at += 32) {
                mix(sums, at, at + 16, 3 + at - 128);
            }
            mix(sums, length - 16, length - 32, 103);
        }
        long high = sums[0] * PRIME64_1 + sums[1] * PRIME64_4 + length * PRIME64_2;
        return Identity.ofContent(-avalanche(high), avalanche(sums[0] + sums[1]));
    }

    private void mix(long[] sums, int one, int other, int secretAt) {
        sums[0] += fold(input(one) ^ secret(secretAt), input(one + 8) ^ secret(secretAt + 8));
        sums[0] ^= input(other) + input(other + 8);
        sums[1] += fold(input(other) ^ secret(secretAt + 16), input(other + 8) ^ secret(secretAt + 24));
        sums[1] ^= input(one) + input(one + 8);
    }

    private long input(int at) {
        return (long) LONGS.get(pending, STRIPE + at);
    }

    private static long secret(int at) {
        return SECRET_LONGS[at];
    }

    private static int secretInt(int at) {
        return (int) INTS.get(SECRET, at);
    }

    private static long fold(long one, long other) {
        return one * other ^ unsignedHigh(one, other);
    }

    private static long unsignedHigh(long one, long other) {
        return Math.multiplyHigh(one, other) + (one >> 63 & other) + (other >> 63 & one);
    }

    private static long avalanche(long value) {
        long mixed = (value ^ value >>> 37) * MIX_1;
        return mixed ^ mixed >>> 32;
    }

    private static long avalanche64(long value) {
        long mixed = (value ^ value >>> 33) * PRIME64_2;
        mixed = (mixed ^ mixed >>> 29) * PRIME64_3;
        return mixed ^ mixed >>> 32;
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(hex.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }
}

package io.weir.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Ranges of the map outputs of one shuffle in one store, which come as one flow. Not for several threads. */
public final class Gather {
    /** Most ranges of one gather; a receiver that wants more asks twice. */
    public static final int MAX_RANGES = 1_024;
    /** {@code WGTH}, read as little-endian. */
    private static final int MAGIC = 0x48544757;
    private static final byte VERSION = 1;
    private static final int HEAD_BYTES = 72;
    private static final int RANGE_BYTES = 16;

    private final Store store;
    private final long coflow;
    private final int group;
    private final int shuffle;
    private long[] maps = new long[8];
    private int[] firsts = new int[8];
    private int[] ends = new int[8];
    private int count;

    /**
     * A gather without ranges.
     *
     * @param store where
     * @param coflow what the bytes move for
     * @param group the receiving task within the coflow
     * @param shuffle number of the shuffle
     */
    public Gather(Store store, long coflow, int group, int shuffle) {
        this.store = store;
        this.coflow = coflow;
        this.group = group;
        this.shuffle = shuffle;
    }

    /**
     * Adds a range.
     *
     * @param map the map task, as its file is called
     * @param first the first reducer
     * @param end the one after the last
     * @return this
     */
    public Gather range(long map, int first, int end) {
        if (count == MAX_RANGES) {
            throw new IllegalStateException("a gather has at most " + MAX_RANGES + " ranges; ask for the rest by another");
        }
        if (first < 0 || first >= end) {
            throw new IllegalArgumentException("reducers " + first + " to " + end + " are no range");
        }
        if (count == maps.length) {
            maps = Arrays.copyOf(maps, 2 * count);
            firsts = Arrays.copyOf(firsts, 2 * count);
            ends = Arrays.copyOf(ends, 2 * count);
        }
        maps[count] = map;
        firsts[count] = first;
        ends[count++] = end;
        return this;
    }

    /**
     * How many ranges there are.
     *
     * @return 0 to {@value #MAX_RANGES}
     */
    public int size() {
        return count;
    }

    Store store() {
        return store;
    }

    long coflow() {
        return coflow;
    }

    int group() {
        return group;
    }

    /** As it goes to an agent. */
    ByteBuffer encode(int host) {
        byte[] application = store.application().getBytes(StandardCharsets.UTF_8);
        byte[] executor = store.executor().getBytes(StandardCharsets.UTF_8);
        int length = HEAD_BYTES + application.length + executor.length + count * RANGE_BYTES;
        ByteBuffer bytes = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(MAGIC).put(VERSION).put((byte) application.length).put((byte) executor.length).put((byte) 0);
        bytes.putLong(coflow).putLong(0).putInt(host).putInt(group).put(Identity.UNKNOWN.toWire()).put(store.token());
        bytes.putInt(shuffle).putInt(count).put(application).put(executor);
        for (int at = 0; at < count; at++) {
            bytes.putLong(maps[at]).putInt(firsts[at]).putInt(ends[at]);
        }
        bytes.flip();
        return bytes;
    }
}

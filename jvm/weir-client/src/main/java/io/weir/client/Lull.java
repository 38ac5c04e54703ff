package io.weir.client;

import java.util.concurrent.TimeUnit;

/**
 * How long a connection that was read empty is left alone. A rate is kept by small pieces, and a thread that is woken for each
 * costs more than the reading. So as much is let come as is worth a read, judged by what came lately, and never more than is
 * asked for. What is read late by this is late by {@link #LONGEST_NANOS} at most.
 */
final class Lull {
    /** Half of what a socket of Linux takes before it has grown. Only a sender that becomes faster meanwhile is held up, for one lull. */
    static final int WORTH_BYTES = 32 << 10;
    /** A sleep of less than this costs what it saves. */
    static final long SHORTEST_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    static final long LONGEST_NANOS = TimeUnit.MILLISECONDS.toNanos(30);
    /** After such a time without a byte what was before it says nothing. */
    static final long PAUSE_NANOS = TimeUnit.MILLISECONDS.toNanos(150);
    /** What an earlier read counts beside the next one. */
    private static final double MEMORY = 0.75;

    private boolean empty;
    private boolean begun;
    private long at;
    /** Of the reads before, the last ones most: bytes, and nanoseconds between them. */
    private double bytes;
    private double nanos;

    /** Nothing is known of what comes next. */
    void forget() {
        empty = false;
        begun = false;
        bytes = 0;
        nanos = 0;
    }

    /**
     * A read.
     *
     * @param count bytes that it brought
     * @param asked bytes that there was room for
     */
    void read(int count, int asked, long now) {
        empty = count < asked;
        long gap = now - at;
        if (begun && gap <= PAUSE_NANOS) {
            bytes = MEMORY * bytes + count;
            nanos = MEMORY * nanos + gap;
        } else {
            bytes = 0;
            nanos = 0;
        }
        begun = true;
        at = now;
    }

    /** Nanoseconds to wait from {@code now} before the next read, if {@code asked} bytes are still wanted; 0: not at all. */
    long nanos(int asked, long now) {
        if (!empty || bytes == 0) {
            return 0;
        }
        double expected = Math.min(asked, WORTH_BYTES) * nanos / bytes;
        long left = (long) Math.min(expected, LONGEST_NANOS) - (now - at);
        return left < SHORTEST_NANOS ? 0 : left;
    }
}

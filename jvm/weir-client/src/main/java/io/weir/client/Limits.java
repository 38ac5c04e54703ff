package io.weir.client;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Named bounds. Those of the protocol are as in crates/weir-proto/src/limits.rs, times of a receiver as in weir-core. */
final class Limits {
    /** Longest name of a block in bytes of UTF-8. */
    static final int MAX_BLOCK_NAME_BYTES = 255;
    /** Longest name of an application, and of an executor, in bytes of UTF-8. */
    static final int MAX_STORE_NAME_BYTES = 255;
    /** Largest block in bytes, 8 TiB. A holder that says more is not believed. */
    static final long MAX_BLOCK_BYTES = 1L << 43;
    /** Longest message of the control plane in bytes. */
    static final int MAX_CONTROL_MESSAGE_BYTES = 4 << 20;
    /** Most coflows in one {@code Renew} call. */
    static final int MAX_COFLOWS_PER_CALL = 1_000;
    /** Most coflows that one client keeps renewing; as many as a coordinator keeps live. */
    static final int MAX_KEPT_COFLOWS = 100_000;
    /** Most parents of a coflow. */
    static final int MAX_PARENTS = 1_000;
    /** Holders of one answer that are asked; the coordinator names the best ones first. */
    static final int MAX_HOLDERS_ASKED = 64;
    /** Holders of which a get remembers what went wrong. */
    static final int MAX_TRIED = 8;
    /** Holders that one get asks after all others for a while. */
    static final int MAX_AVOIDED = 1_024;
    /** Longest text of a peer that is repeated in an error, in characters. */
    static final int MAX_TEXT = 1_000;
    /** Idle connections that are kept for one holder, and for all together. */
    static final int MAX_IDLE_PER_HOLDER = 32;
    static final int MAX_IDLE_CONNECTIONS = 256;
    /** Buffers of a frame that are kept for later gets. */
    static final int MAX_IDLE_BUFFERS = 64;

    /** First and longest pause between attempts to reach a holder; each is twice as long as the one before. */
    static final long FIRST_RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(5);
    static final long LONGEST_RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(250);
    /** How long a holder that did not answer, or sent a damaged frame, is asked after all others. */
    static final long AVOID_NANOS = TimeUnit.SECONDS.toNanos(10);
    /** Longest wait of one {@code Locate}; repeated until the limit of the get. */
    static final long LOCATE_WAIT_NANOS = TimeUnit.SECONDS.toNanos(5);
    /** Longest wait of a {@code Locate} that a coordinator grants. */
    static final long LONGEST_LOCATE_NANOS = TimeUnit.SECONDS.toNanos(600);
    /** How long the coordinator may take to answer beyond what it was told to wait. */
    static final long LOCATE_LIMIT_NANOS = TimeUnit.SECONDS.toNanos(12);
    /** How long a holder that was silent may take to show that it is there. */
    static final long ALIVE_LIMIT_NANOS = TimeUnit.SECONDS.toNanos(2);
    /** Longest silence before a holder is asked whether it is there. */
    static final long LONGEST_SILENCE_NANOS = TimeUnit.SECONDS.toNanos(60);
    /** How long the acknowledgement, or word of a damaged frame, may wait for room in the socket. */
    static final long WRITE_LIMIT_NANOS = TimeUnit.SECONDS.toNanos(2);
    /** A longer time limit counts as this one: sums of times stay within 64 bits. */
    static final long LONGEST_LIMIT_NANOS = TimeUnit.DAYS.toNanos(3_650);

    private Limits() {}

    /** A time limit in nanoseconds; a longer one than the longest counts as that. */
    static long nanos(Duration limit) {
        return limit.getSeconds() >= TimeUnit.NANOSECONDS.toSeconds(LONGEST_LIMIT_NANOS)
                ? LONGEST_LIMIT_NANOS : limit.toNanos();
    }

    /** Cuts a text of a peer. */
    static String text(String said) {
        if (said == null) {
            return "";
        }
        return said.length() <= MAX_TEXT ? said : said.substring(0, MAX_TEXT) + "...";
    }
}

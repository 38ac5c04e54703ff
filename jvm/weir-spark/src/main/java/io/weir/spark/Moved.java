package io.weir.spark;

/** What was fetched for an attempt of a stage, and by whom. Not for several threads. */
final class Moved {
    private static final Why[] ALL = Why.values();

    long fetches;
    /** For answers of the driver: which coflow, which agent. Of all fetches together. */
    long waitedNanos;
    long weirBytes;
    private final long[] sparkBytes = new long[ALL.length];

    void spark(Why why, long bytes) {
        sparkBytes[why.ordinal()] = sum(sparkBytes[why.ordinal()], bytes);
    }

    long spark(Why why) {
        return sparkBytes[why.ordinal()];
    }

    long spark() {
        long all = 0;
        for (long bytes : sparkBytes) {
            all = sum(all, bytes);
        }
        return all;
    }

    void add(Moved other) {
        fetches = sum(fetches, other.fetches);
        waitedNanos = sum(waitedNanos, other.waitedNanos);
        weirBytes = sum(weirBytes, other.weirBytes);
        for (Why why : ALL) {
            spark(why, other.spark(why));
        }
    }

    /** Numbers that a peer says may be anything: what is negative does not count, and sums have an end. */
    private static long sum(long one, long other) {
        long added = Math.max(0, other);
        return one > Long.MAX_VALUE - added ? Long.MAX_VALUE : one + added;
    }

    /** One word. */
    String encode() {
        StringBuilder text = new StringBuilder().append(fetches).append(',').append(waitedNanos).append(',').append(weirBytes);
        for (Why why : ALL) {
            if (spark(why) > 0) {
                text.append(',').append(why.name()).append('=').append(spark(why));
            }
        }
        return text.toString();
    }

    /** Throws {@link IllegalArgumentException} if it is none. */
    static Moved parse(String text) {
        String[] parts = text.split(",", -1);
        if (parts.length < 3 || parts.length > 3 + ALL.length) {
            throw new IllegalArgumentException("no sums of a stage: " + text);
        }
        Moved moved = new Moved();
        moved.fetches = Math.max(0, Long.parseLong(parts[0]));
        moved.waitedNanos = Math.max(0, Long.parseLong(parts[1]));
        moved.weirBytes = Math.max(0, Long.parseLong(parts[2]));
        for (int at = 3; at < parts.length; at++) {
            int equals = parts[at].indexOf('=');
            if (equals < 0) {
                throw new IllegalArgumentException("no sums of a stage: " + text);
            }
            moved.spark(Why.valueOf(parts[at].substring(0, equals)), Long.parseLong(parts[at].substring(equals + 1)));
        }
        return moved;
    }
}

package io.weir.spark;

import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** Agents that failed are left alone for a while, longer each time: what they hold is fetched as Spark does. */
final class Breaker {
    static final long FIRST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(60);

    private final Map<InetSocketAddress, Rest> resting = new ConcurrentHashMap<>();

    private static final class Rest {
        final long pause;
        final long until;

        Rest(long pause, long now) {
            this.pause = pause;
            this.until = now + pause;
        }
    }

    /** Whether an agent may be asked. */
    boolean lets(InetSocketAddress agent, long now) {
        Rest rest = resting.get(agent);
        return rest == null || now - rest.until >= 0;
    }

    /** It failed. Those that fail at the same time count once. */
    void failed(InetSocketAddress agent, long now) {
        resting.compute(agent, (at, before) -> {
            if (before == null) {
                return new Rest(FIRST_PAUSE_NANOS, now);
            }
            return now - before.until < 0 ? before : new Rest(Math.min(2 * before.pause, LONGEST_PAUSE_NANOS), now);
        });
    }

    /** It did what it was asked for. */
    void succeeded(InetSocketAddress agent) {
        resting.remove(agent);
    }
}

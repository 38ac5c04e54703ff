package io.weir.spark;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * What failed is left alone for a while, longer each time: it is fetched as Spark does.
 *
 * @param <K> what is told apart
 */
final class Breaker<K> {
    static final long FIRST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(60);

    private final Map<K, Rest> resting = new ConcurrentHashMap<>();

    private static final class Rest {
        final long pause;
        final long until;

        Rest(long pause, long now) {
            this.pause = pause;
            this.until = now + pause;
        }
    }

    /** Whether it may be asked. */
    boolean lets(K agent, long now) {
        Rest rest = resting.get(agent);
        return rest == null || now - rest.until >= 0;
    }

    /** It failed. Those that fail at the same time count once. */
    void failed(K agent, long now) {
        resting.compute(agent, (at, before) -> {
            if (before == null) {
                return new Rest(FIRST_PAUSE_NANOS, now);
            }
            return now - before.until < 0 ? before : new Rest(Math.min(2 * before.pause, LONGEST_PAUSE_NANOS), now);
        });
    }

    /** It did what it was asked for. */
    void succeeded(K agent) {
        resting.remove(agent);
    }
}

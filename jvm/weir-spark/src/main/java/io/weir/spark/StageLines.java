package io.weir.spark;

import com.codahale.metrics.Counter;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A line for each attempt of a stage that read a shuffle, some time after it is over: executors tell their sums meanwhile. What they
 * tell later, or beyond the bounds, is counted and not said.
 */
final class StageLines {
    /** Executors tell once a second. */
    static final long DELAY_MS = 2_000;
    /** Attempts without a line yet. Of more, the eldest has none. */
    static final int MAX_ATTEMPTS = 1_000;
    /** Executors of one attempt that are told apart. */
    static final int MAX_EXECUTORS = 10_000;
    /** How long the end of an application waits for the sums of executors, which end at the same time. */
    private static final long END_MS = 500;
    /** Where tasks run in the driver's own process, as in tests. */
    private static final String DRIVER = "driver";

    final Counter sumsLost = new Counter();
    private final ScheduledExecutorService clock;
    private final Consumer<String> log;
    private final long delayMs;
    private final Map<Long, Attempt> attempts = new LinkedHashMap<>();
    /** Executors that have told all. */
    private final Set<String> ended = new HashSet<>();

    /** What is known of an attempt. */
    private static final class Attempt {
        final Moved moved = new Moved();
        final Set<String> heard = new HashSet<>();
        /** Executors that tasks ended at. */
        final Set<String> ran = new HashSet<>();
        StageCoflows.Life life;
        boolean over;
    }

    StageLines(ScheduledExecutorService clock, long delayMs, Consumer<String> log) {
        this.clock = clock;
        this.delayMs = delayMs;
        this.log = log;
    }

    private static long key(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** An attempt begins to read a shuffle. */
    synchronized void begin(int stage, int attempt) {
        attempts.putIfAbsent(key(stage, attempt), new Attempt());
        if (attempts.size() > MAX_ATTEMPTS) {
            attempts.remove(attempts.keySet().iterator().next());
        }
    }

    /** A task of it has ended. */
    synchronized void ran(int stage, int attempt, String executor) {
        Attempt known = attempts.get(key(stage, attempt));
        if (known != null && executor != null && !executor.equals(DRIVER) && known.ran.size() < MAX_EXECUTORS) {
            known.ran.add(executor);
        }
    }

    /** An executor tells what it fetched for it since it last told. */
    synchronized void heard(int stage, int attempt, String executor, Moved moved) {
        Attempt known = attempts.get(key(stage, attempt));
        if (known == null) {
            sumsLost.inc();
            return;
        }
        known.moved.add(moved);
        if (known.heard.size() < MAX_EXECUTORS) {
            known.heard.add(executor);
        }
    }

    /** An executor has told all that it will. */
    synchronized void ends(String executor) {
        if (ended.size() < MAX_EXECUTORS) {
            ended.add(executor);
        }
        notifyAll();
    }

    /** Whether nothing more comes of the attempts that are over. */
    private boolean isComplete() {
        return attempts.values().stream().allMatch(attempt -> !attempt.over || ended.containsAll(attempt.ran));
    }

    /**
     * It is over. Its line is written a little later.
     *
     * @param life of its coflow; null if it never had one
     */
    void end(int stage, int attempt, StageCoflows.Life life) {
        synchronized (this) {
            Attempt known = attempts.get(key(stage, attempt));
            if (known == null || known.over) {
                return;
            }
            known.over = true;
            known.life = life;
        }
        try {
            clock.schedule(() -> write(stage, attempt), delayMs, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            // The application ends, and writes all that are left.
        }
    }

    private void write(int stage, int attempt) {
        Attempt known;
        synchronized (this) {
            known = attempts.remove(key(stage, attempt));
        }
        if (known != null) {
            log.accept(StageLine.of(stage, attempt, known.life, known.moved, known.heard.size(), known.ran.size()));
        }
    }

    /** Writes all lines that are left. */
    void close() {
        Map<Long, Attempt> left;
        synchronized (this) {
            long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(END_MS);
            try {
                for (long ms = END_MS; ms > 0 && !isComplete();
                        ms = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())) {
                    wait(ms);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            left = new LinkedHashMap<>(attempts);
        }
        left.forEach((key, attempt) -> {
            if (attempt.over) {
                write((int) (key >> 32), key.intValue());
            }
        });
    }

    /** How many attempts have no line yet. */
    synchronized int size() {
        return attempts.size();
    }
}

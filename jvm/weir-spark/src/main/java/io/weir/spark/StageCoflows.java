package io.weir.spark;

import io.weir.client.CoflowOptions;
import io.weir.client.Coflow;
import io.weir.client.Pattern;
import io.weir.client.WeirClient;
import java.io.IOException;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The coflows of the stages that read shuffles: one for each attempt of a stage, from when it is submitted or first asked for to when
 * it completes. The coordinator is called by a thread of its own; whoever asks is answered at once with what is known.
 */
final class StageCoflows implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StageCoflows.class);
    /** After a failure no coflow is registered for so long, twice as long each time. */
    private static final long FIRST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(60);

    private static final int MAX_ENDED = 10_000;

    /** Spark knows it a little later than plugins begin. */
    private final Supplier<String> application;
    private final WeirClient client;
    private final ExecutorService caller = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "weir-coflows");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Long, State> stages = new HashMap<>();
    /** Attempts that are over: tasks that go on all the same may still ask for them. */
    private final Set<Long> ended = Collections.newSetFromMap(new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, Boolean> eldest) {
            return size() > MAX_ENDED;
        }
    });
    private long pause = FIRST_PAUSE_NANOS;
    private long pausedUntil = System.nanoTime();
    private boolean closed;

    /** What is known of a stage's attempt. */
    private static final class State {
        Coflow coflow;
        boolean failed;
        boolean over;
    }

    StageCoflows(Supplier<String> application, WeirClient client) {
        this.application = application;
        this.client = client;
    }

    private static long key(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** The coflow of an attempt, or what {@link Messages} has in its place. */
    synchronized long of(int stage, int attempt) {
        State state = stages.get(key(stage, attempt));
        if (state == null) {
            state = begin(stage, attempt);
        }
        if (state == null || state.failed || state.over) {
            return Messages.NONE;
        }
        return state.coflow == null ? Messages.NOT_YET : state.coflow.id();
    }

    /** An attempt begins. None is registered while the coordinator is away. */
    synchronized State begin(int stage, int attempt) {
        if (closed || isPaused() || ended.contains(key(stage, attempt))) {
            return null;
        }
        return stages.computeIfAbsent(key(stage, attempt), key -> {
            State state = new State();
            try {
                caller.execute(() -> register(stage, attempt, state));
            } catch (RejectedExecutionException e) {
                state.failed = true;
            }
            return state;
        });
    }

    private boolean isPaused() {
        return System.nanoTime() - pausedUntil < 0;
    }

    private void register(int stage, int attempt, State state) {
        synchronized (this) {
            // What waited while another one failed would wait for the same coordinator.
            if (state.over || isPaused()) {
                state.failed = true;
                stages.values().remove(state);
                return;
            }
        }
        Coflow coflow;
        try {
            coflow = client.register(CoflowOptions.named(application.get() + "/" + stage + "." + attempt)
                    .pattern(Pattern.SHUFFLE).build());
        } catch (IOException | RuntimeException e) {
            fail(state, e);
            return;
        }
        boolean over;
        synchronized (this) {
            state.coflow = coflow;
            over = state.over;
            pause = FIRST_PAUSE_NANOS;
        }
        if (over) {
            unregister(coflow);
        }
    }

    private synchronized void fail(State state, Exception e) {
        state.failed = true;
        stages.values().remove(state);
        pausedUntil = System.nanoTime() + pause;
        LOG.warn("Weir's coordinator is away; Spark moves its shuffles itself, for {} s at least: {}",
                TimeUnit.NANOSECONDS.toSeconds(pause), e.toString());
        pause = Math.min(2 * pause, LONGEST_PAUSE_NANOS);
    }

    /** An attempt is over, and so is its coflow. */
    void end(int stage, int attempt) {
        Coflow coflow;
        synchronized (this) {
            ended.add(key(stage, attempt));
            State state = stages.remove(key(stage, attempt));
            if (state == null) {
                return;
            }
            state.over = true;
            coflow = state.coflow;
        }
        if (coflow != null) {
            try {
                caller.execute(() -> unregister(coflow));
            } catch (RejectedExecutionException e) {
                // The application ends; the coflow does with its lease.
            }
        }
    }

    private void unregister(Coflow coflow) {
        try {
            coflow.unregister();
        } catch (IOException | RuntimeException e) {
            LOG.debug("coflow {} ends with its lease: {}", coflow.id(), e.toString());
        }
        coflow.close();
    }

    @Override
    public void close() {
        synchronized (this) {
            closed = true;
            for (State state : stages.values()) {
                state.over = true;
                if (state.coflow != null) {
                    caller.execute(() -> unregister(state.coflow));
                }
            }
            stages.clear();
        }
        caller.shutdown();
        try {
            if (!caller.awaitTermination(2, TimeUnit.SECONDS)) {
                caller.shutdownNow();
            }
        } catch (InterruptedException e) {
            caller.shutdownNow();
            Thread.currentThread().interrupt();
        }
        client.close();
    }
}

package io.weir.spark;

import com.codahale.metrics.Counter;
import io.weir.client.Admission;
import io.weir.client.Coflow;
import io.weir.client.CoflowOptions;
import io.weir.client.Pattern;
import io.weir.client.RefusedException;
import io.weir.client.WeirClient;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The coflows of the stages that read shuffles: one for each attempt of a stage, from when it is submitted or first asked for to when
 * it completes. The coordinator is called by threads of their own; callers are answered at once with what is known.
 */
final class StageCoflows implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(StageCoflows.class);
    /** After a failure no coflow is registered for so long, twice as long each time. */
    private static final long FIRST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final long LONGEST_PAUSE_NANOS = TimeUnit.SECONDS.toNanos(60);
    private static final long CLOSE_NANOS = TimeUnit.SECONDS.toNanos(2);
    private static final int MAX_ENDED = 10_000;
    /** Attempts that go on, as far as is known: the end of one may never be heard of. Beyond, the eldest counts as over. */
    private static final int MAX_STAGES = 10_000;

    final Counter registered = new Counter();
    final Counter failed = new Counter();
    /** Coflows of which the coordinator was told how much they are to read. */
    final Counter expected = new Counter();
    /** Spark knows it a little later than plugins begin. */
    private final Supplier<String> application;
    private final WeirClient client;
    private final Ancestry ancestry;
    final Endings endings;
    private final ExecutorService caller = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "weir-coflows");
        thread.setDaemon(true);
        return thread;
    });
    private final Map<Long, State> stages = new LinkedHashMap<>();
    /** What Spark said of attempts, also of those that were submitted while the coordinator was away. */
    private final Map<Long, Submitted> submitted = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, Submitted> eldest) {
            return size() > MAX_STAGES;
        }
    };
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
    private boolean saidRefused;
    private boolean takesExpectations = true;

    /** What Spark said of an attempt. */
    private static final class Submitted {
        /** Where an executor asks before the driver's own listener heard of it. */
        static final Submitted NOT = new Submitted(Terms.PLAIN, false, Map.of());

        final Terms terms;
        final boolean writes;
        final Map<String, Long> toRead;

        Submitted(Terms terms, boolean writes, Map<String, Long> toRead) {
            this.terms = terms;
            this.writes = writes;
            this.toRead = toRead;
        }
    }

    /** What is known of a stage's attempt. */
    private static final class State {
        final Life life = new Life();
        boolean isKept;
        Coflow coflow;
        boolean failed;
        boolean over;
    }

    /** What can be told of the coflow of an attempt. */
    static final class Life {
        /** 0 if it never had one. */
        volatile long coflow;
        /** 0 if it stands for its job itself. */
        volatile long job;
        volatile List<Long> parents = List.of();
        volatile boolean hasDeadline;
        /** Of its deadline; null as long as that is not known. */
        volatile Admission admission;
        volatile boolean metDeadline;
    }

    /**
     * None yet.
     *
     * @param clock has things done later; it is the caller's
     * @param keepMs how long the coflow of a stage that wrote a shuffle outlives it
     */
    StageCoflows(Supplier<String> application, WeirClient client, Ancestry ancestry, ScheduledExecutorService clock, long keepMs) {
        this.application = application;
        this.client = client;
        this.ancestry = ancestry;
        this.endings = new Endings(clock, keepMs);
    }

    /** Calls the coordinator once: a first call loads classes and connects, for longer than the fetches of a first stage wait. */
    void greet() {
        caller.execute(() -> {
            try {
                client.status(1);
            } catch (IOException | RuntimeException | Error e) {
                LOG.debug("Weir's coordinator does not answer yet: {}", e.toString());
            }
        });
    }

    private static long key(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** The coflow of an attempt, or what {@link Messages} has in its place. */
    synchronized long of(int stage, int attempt) {
        State state = stages.get(key(stage, attempt));
        return answer(state == null ? begin(stage, attempt) : state);
    }

    /** The same, but that none is registered for it. */
    synchronized long known(int stage, int attempt) {
        State state = stages.get(key(stage, attempt));
        return state == null && !ended.contains(key(stage, attempt)) ? Messages.NOT_YET : answer(state);
    }

    private static long answer(State state) {
        if (state == null || state.failed || state.over) {
            return Messages.NONE;
        }
        return state.coflow == null ? Messages.NOT_YET : state.coflow.id();
    }

    /**
     * An attempt begins. None is registered while the coordinator is away.
     *
     * @param writes whether others may follow on it
     * @param toRead bytes that it will read from agents, by their addresses, as far as that is known
     */
    synchronized void begin(int stage, int attempt, Terms terms, boolean writes, Map<String, Long> toRead) {
        if (closed || ended.contains(key(stage, attempt))) {
            return;
        }
        submitted.put(key(stage, attempt), new Submitted(terms, writes, toRead));
        if (!stages.containsKey(key(stage, attempt))) {
            begin(stage, attempt);
        }
    }

    private State begin(int stage, int attempt) {
        if (closed || isPaused() || ended.contains(key(stage, attempt))) {
            return null;
        }
        State state = new State();
        stages.put(key(stage, attempt), state);
        try {
            caller.execute(() -> register(stage, attempt, state));
        } catch (RejectedExecutionException e) {
            state.failed = true;
        }
        if (stages.size() > MAX_STAGES) {
            long eldest = stages.keySet().iterator().next();
            end((int) (eldest >> 32), (int) eldest);
        }
        return state;
    }

    private boolean isPaused() {
        return System.nanoTime() - pausedUntil < 0;
    }

    private void register(int stage, int attempt, State state) {
        Submitted known;
        synchronized (this) {
            // What waited while another one failed would wait for the same coordinator.
            if (state.over || isPaused()) {
                state.failed = true;
                stages.values().remove(state);
                return;
            }
            known = submitted.getOrDefault(key(stage, attempt), Submitted.NOT);
            state.isKept = known.writes;
        }
        Coflow coflow;
        try {
            state.life.job = ancestry.job(stage);
            state.life.parents = ancestry.parents(stage);
            coflow = register(application.get() + "/" + stage + "." + attempt, known.terms, state.life);
            ancestry.registered(stage, coflow.id());
            registered.inc();
        } catch (IOException | RuntimeException | Error e) {
            fail(state, e);
            return;
        }
        boolean over;
        synchronized (this) {
            state.coflow = coflow;
            state.life.coflow = coflow.id();
            over = state.over;
            pause = FIRST_PAUSE_NANOS;
        }
        if (over) {
            endings.finish(coflow, state.life, state.isKept);
        } else {
            expect(coflow.id(), known.toRead);
        }
    }

    /** Tells how much is to come. A caller that asks for the coflow has its id by now, and does not wait for this. */
    private void expect(long coflow, Map<String, Long> toRead) {
        if (toRead.isEmpty() || !takesExpectations) {
            return;
        }
        try {
            client.expect(coflow, toRead);
            expected.inc();
        } catch (IOException | RuntimeException | Error e) {
            // One that has ended is no reason to stop.
            takesExpectations = !(e instanceof RefusedException && "UNIMPLEMENTED".equals(((RefusedException) e).code()));
            LOG.debug("Weir's coordinator does not know how much coflow {} is to read: {}", coflow, e.toString());
        }
    }

    private Coflow register(String name, Terms terms, Life life) throws IOException {
        CoflowOptions.Builder options = CoflowOptions.named(name).pattern(Pattern.SHUFFLE).weight(terms.weight).tenant(terms.tenant);
        if (life.job != 0) {
            options.job(life.job);
        }
        life.parents.forEach(options::parent);
        if (terms.deadline != null) {
            options.deadline(terms.deadline);
        }
        try {
            Coflow coflow = client.register(options.build());
            life.hasDeadline = terms.deadline != null;
            return coflow;
        } catch (RefusedException e) {
            // Of another version, which has other bounds. A coordinator that has no room for any refuses the second call, too.
            if (!saidRefused) {
                saidRefused = true;
                LOG.warn("Weir's coordinator refused a coflow with its parents, pool and deadline; it is registered without: {}",
                        e.getMessage());
            }
            life.job = 0;
            life.parents = List.of();
            return client.register(CoflowOptions.named(name).pattern(Pattern.SHUFFLE).build());
        }
    }

    private synchronized void fail(State state, Throwable e) {
        state.failed = true;
        stages.values().remove(state);
        failed.inc();
        pausedUntil = System.nanoTime() + pause;
        LOG.warn("Weir's coordinator is away; Spark moves its shuffles itself, for {} s at least: {}",
                TimeUnit.NANOSECONDS.toSeconds(pause), e.toString());
        pause = Math.min(2 * pause, LONGEST_PAUSE_NANOS);
    }

    /**
     * An attempt is over, and so is its coflow; one that others may follow on goes on for a moment, and no task is told of it any more.
     *
     * @return what can be told of it; what is not known yet comes later; null if nothing is known of it
     */
    Life end(int stage, int attempt) {
        State state;
        Coflow coflow;
        synchronized (this) {
            ended.add(key(stage, attempt));
            submitted.remove(key(stage, attempt));
            state = stages.remove(key(stage, attempt));
            if (state == null) {
                return null;
            }
            state.over = true;
            coflow = state.coflow;
        }
        if (coflow != null) {
            endings.finish(coflow, state.life, state.isKept);
        }
        return state.life;
    }

    /** No more coflows; those that are there end, as far as the coordinator answers in two seconds. */
    @Override
    public void close() {
        List<Coflow> live = new ArrayList<>();
        synchronized (this) {
            closed = true;
            for (State state : stages.values()) {
                state.over = true;
                if (state.coflow != null) {
                    live.add(state.coflow);
                }
            }
            stages.clear();
            submitted.clear();
        }
        long end = System.nanoTime() + CLOSE_NANOS;
        caller.shutdown();
        try {
            // What is being registered for an attempt that is over has to end, too. A coordinator that takes longer answers nothing else.
            if (!caller.awaitTermination(CLOSE_NANOS / 2, TimeUnit.NANOSECONDS)) {
                caller.shutdownNow();
            }
        } catch (InterruptedException e) {
            caller.shutdownNow();
            Thread.currentThread().interrupt();
        }
        endings.close(live, end);
        client.close();
    }
}

package io.weir.spark;

import com.codahale.metrics.Counter;
import io.weir.client.Admission;
import io.weir.client.Coflow;
import io.weir.client.CoflowRecord;
import java.io.IOException;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Ends coflows, some a moment later. By a thread of its own: a coordinator answers when agents have settled, a quarter of a second at
 * most, and the coflow of the next stage does not wait for that.
 */
final class Endings {
    private static final Logger LOG = LoggerFactory.getLogger(Endings.class);
    /**
     * How long the coflow of a stage that wrote a shuffle outlives it. A coordinator gives a coflow the place of those parents that it
     * still knows, and Spark submits a stage only when all that it waits for are over.
     */
    static final long KEEP_MS = 5_000;
    /** Coflows that are kept so; of more, the eldest ends. */
    private static final int MAX_KEPT = 200;

    final Counter deadlinesRefused = new Counter();
    private final ScheduledExecutorService clock;
    private final long keepMs;
    private final Set<Coflow> kept = new LinkedHashSet<>();
    private final ExecutorService caller = Executors.newSingleThreadExecutor(task -> {
        Thread thread = new Thread(task, "weir-endings");
        thread.setDaemon(true);
        return thread;
    });
    private boolean closed;

    Endings(ScheduledExecutorService clock, long keepMs) {
        this.clock = clock;
        this.keepMs = keepMs;
    }

    /**
     * The attempt of a coflow is over.
     *
     * @param life hears what became of its deadline
     * @param isKept whether others may follow on it
     */
    void finish(Coflow coflow, StageCoflows.Life life, boolean isKept) {
        // What became of a deadline is known when the coflow has ended.
        if (isKept && !life.hasDeadline) {
            keep(coflow);
        } else {
            later(() -> unregister(coflow, life));
        }
    }

    private void keep(Coflow coflow) {
        Coflow eldest = null;
        synchronized (this) {
            if (closed) {
                eldest = coflow;
            } else {
                kept.add(coflow);
            }
            if (kept.size() > MAX_KEPT) {
                Iterator<Coflow> all = kept.iterator();
                eldest = all.next();
                all.remove();
            }
        }
        if (eldest != null) {
            Coflow gone = eldest;
            later(() -> unregister(gone, null));
        }
        try {
            clock.schedule(() -> {
                synchronized (this) {
                    if (!kept.remove(coflow)) {
                        return;
                    }
                }
                later(() -> unregister(coflow, null));
            }, keepMs, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            // The application ends.
        }
    }

    private void later(Runnable call) {
        try {
            caller.execute(call);
        } catch (RejectedExecutionException e) {
            // The application ends; the coflow does with its lease.
        }
    }

    /** A coflow that more flows may join has met nothing yet. */
    private void seal(Coflow coflow) {
        try {
            coflow.seal();
        } catch (IOException | RuntimeException e) {
            LOG.debug("coflow {} is not sealed: {}", coflow.id(), e.toString());
        }
    }

    private void unregister(Coflow coflow, StageCoflows.Life life) {
        try {
            if (life != null && life.hasDeadline) {
                seal(coflow);
            }
            Optional<CoflowRecord> record = coflow.unregister();
            if (life != null && life.hasDeadline && record.isPresent()) {
                life.metDeadline = record.get().metDeadline();
                life.admission = record.get().admission();
                if (life.admission == Admission.REFUSED) {
                    deadlinesRefused.inc();
                }
            }
        } catch (IOException | RuntimeException e) {
            LOG.debug("coflow {} ends with its lease: {}", coflow.id(), e.toString());
        }
        coflow.close();
    }

    /** Ends what is kept, and others, as far as that is done in time. */
    void close(List<Coflow> others, long end) {
        others.forEach(coflow -> later(() -> unregister(coflow, null)));
        synchronized (this) {
            closed = true;
            kept.forEach(coflow -> later(() -> unregister(coflow, null)));
            kept.clear();
        }
        caller.shutdown();
        try {
            if (!caller.awaitTermination(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS)) {
                caller.shutdownNow();
            }
        } catch (InterruptedException e) {
            caller.shutdownNow();
            Thread.currentThread().interrupt();
        }
    }
}

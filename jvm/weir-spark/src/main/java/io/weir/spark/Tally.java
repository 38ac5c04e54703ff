package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What this executor fetched, by attempts of stages. A thread of its own tells the driver what is new, once a second at most. What
 * cannot be told is added to what is told next, or lost.
 */
final class Tally implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Tally.class);
    /** Attempts with something new; what comes of others is counted, and not told. */
    static final int MAX_ATTEMPTS = 1_000;
    private static final long PERIOD_MS = 1_000;
    /** Fetches that end at the same time are told at once. */
    private static final long SOON_MS = 50;

    private final PluginContext plugin;
    private final Map<Long, Moved> news = new ConcurrentHashMap<>();
    private final Counter fetches;
    private final Counter waitedMs;
    private final Counter sparkBytes;
    private final Map<Why, Counter> sparkBytesBy = new EnumMap<>(Why.class);
    private final Thread teller = new Thread(this::tell, "weir-tells-driver");
    private final Object bell = new Object();
    private volatile boolean rung;
    private boolean begun;
    private boolean said;

    Tally(PluginContext plugin, MetricRegistry metrics) {
        this.plugin = plugin;
        this.fetches = metrics.counter("fetches");
        this.waitedMs = metrics.counter("waitedMs");
        this.sparkBytes = metrics.counter("vanillaBytes");
        for (Why why : Why.values()) {
            sparkBytesBy.put(why, metrics.counter("vanillaBytes." + why.metric));
        }
        teller.setDaemon(true);
    }

    /** A fetch was begun, and has waited for answers of the driver. */
    void fetched(int stage, int attempt, long waitedNanos) {
        fetches.inc();
        waitedMs.inc(TimeUnit.NANOSECONDS.toMillis(waitedNanos));
        add(stage, attempt, moved -> {
            moved.fetches++;
            moved.waitedNanos += waitedNanos;
        });
    }

    /** Weir brought bytes. */
    void weir(int stage, int attempt, long bytes) {
        add(stage, attempt, moved -> moved.weirBytes += bytes);
    }

    /** Spark brought bytes. */
    void spark(int stage, int attempt, Why why, long bytes) {
        sparkBytes.inc(bytes);
        sparkBytesBy.get(why).inc(bytes);
        add(stage, attempt, moved -> moved.spark(why, bytes));
    }

    private void add(int stage, int attempt, Consumer<Moved> change) {
        news.compute((long) stage << 32 | attempt, (key, before) -> {
            if (before == null && news.size() >= MAX_ATTEMPTS) {
                return null;
            }
            Moved moved = before == null ? new Moved() : before;
            change.accept(moved);
            return moved;
        });
        if (rung) {
            // The teller takes this off before it looks for news.
            return;
        }
        synchronized (bell) {
            rung = true;
            bell.notifyAll();
            if (!begun) {
                begun = true;
                start();
            }
        }
    }

    private void start() {
        try {
            teller.start();
        } catch (RuntimeException | OutOfMemoryError e) {
            // The system gives no more threads. All is told at the end.
        }
    }

    private void tell() {
        try {
            while (true) {
                synchronized (bell) {
                    while (!rung) {
                        bell.wait();
                    }
                }
                Thread.sleep(SOON_MS);
                synchronized (bell) {
                    rung = false;
                }
                tellNews();
                Thread.sleep(PERIOD_MS - SOON_MS);
            }
        } catch (InterruptedException e) {
            // The executor ends.
        }
    }

    private void tellNews() {
        for (Long key : news.keySet()) {
            Moved moved = news.remove(key);
            if (moved == null) {
                continue;
            }
            try {
                plugin.send(Messages.moved((int) (key >> 32), key.intValue(), plugin.executorID(), moved));
            } catch (Exception | Error e) {
                news.compute(key, (same, since) -> {
                    if (since != null) {
                        moved.add(since);
                    }
                    return since != null || news.size() < MAX_ATTEMPTS ? moved : null;
                });
                if (!said) {
                    said = true;
                    LOG.warn("the driver cannot be told what Weir fetched; its lines of stages may lack that: {}", e.toString());
                }
                return;
            }
        }
    }

    /** Tells what is left, and that it is all. */
    @Override
    public void close() {
        teller.interrupt();
        tellNews();
        try {
            plugin.send(Messages.ends(plugin.executorID()));
        } catch (Exception | Error e) {
            LOG.debug("the driver is not told that this executor ends: {}", e.toString());
        }
    }
}

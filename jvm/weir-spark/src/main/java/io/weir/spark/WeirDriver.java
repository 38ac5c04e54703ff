package io.weir.spark;

import io.weir.client.Store;
import io.weir.client.WeirClient;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.Schedulable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The driver's side: which coflow a stage is, and which agent serves an executor's files. */
final class WeirDriver implements DriverPlugin, Messages.Handler {
    /** Keys of what executors are told when they begin. */
    static final String ASIDE = "aside";
    static final String TOKEN = "token";
    private static final Logger LOG = LoggerFactory.getLogger(WeirDriver.class);
    /** How long the end of an application waits for what is left to be heard of its stages. */
    private static final long END_MS = 500;
    /** How long the coordinator may take to register a coflow. */
    private static final Duration CALL_LIMIT = Duration.ofSeconds(2);

    private final Agents agents = new Agents();
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "weir-clock");
        thread.setDaemon(true);
        return thread;
    });
    private volatile StageCoflows coflows;
    private volatile StageLines lines;
    private volatile StageListener listener;

    /** Nothing that is wrong here may keep an application from starting. */
    @Override
    public Map<String, String> init(SparkContext context, PluginContext plugin) {
        try {
            return begin(context, plugin);
        } catch (RuntimeException | LinkageError e) {
            LOG.warn("Weir stands aside", e);
            return Map.of(ASIDE, String.valueOf(e.getMessage()));
        }
    }

    private Map<String, String> begin(SparkContext context, PluginContext plugin) {
        Settings settings = new Settings(plugin.conf());
        Optional<String> aside = settings.whyAside();
        if (aside.isPresent()) {
            LOG.warn("Weir stands aside: {}", aside.get());
            return Map.of(ASIDE, aside.get());
        }
        WeirClient client;
        try {
            client = WeirClient.builder().coordinator(settings.coordinator()).callLimit(CALL_LIMIT).build();
        } catch (RuntimeException e) {
            LOG.warn("Weir stands aside: {}: {}", Settings.COORDINATOR, e.getMessage());
            return Map.of(ASIDE, String.valueOf(e.getMessage()));
        }
        Ancestry ancestry = new Ancestry();
        StageCoflows coflows = new StageCoflows(context::applicationId, client, ancestry, clock, Endings.KEEP_MS);
        Terms.Reader terms = new Terms.Reader(plugin.conf(), pool -> {
            Schedulable found = ScalaBridge.pool(context, pool);
            return found == null ? OptionalInt.empty() : OptionalInt.of(found.weight());
        });
        StageLines lines = new StageLines(clock, StageLines.DELAY_MS, LOG::info);
        this.coflows = coflows;
        this.lines = lines;
        coflows.greet();
        listener = new StageListener(coflows, ancestry, terms, lines, settings.expects() ? agents : new Agents());
        context.addSparkListener(listener);
        return Map.of(TOKEN, Hex.of(Store.newToken()));
    }

    /** Nothing to count where the plugin stands aside. */
    @Override
    public void registerMetrics(String application, PluginContext plugin) {
        if (coflows != null) {
            plugin.metricRegistry().register("coflows", coflows.registered);
            plugin.metricRegistry().register("coflowsFailed", coflows.failed);
            plugin.metricRegistry().register("coflowsExpected", coflows.expected);
            plugin.metricRegistry().register("deadlinesRefused", coflows.endings.deadlinesRefused);
            plugin.metricRegistry().register("sumsLost", lines.sumsLost);
        }
    }

    @Override
    public Object receive(Object message) {
        return Messages.dispatch((String) message, this);
    }

    @Override
    public long coflow(int stage, int attempt) {
        StageCoflows known = coflows;
        return known == null ? Messages.NONE : known.of(stage, attempt);
    }

    @Override
    public long known(int stage, int attempt) {
        StageCoflows known = coflows;
        return known == null ? Messages.NONE : known.known(stage, attempt);
    }

    @Override
    public String where(String executor) {
        return agents.of(executor);
    }

    @Override
    public String agents(int place) {
        return agents.from(place);
    }

    @Override
    public void attached(String executor, String address) {
        agents.add(executor, address);
    }

    @Override
    public void moved(int stage, int attempt, String executor, Moved moved) {
        StageLines known = lines;
        if (known != null) {
            known.heard(stage, attempt, executor, moved);
        }
    }

    @Override
    public void ends(String executor) {
        StageLines known = lines;
        if (known != null) {
            known.ends(executor);
        }
    }

    @Override
    public void shutdown() {
        if (listener != null) {
            listener.awaitEnd(END_MS);
        }
        if (coflows != null) {
            coflows.close();
        }
        if (lines != null) {
            lines.close();
        }
        clock.shutdownNow();
    }
}

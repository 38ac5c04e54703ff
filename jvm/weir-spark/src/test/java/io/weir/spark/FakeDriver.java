package io.weir.spark;

import com.codahale.metrics.MetricRegistry;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.resource.ResourceInformation;

/** What an executor hears from a driver that a test plays. */
final class FakeDriver implements PluginContext {
    /** Answers a message. */
    interface Answers {
        Object answer(String message) throws Exception;
    }

    /** What the driver was told. */
    final List<String> sent = new CopyOnWriteArrayList<>();
    volatile boolean sendsInVain;
    private final Answers answers;

    FakeDriver(Answers answers) {
        this.answers = answers;
    }

    /** One that knows an agent for all executors, and a coflow for all stages. */
    static FakeDriver knowing(String agent, long coflow) {
        return new FakeDriver(message -> Messages.dispatch(message, new Messages.Handler() {
            @Override
            public long coflow(int stage, int attempt) {
                return coflow;
            }

            @Override
            public long known(int stage, int attempt) {
                return coflow;
            }

            @Override
            public String where(String executor) {
                return agent;
            }

            @Override
            public String agents(int place) {
                return "0";
            }

            @Override
            public void attached(String executor, String address) {}

            @Override
            public void moved(int stage, int attempt, String executor, Moved moved) {}

            @Override
            public void ends(String executor) {}
        }));
    }

    Directory directory() {
        return new Directory(this, "app-1", new byte[16]);
    }

    /** What it was told of fetches. */
    List<String> moves() {
        return sent.stream().filter(message -> message.startsWith("moved ")).collect(Collectors.toList());
    }

    /** Of all that it was told. */
    Moved moved() {
        Moved all = new Moved();
        for (String message : moves()) {
            all.add(Moved.parse(message.split(" ")[3]));
        }
        return all;
    }

    @Override
    public MetricRegistry metricRegistry() {
        return new MetricRegistry();
    }

    @Override
    public SparkConf conf() {
        return new SparkConf(false);
    }

    @Override
    public String executorID() {
        return "1";
    }

    @Override
    public String hostname() {
        return "localhost";
    }

    @Override
    public Map<String, ResourceInformation> resources() {
        return Map.of();
    }

    @Override
    public void send(Object message) throws IOException {
        if (sendsInVain) {
            throw new IOException("the driver is away");
        }
        sent.add((String) message);
    }

    @Override
    public Object ask(Object message) throws Exception {
        return answers.answer((String) message);
    }
}

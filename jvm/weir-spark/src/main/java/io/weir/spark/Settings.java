package io.weir.spark;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.spark.SparkConf;

/** What the configuration says, and whether it lets the plugin act at all. */
final class Settings {
    static final String ENABLED = "spark.weir.enabled";
    static final String COORDINATOR = "spark.weir.coordinator";
    static final String AGENT = "spark.weir.agent";
    static final String PATIENCE = "spark.weir.patience";
    static final String EXPECT = "spark.weir.expect";
    private static final String AGENT_VARIABLE = "WEIR_AGENT";
    private static final String DEFAULT_AGENT = "/run/weir/agent.sock";

    private final SparkConf conf;

    Settings(SparkConf conf) {
        this.conf = conf;
    }

    /** Why the plugin stands aside; empty if it does not. */
    Optional<String> whyAside() {
        if (!conf.getBoolean(ENABLED, true)) {
            return Optional.of(ENABLED + " is false");
        }
        if (coordinator().isEmpty()) {
            return Optional.of(COORDINATOR + " is not set; say host:port of Weir's coordinator");
        }
        // What Spark would encrypt or authenticate would go in the clear.
        List<String> protects = new ArrayList<>();
        for (String key : new String[] {
            "spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled"
        }) {
            if (conf.getBoolean(key, false)) {
                protects.add(key);
            }
        }
        return protects.isEmpty() ? Optional.empty()
                : Optional.of(String.join(", ", protects) + " protects shuffles, and Weir does not yet");
    }

    /** host:port; empty if it is not said. */
    String coordinator() {
        return conf.get(COORDINATOR, "").trim();
    }

    /** The Unix socket of the agent of this host: as the configuration says, or the environment, or where packages put it. */
    Path agent() {
        String named = System.getenv(AGENT_VARIABLE);
        return Path.of(conf.get(AGENT, named == null || named.isEmpty() ? DEFAULT_AGENT : named));
    }

    /** How long a fetch waits for Weir before Spark does it. */
    Duration patience() {
        return Duration.ofSeconds(Math.max(1, conf.getTimeAsSeconds(PATIENCE, "60s")));
    }

    /** Whether the coordinator is told how much stages are to read before they ask. */
    boolean expects() {
        return conf.getBoolean(EXPECT, false);
    }

    int subdirectories() {
        return conf.getInt("spark.diskStore.subDirectories", 64);
    }
}

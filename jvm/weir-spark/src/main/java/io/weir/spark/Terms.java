package io.weir.spark;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashSet;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.Set;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a coflow is registered with that is said by the settings and by the local properties of its job's thread. */
final class Terms {
    /** Where nothing is said. */
    static final Terms PLAIN = new Terms("", 1, null);

    /** The pool of Spark's scheduler; empty if there is none. */
    final String tenant;
    final double weight;
    /** From the first fetch of the stage on; null if there is none. */
    final Duration deadline;

    Terms(String tenant, double weight, Duration deadline) {
        this.tenant = tenant;
        this.weight = weight;
        this.deadline = deadline;
    }

    /** Reads them. What makes no sense is said once, and left out. */
    static final class Reader {
        static final String POOL = "spark.scheduler.pool";
        static final String DEADLINE = "spark.weir.deadline";
        private static final Logger LOG = LoggerFactory.getLogger(Terms.class);
        private static final String MODE = "spark.scheduler.mode";
        private static final String DEFAULT_POOL = "default";
        private static final double MOST_WEIGHT = 1e6;
        private static final Duration LONGEST_DEADLINE = Duration.ofDays(365);
        /** As a coordinator has it. */
        private static final int MOST_TENANT_BYTES = 1_024;
        /** Things that are said once; further ones are not said. */
        private static final int MOST_SAID = 100;
        private static final int MOST_REPEATED = 100;

        private final SparkConf conf;
        private final Pools pools;
        private final Set<String> said = new HashSet<>();

        Reader(SparkConf conf, Pools pools) {
            this.conf = conf;
            this.pools = pools;
        }

        /**
         * Of a job.
         *
         * @param properties local properties of the job's thread; null where there are none
         */
        Terms of(Properties properties) {
            String fair = conf.get(MODE, "").equalsIgnoreCase("FAIR") ? DEFAULT_POOL : "";
            String pool = get(properties, POOL).orElse(fair);
            String deadline = get(properties, DEADLINE).orElse("");
            String tenant = pool;
            if (pool.getBytes(StandardCharsets.UTF_8).length > MOST_TENANT_BYTES) {
                say("the name of the pool " + shown(pool) + " is longer than " + MOST_TENANT_BYTES
                        + " bytes; its coflows have no tenant");
                tenant = "";
            }
            return new Terms(tenant, pool.isEmpty() ? 1 : weight(pool), deadline.isEmpty() ? null : deadline(deadline));
        }

        private static Optional<String> get(Properties properties, String key) {
            String value = properties == null ? null : properties.getProperty(key);
            return Optional.ofNullable(value).map(String::trim).filter(text -> !text.isEmpty());
        }

        private double weight(String pool) {
            String setting = "spark.weir.pool." + pool + ".weight";
            String value = conf.get(setting, "").trim();
            if (value.isEmpty()) {
                OptionalInt of = weightInSpark(pool);
                if (of.isEmpty()) {
                    return 1;
                }
                value = String.valueOf(of.getAsInt());
                setting = "the weight of the pool " + shown(pool);
            }
            try {
                double weight = Double.parseDouble(value);
                if (weight > 0 && weight <= MOST_WEIGHT) {
                    return weight;
                }
            } catch (NumberFormatException e) {
                // Said below.
            }
            say(shown(setting) + " is " + shown(value) + "; a weight is above 0 and at most 1000000, so 1 is used");
            return 1;
        }

        private OptionalInt weightInSpark(String pool) {
            try {
                return pools.weight(pool);
            } catch (RuntimeException | LinkageError e) {
                say("Spark does not say the weight of its pools, so 1 is used: " + shown(e.toString()));
                return OptionalInt.empty();
            }
        }

        private Duration deadline(String text) {
            try {
                // The words for times that all of Spark's settings have.
                Duration deadline = Duration.ofMillis(new SparkConf(false).set(DEADLINE, text).getTimeAsMs(DEADLINE));
                if (deadline.toMillis() >= 1 && deadline.compareTo(LONGEST_DEADLINE) <= 0) {
                    return deadline;
                }
            } catch (RuntimeException e) {
                // Said below.
            }
            say(DEADLINE + " is " + shown(text) + "; a deadline is a time such as 30s, from 1 ms to 365 days, so there is none");
            return null;
        }

        private static String shown(String text) {
            return text.length() <= MOST_REPEATED ? text : text.substring(0, MOST_REPEATED) + "...";
        }

        private void say(String what) {
            boolean isNew;
            synchronized (said) {
                isNew = said.size() < MOST_SAID && said.add(what);
            }
            if (isNew) {
                LOG.warn("Weir: {}", what);
            }
        }

        /** How many things were said. */
        int said() {
            synchronized (said) {
                return said.size();
            }
        }
    }

    /** Pools of Spark's scheduler. */
    interface Pools {
        /** The weight of a pool; empty if there is no such pool. */
        OptionalInt weight(String pool);
    }
}

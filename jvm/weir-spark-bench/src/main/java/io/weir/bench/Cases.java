package io.weir.bench;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.zip.CRC32C;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * Ways in which Spark shuffles, one application each: {@code Cases NAME}, or {@code Cases list}. A case throws if what it is about did not happen,
 * whatever it read. One line says what it read, as a digest that is the same however it came.
 */
public final class Cases {
    private Cases() {}

    /** One way. */
    interface Case {
        /** Settings that it needs, as name and value in turn. */
        default List<String> conf() {
            return List.of();
        }

        /** Moves data. */
        long run(JavaSparkContext context) throws Exception;

        /** Whether what the case is about happened, once the application is over. */
        default boolean happened(Seen seen) {
            return true;
        }
    }

    private static Map<String, Case> all() {
        Map<String, Case> cases = new LinkedHashMap<>();
        RddCases.add(cases);
        HostCases.add(cases);
        cases.put("coalesced", new Query(List.of(), "AQEShuffleRead coalesced",
                "SELECT k, count(*) AS n, sum(v) AS s FROM (SELECT id % 50000 AS k, xxhash64(id) % 1000 AS v FROM range(0, 600000, 1, 9)) GROUP BY k"));
        cases.put("skewed", new Query(List.of(
                "spark.sql.autoBroadcastJoinThreshold", "-1",
                "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes", "300KB",
                "spark.sql.adaptive.advisoryPartitionSizeInBytes", "200KB"), "skew=true",
                "SELECT a.v % 100 AS k, count(*) AS n, sum(a.v + b.w) AS s FROM"
                + " (SELECT if(id % 3 = 0, 7, id % 20000) AS k, xxhash64(id) % 1000000 AS v FROM range(0, 400000, 1, 9)) a JOIN"
                + " (SELECT id AS k, xxhash64(id, 1) % 1000 AS w FROM range(0, 20000, 1, 9)) b ON a.k = b.k GROUP BY a.v % 100"));
        cases.put("local", new Query(List.of(
                "spark.sql.autoBroadcastJoinThreshold", "-1",
                "spark.sql.adaptive.autoBroadcastJoinThreshold", "4MB"), "AQEShuffleRead local",
                "SELECT a.k, count(*) AS n, sum(a.v + b.w) AS s FROM"
                + " (SELECT id % 20000 AS k, xxhash64(id) % 1000000 AS v FROM range(0, 600000, 1, 9)) a JOIN"
                + " (SELECT id AS k, xxhash64(id, 1) % 1000 AS w FROM range(0, 20000, 1, 9)) b ON a.k = b.k GROUP BY a.k"));
        return cases;
    }

    /** A query, and what its plan says in the end. */
    private static final class Query implements Case {
        private final List<String> conf;
        private final String plan;
        private final String sql;

        Query(List<String> conf, String plan, String sql) {
            this.conf = conf;
            this.plan = plan;
            this.sql = sql;
        }

        @Override
        public List<String> conf() {
            return conf;
        }

        @Override
        public long run(JavaSparkContext context) {
            long sum = 0;
            for (Row row : SparkSession.builder().getOrCreate().sql(sql).collectAsList()) {
                sum += digest((row.getLong(0) + " " + row.getLong(1) + " " + row.getLong(2)).getBytes());
            }
            return sum;
        }

        @Override
        public boolean happened(Seen seen) {
            return Plans.SEEN.stream().anyMatch(seenPlan -> seenPlan.contains(plan));
        }
    }

    /** Of one record; sums of these do not depend on the order. */
    static long digest(byte[] bytes) {
        CRC32C crc = new CRC32C();
        crc.update(bytes);
        return crc.getValue() + 1;
    }

    /**
     * Runs.
     *
     * @param args see the class
     * @throws Exception if the case fails, or is not what its name says
     */
    public static void main(String[] args) throws Exception {
        Map<String, Case> cases = all();
        if (args[0].equals("list")) {
            cases.keySet().forEach(System.out::println);
            return;
        }
        Case one = cases.get(args[0]);
        if (one == null) {
            throw new IllegalArgumentException("there is no case " + args[0] + "; there are " + cases.keySet());
        }
        SparkConf conf = new SparkConf().setIfMissing("spark.app.name", args[0]).set("spark.sql.shuffle.partitions", "40")
                .set("spark.sql.queryExecutionListeners", Plans.class.getName());
        for (int at = 0; at < one.conf().size(); at += 2) {
            conf.set(one.conf().get(at), one.conf().get(at + 1));
        }
        Seen seen = new Seen();
        long digest;
        long nanos;
        try (JavaSparkContext context = new JavaSparkContext(conf)) {
            context.sc().addSparkListener(seen);
            long began = System.nanoTime();
            digest = one.run(context);
            nanos = System.nanoTime() - began;
        }
        if (!one.happened(seen)) {
            throw new IllegalStateException("what the case " + args[0] + " is about did not happen");
        }
        System.out.printf(Locale.ROOT, "case %s seconds %.3f remote %d digest %016x%n", args[0], nanos / 1e9, seen.remoteBytes.get(), digest);
    }
}

package io.weir.bench;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;

/**
 * One whole job per application, from its input files to its result: {@code Jobs NAME FOLDER PARTITIONS}, where NAME is one of
 * sort, join, pagerank, wordcount, tpch-q3, tpch-q5, tpch-q10 and tpch-q18, and PARTITIONS is the number of reduce tasks of each
 * shuffle. {@code Jobs prepare FOLDER MEGABYTES PARTITIONS} writes the inputs of all jobs first, about MEGABYTES for each kind,
 * into a folder that all hosts share. The rows depend on MEGABYTES alone; PARTITIONS says in how many files they are.
 *
 * <p>A job prints a line with the seconds from before its first action to the end of its result, and a digest of that result.
 * The digest is the same in each run and each version of Spark, since the order of rows does not matter to it, and since jobs
 * compute with integers and decimals alone.
 *
 * <p>Setting: {@code spark.bench.executors} is how many executors must be there before the time starts (as many as
 * {@code spark.cores.max} and {@code spark.executor.cores} allow, if both are set; otherwise none).
 */
public final class Jobs {
    private static final long EXECUTOR_WAIT_MS = 120_000;

    private Jobs() {}

    /**
     * Runs.
     *
     * @param args see the class
     * @throws Exception if a job fails, or its result is wrong
     */
    public static void main(String[] args) throws Exception {
        SparkConf conf = new SparkConf()
                .setIfMissing("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
                // Dates of rows do not depend on a time zone then.
                .set("spark.sql.datetime.java8API.enabled", "true");
        if (args.length == 4 && args[0].equals("prepare")) {
            prepare(conf, args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]));
        } else if (args.length == 3 && jobs().containsKey(args[0])) {
            run(conf, args[0], args[1], Integer.parseInt(args[2]));
        } else {
            throw new IllegalArgumentException(
                    "wants prepare FOLDER MEGABYTES PARTITIONS, or NAME FOLDER PARTITIONS with NAME of " + jobs().keySet());
        }
    }

    private static void prepare(SparkConf conf, String folder, int megabytes, int partitions) throws IOException {
        try (SparkSession spark = SparkSession.builder().config(conf).getOrCreate()) {
            SortJob.prepare(spark, folder, megabytes, partitions);
            JoinJob.prepare(spark, folder, megabytes, partitions);
            PageRankJob.prepare(spark, folder, megabytes, partitions);
            WordCountJob.prepare(spark, folder, megabytes, partitions);
            TpchTables.prepare(spark, folder, megabytes, partitions);
        }
    }

    private static void run(SparkConf conf, String name, String folder, int partitions) throws IOException, InterruptedException {
        Job job = jobs().get(name);
        if (job.isSql()) {
            // Both sides of each join are shuffled, however small.
            conf.set("spark.sql.autoBroadcastJoinThreshold", "-1");
            conf.set("spark.sql.shuffle.partitions", String.valueOf(partitions));
        }
        try (SparkSession spark = SparkSession.builder().config(conf).getOrCreate()) {
            awaitExecutors(spark);
            long began = System.nanoTime();
            long digest = job.run(spark, folder, partitions);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(Locale.ROOT, "job %s seconds %.3f digest %016x%n", name, seconds, digest);
        }
    }

    private static Map<String, Job> jobs() {
        Map<String, Job> jobs = new LinkedHashMap<>();
        jobs.put("sort", new SortJob());
        jobs.put("join", new JoinJob());
        jobs.put("pagerank", new PageRankJob());
        jobs.put("wordcount", new WordCountJob());
        for (String query : new String[] {"q3", "q5", "q10", "q18"}) {
            jobs.put("tpch-" + query, new TpchJob(query));
        }
        return jobs;
    }

    private static void awaitExecutors(SparkSession spark) throws InterruptedException {
        SparkConf conf = spark.sparkContext().getConf();
        int allowed = conf.getInt("spark.cores.max", 0) / conf.getInt("spark.executor.cores", Integer.MAX_VALUE);
        int wanted = conf.getInt("spark.bench.executors", allowed);
        long until = System.nanoTime() + EXECUTOR_WAIT_MS * 1_000_000;
        // The driver is among them.
        while (spark.sparkContext().statusTracker().getExecutorInfos().length - 1 < wanted) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("not all of " + wanted + " executors came");
            }
            Thread.sleep(20);
        }
    }
}

package io.weir.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;

/**
 * One whole job per application, from its input files to its result: {@code Jobs NAME FOLDER PARTITIONS}, where NAME is one of
 * sort, skewed-sort, join, pagerank, wordcount, tpch-q3, tpch-q5, tpch-q10 and tpch-q18, or with MLlib als, matrices, components,
 * correlation, word2vec and itemsets, and PARTITIONS is the number of reduce tasks of each
 * shuffle. {@code Jobs prepare FOLDER MEGABYTES PARTITIONS NAME...} writes their inputs first, about MEGABYTES for each kind,
 * into a folder that all hosts share. The rows depend on MEGABYTES alone; PARTITIONS says in how many files they are.
 *
 * <p>A job prints a line with the seconds from before its first action to the end of its result, a digest of that result, the
 * seconds of stages that read no shuffle, and of those that do, and how long tasks waited for blocks: in the middle, and at most.
 * The digest is the same in each run and each version of Spark, since the order of rows does not matter to it, and since jobs
 * compute with integers and decimals alone. Sums of MLlib depend on their order in the last digits: of als only the numbers of factors are
 * digested, of word2vec which words there are, of components and correlation a rounded sum.
 *
 * <p>Setting: {@code spark.bench.executors} is how many executors must be there before the time starts (as many as
 * {@code spark.cores.max} and {@code spark.executor.cores} allow, if both are set; otherwise none). With
 * {@code spark.bench.warm}, the folder of another input, the job first runs on that, so that classes are there and compiled. With
 * {@code spark.bench.again} true it also runs on its own input first, and with {@code spark.bench.go} it then says {@code ready}, and begins when there is a file of that name.
 */
public final class Jobs {
    private static final long LONGEST_MS = 120_000;

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
        if (args.length > 4 && args[0].equals("prepare")) {
            prepare(conf, args[1], Integer.parseInt(args[2]), Integer.parseInt(args[3]), List.of(args).subList(4, args.length));
        } else if (args.length == 3 && jobs().containsKey(args[0])) {
            run(conf, args[0], args[1], Integer.parseInt(args[2]));
        } else {
            throw new IllegalArgumentException(
                    "wants prepare FOLDER MEGABYTES PARTITIONS NAME..., or NAME FOLDER PARTITIONS with NAME of " + jobs().keySet());
        }
    }

    private static void prepare(SparkConf conf, String folder, int megabytes, int partitions, List<String> names) throws IOException {
        try (SparkSession spark = SparkSession.builder().config(conf).getOrCreate()) {
            Set<String> written = new HashSet<>();
            for (String name : names) {
                Supplier<Job> made = jobs().get(name);
                if (made == null) {
                    throw new IllegalArgumentException("there is no job " + name + "; there are " + jobs().keySet());
                }
                Job job = made.get();
                // Queries have the same tables.
                if (written.add(job instanceof TpchJob ? "tpch" : name)) {
                    job.prepare(spark, folder, megabytes, partitions);
                }
            }
        }
    }

    private static void run(SparkConf conf, String name, String folder, int partitions) throws IOException, InterruptedException {
        Job job = jobs().get(name).get();
        if (job.isSql()) {
            // Both sides of each join are shuffled, however small.
            conf.set("spark.sql.autoBroadcastJoinThreshold", "-1");
            conf.set("spark.sql.shuffle.partitions", String.valueOf(partitions));
        }
        try (SparkSession spark = SparkSession.builder().config(conf).getOrCreate()) {
            Present.await(spark.sparkContext());
            String warm = conf.get("spark.bench.warm", "");
            if (!warm.isEmpty()) {
                job.run(spark, warm, partitions);
            }
            if (conf.getBoolean("spark.bench.again", false)) {
                job.run(spark, folder, partitions);
            }
            awaitOthers(spark);
            Reads reads = new Reads();
            spark.sparkContext().addSparkListener(reads);
            long began = System.nanoTime();
            long digest = job.run(spark, folder, partitions);
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.printf(Locale.ROOT, "job %s seconds %.3f digest %016x %s%n", name, seconds, digest, reads.said());
        }
    }

    /** Made when they are wanted: a Spark without MLlib runs the others. */
    private static Map<String, Supplier<Job>> jobs() {
        Map<String, Supplier<Job>> jobs = new LinkedHashMap<>();
        jobs.put("sort", () -> new SortJob(false));
        jobs.put("skewed-sort", () -> new SortJob(true));
        jobs.put("join", JoinJob::new);
        jobs.put("pagerank", PageRankJob::new);
        jobs.put("wordcount", WordCountJob::new);
        for (String query : new String[] {"q3", "q5", "q10", "q18"}) {
            jobs.put("tpch-" + query, () -> new TpchJob(query));
        }
        jobs.put("als", AlsJob::new);
        jobs.put("matrices", MatricesJob::new);
        jobs.put("components", ComponentsJob::new);
        jobs.put("correlation", CorrelationJob::new);
        jobs.put("word2vec", WordVectorsJob::new);
        jobs.put("itemsets", ItemSetsJob::new);
        return jobs;
    }

    /** Others begin at the same time. */
    private static void awaitOthers(SparkSession spark) throws InterruptedException {
        String go = spark.sparkContext().getConf().get("spark.bench.go", "");
        if (go.isEmpty()) {
            return;
        }
        System.out.println("ready");
        long until = System.nanoTime() + LONGEST_MS * 1_000_000;
        while (!Files.exists(Path.of(go))) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("nobody says go");
            }
            Thread.sleep(5);
        }
    }
}

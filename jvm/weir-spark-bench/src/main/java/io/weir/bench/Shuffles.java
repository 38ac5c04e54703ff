package io.weir.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32C;
import org.apache.spark.HashPartitioner;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import scala.Tuple2;

/**
 * Shuffles whose map outputs are there, read at the same time: {@code Shuffles ROUNDS MAPS REDUCERS MEGABYTES...}. Each shuffle is
 * written, and read once, before anything is measured. A line for each read says which, what it had, and how long it took; what
 * came is compared with what was written.
 *
 * <p>Settings: {@code spark.bench.executors} is how many executors must be there first, or the maps of a shuffle would be those of the few
 * that came first; {@code spark.bench.chain} is how many shuffles more each record goes through when a shuffle is read (0), so that a
 * read is a job of several stages; {@code spark.bench.deadline} is the deadline of the first shuffle's coflows (none);
 * {@code spark.bench.pools} has each shuffle read in a pool of its own, {@code shuffle-0} and so on (false).
 */
public final class Shuffles {
    private static final int RECORD_BYTES = 10_000;

    private Shuffles() {}

    /**
     * Runs.
     *
     * @param args see the class
     * @throws Exception if a job fails or brought other bytes
     */
    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        int maps = Integer.parseInt(args[1]);
        int reducers = Integer.parseInt(args[2]);
        List<Integer> sizes = new ArrayList<>();
        for (int at = 3; at < args.length; at++) {
            sizes.add(Integer.parseInt(args[at]));
        }
        try (JavaSparkContext context = new JavaSparkContext(new SparkConf().setIfMissing("spark.app.name", "shuffles"))) {
            Present.await(context.sc());
            List<JavaPairRDD<Integer, byte[]>> shuffles = new ArrayList<>();
            List<Long> sums = new ArrayList<>();
            for (int number = 0; number < sizes.size(); number++) {
                JavaPairRDD<Integer, byte[]> shuffle = written(context, number, maps, reducers, sizes.get(number));
                sums.add(read(shuffle, 0, reducers));
                shuffles.add(shuffle);
            }
            int chain = context.getConf().getInt("spark.bench.chain", 0);
            boolean pools = context.getConf().getBoolean("spark.bench.pools", false);
            String deadline = context.getConf().get("spark.bench.deadline", null);
            ExecutorService threads = Executors.newFixedThreadPool(sizes.size());
            for (int round = 0; round < rounds; round++) {
                long began = System.nanoTime();
                List<Future<Double>> running = new ArrayList<>();
                for (int number = 0; number < sizes.size(); number++) {
                    JavaPairRDD<Integer, byte[]> shuffle = shuffles.get(number);
                    long expected = sums.get(number);
                    String pool = pools ? "shuffle-" + number : null;
                    String due = number == 0 ? deadline : null;
                    running.add(threads.submit((Callable<Double>) () -> {
                        context.setLocalProperty("spark.scheduler.pool", pool);
                        context.setLocalProperty("spark.weir.deadline", due);
                        if (read(shuffle, chain, reducers) != expected) {
                            throw new IllegalStateException("a shuffle brought other bytes than were written");
                        }
                        return (System.nanoTime() - began) / 1e9;
                    }));
                }
                for (int number = 0; number < running.size(); number++) {
                    System.out.printf(Locale.ROOT, "round %d shuffle %d megabytes %d seconds %.3f%n", round, number,
                            sizes.get(number), running.get(number).get());
                }
            }
            threads.shutdown();
        }
    }

    private static JavaPairRDD<Integer, byte[]> written(JavaSparkContext context, int number, int maps, int reducers,
            int megabytes) {
        int records = (int) ((long) megabytes * 1_000_000 / RECORD_BYTES / maps);
        List<Integer> tasks = IntStream.range(0, maps).boxed().collect(Collectors.toList());
        return context.parallelize(tasks, maps)
                .flatMap((FlatMapFunction<Integer, Tuple2<Integer, byte[]>>) map -> new Records(number * 1_000L + map, RECORD_BYTES, records))
                .mapToPair(pair -> pair)
                .partitionBy(new HashPartitioner(reducers));
    }

    /** Reads a shuffle whole, and as many more behind it; a sum over all records, whatever their order. */
    private static long read(JavaPairRDD<Integer, byte[]> shuffle, int chain, int reducers) {
        JavaPairRDD<Integer, byte[]> last = shuffle;
        for (int more = 1; more <= chain; more++) {
            // Another number of partitions, or Spark sees that there is nothing to move.
            last = last.mapToPair(pair -> new Tuple2<>(pair._1 + 1, pair._2)).partitionBy(new HashPartitioner(reducers + more));
        }
        return last.mapPartitions(records -> {
            long sum = 0;
            while (records.hasNext()) {
                CRC32C crc = new CRC32C();
                crc.update(records.next()._2);
                sum += crc.getValue();
            }
            return List.of(sum).iterator();
        }).reduce(Long::sum);
    }
}

package io.weir.bench;

import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.HashPartitioner;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import scala.Tuple2;

/** Cases of one application whose executors stay. */
final class RddCases {
    /** A file of more cannot be mapped at once, and its offsets do not fit an int. */
    private static final long TWO_GIGABYTES = 1L << 31;

    private RddCases() {}

    static void add(Map<String, Cases.Case> cases) {
        // Up to 200 reducers a map task writes a file for each and merges them; it sorts for more.
        cases.put("bypass", context -> read(written(context, 9, 4_000, 1_000).partitionBy(new HashPartitioner(12))));
        cases.put("sorted", context -> read(written(context, 9, 4_000, 1_000).sortByKey(true, 300)));
        // Above 2,000 reducers the driver knows sizes on average only.
        cases.put("reducers", context -> read(written(context, 6, 5_000, 1_000).partitionBy(new HashPartitioner(2_500))));
        cases.put("joined", RddCases::joined);
        cases.put("encrypted", with(List.of("spark.io.encryption.enabled", "true"),
                context -> read(written(context, 9, 4_000, 1_000).partitionBy(new HashPartitioner(12)))));
        cases.put("plain", with(List.of("spark.shuffle.compress", "false", "spark.shuffle.checksum.enabled", "false",
                "spark.shuffle.useOldFetchProtocol", "true"),
                context -> read(written(context, 9, 4_000, 1_000).partitionBy(new HashPartitioner(30)))));
        cases.put("windows", with(List.of("spark.reducer.maxSizeInFlight", "200k", "spark.reducer.maxReqsInFlight", "3",
                "spark.reducer.maxBlocksInFlightPerAddress", "2"),
                context -> read(written(context, 30, 1_500, 1_000).partitionBy(new HashPartitioner(40)))));
        cases.put("large-blocks", new LargeBlocks());
        cases.put("large-file", new LargeFile());
        cases.put("speculated", new Speculated());
        cases.put("cancelled", RddCases::cancelled);
    }

    /** What a case does. */
    interface Run {
        long run(JavaSparkContext context) throws Exception;
    }

    /** A case of which there is nothing to say afterwards. */
    static Cases.Case with(List<String> conf, Run run) {
        return new Cases.Case() {
            @Override
            public List<String> conf() {
                return conf;
            }

            @Override
            public long run(JavaSparkContext context) throws Exception {
                return run.run(context);
            }
        };
    }

    /** Records by number, of as many map tasks. */
    static JavaPairRDD<Integer, byte[]> written(JavaSparkContext context, int maps, int records, int bytes) {
        List<Integer> tasks = IntStream.range(0, maps).boxed().collect(Collectors.toList());
        return context.parallelize(tasks, maps)
                .flatMap((FlatMapFunction<Integer, Tuple2<Integer, byte[]>>) map -> new Records(map, bytes, records))
                .mapToPair(pair -> pair);
    }

    /** Reads all; a sum over all records. */
    static long read(JavaPairRDD<Integer, byte[]> shuffle) {
        return shuffle.mapPartitions(records -> List.of(sum(records)).iterator()).reduce(Long::sum);
    }

    /** Reads all once more, and has to find the same. */
    static long readAgain(JavaPairRDD<Integer, byte[]> shuffle, long before) {
        long now = read(shuffle);
        if (now != before) {
            throw new IllegalStateException("other bytes came than before");
        }
        return now;
    }

    static long sum(Iterator<Tuple2<Integer, byte[]>> records) {
        long sum = 0;
        while (records.hasNext()) {
            Tuple2<Integer, byte[]> record = records.next();
            sum += record._1 * 31L + Cases.digest(record._2);
        }
        return sum;
    }

    /** A stage that reads two shuffles of different files. */
    private static long joined(JavaSparkContext context) {
        JavaPairRDD<Integer, byte[]> one = written(context, 9, 2_000, 1_000);
        JavaPairRDD<Integer, byte[]> other = written(context, 5, 2_000, 500);
        return one.join(other, 24).mapToPair(pair -> new Tuple2<>(pair._1 + pair._2._2.length, pair._2._1))
                .mapPartitions(records -> List.of(sum(records)).iterator()).reduce(Long::sum);
    }

    /** A job that is cancelled while it reads, and another one that reads the same. */
    private static long cancelled(JavaSparkContext context) throws Exception {
        JavaPairRDD<Integer, byte[]> shuffle = written(context, 9, 10_000, 1_000).partitionBy(new HashPartitioner(24));
        long whole = read(shuffle);
        for (int time = 0; time < 3; time++) {
            String group = "cancelled-" + time;
            Thread reading = new Thread(() -> {
                context.setJobGroup(group, group, true);
                try {
                    read(shuffle);
                } catch (RuntimeException e) {
                    // As it should be.
                }
            });
            reading.start();
            Thread.sleep(150 + 150L * time);
            context.cancelJobGroup(group);
            reading.join();
        }
        return readAgain(shuffle, whole);
    }

    /** Some requests go to disk, as they are above the bound, and some do not. */
    private static final class LargeBlocks implements Cases.Case {
        @Override
        public List<String> conf() {
            return List.of("spark.network.maxRemoteBlockSizeFetchToMem", "1m");
        }

        @Override
        public long run(JavaSparkContext context) {
            JavaPairRDD<Integer, byte[]> uneven = written(context, 9, 6_000, 1_000)
                    .mapToPair(pair -> new Tuple2<>(pair._1 % 3 == 0 ? 0 : pair._1, pair._2));
            return read(uneven.partitionBy(new HashPartitioner(24)));
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.remoteBytesToDisk.get() > 0 && seen.remoteBytesToDisk.get() < seen.remoteBytes.get();
        }
    }

    private static final class LargeFile implements Cases.Case {
        @Override
        public long run(JavaSparkContext context) {
            return read(written(context, 1, 225_000, 10_000).partitionBy(new HashPartitioner(120)));
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.mostWritten.get() > TWO_GIGABYTES;
        }
    }

    /** A task that is slow the first time is run twice; what it fetched by then is given up. */
    private static final class Speculated implements Cases.Case {
        @Override
        public List<String> conf() {
            return List.of("spark.speculation", "true", "spark.speculation.interval", "100ms", "spark.speculation.quantile", "0.5",
                    "spark.speculation.minTaskRuntime", "500ms");
        }

        @Override
        public long run(JavaSparkContext context) {
            return written(context, 9, 4_000, 1_000).partitionBy(new HashPartitioner(24)).mapPartitions(records -> {
                TaskContext task = TaskContext.get();
                if (task.partitionId() == 0 && task.attemptNumber() == 0) {
                    Tuple2<Integer, byte[]> first = records.next();
                    Thread.sleep(60_000);
                    throw new IllegalStateException("nobody ran the task of record " + first._1 + " again");
                }
                return List.of(sum(records)).iterator();
            }).reduce(Long::sum);
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.speculative.get() > 0;
        }
    }
}

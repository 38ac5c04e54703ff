package io.weir.bench;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.HashPartitioner;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;

/** Cases in which executors are of another kind, come or go. */
final class HostCases {
    private HostCases() {}

    static void add(Map<String, Cases.Case> cases) {
        cases.put("two-executors", new TwoExecutors());
        // Spark's own fetch is from a service of the host then, not from the executor.
        cases.put("service", RddCases.with(List.of("spark.shuffle.service.enabled", "true"), context -> RddCases.read(shuffle(context))));
        cases.put("dynamic", new Dynamic());
        cases.put("executor-lost", new ExecutorLost());
        cases.put("outputs-lost", new OutputsLost());
        cases.put("decommissioned", new Decommissioned());
    }

    private static JavaPairRDD<Integer, byte[]> shuffle(JavaSparkContext context) {
        return RddCases.written(context, 12, 4_000, 1_000).partitionBy(new HashPartitioner(24));
    }

    /** Waits until something holds, half a minute at most. */
    private static void await(BooleanSupplier holds, String what) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(what);
            }
            Thread.sleep(50);
        }
    }

    /** Several executors of a host have one agent. */
    private static final class TwoExecutors implements Cases.Case {
        @Override
        public List<String> conf() {
            return List.of("spark.executor.cores", "2", "spark.executor.memory", "512m");
        }

        @Override
        public long run(JavaSparkContext context) {
            return RddCases.read(shuffle(context));
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.executors.size() > 3;
        }
    }

    /** Executors that wrote a shuffle are gone when it is read by others. */
    private static final class Dynamic implements Cases.Case {
        @Override
        public List<String> conf() {
            return List.of("spark.shuffle.service.enabled", "true", "spark.dynamicAllocation.enabled", "true",
                    "spark.dynamicAllocation.executorIdleTimeout", "2s", "spark.dynamicAllocation.minExecutors", "0",
                    "spark.dynamicAllocation.initialExecutors", "3", "spark.dynamicAllocation.maxExecutors", "3",
                    "spark.scheduler.minRegisteredResourcesRatio", "0.0");
        }

        @Override
        public long run(JavaSparkContext context) throws Exception {
            Seen seen = new Seen();
            context.sc().addSparkListener(seen);
            JavaPairRDD<Integer, byte[]> shuffle = shuffle(context);
            long first = RddCases.read(shuffle);
            await(() -> seen.executorsRemoved.get() >= 3, "executors that do nothing stay");
            return RddCases.readAgain(shuffle, first);
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.executorsRemoved.get() >= 3 && seen.retriedStages.get() == 0;
        }
    }

    /** An executor dies while its outputs are read. An agent serves them all the same. */
    private static final class ExecutorLost implements Cases.Case {
        @Override
        public long run(JavaSparkContext context) {
            return shuffle(context).mapPartitions(records -> {
                TaskContext task = TaskContext.get();
                if (task.partitionId() == 5 && task.attemptNumber() == 0 && task.stageAttemptNumber() == 0) {
                    records.next();
                    Runtime.getRuntime().halt(1);
                }
                return List.of(RddCases.sum(records)).iterator();
            }).reduce(Long::sum);
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.executorsRemoved.get() > 0 && seen.failedTasks.get() > 0;
        }
    }

    /** The files of an executor are gone, and are written again. */
    private static final class OutputsLost implements Cases.Case {
        @Override
        public long run(JavaSparkContext context) {
            JavaPairRDD<Integer, byte[]> shuffle = shuffle(context);
            long first = RddCases.read(shuffle);
            context.parallelize(List.of(0), 1).foreach(none -> {
                for (File directory : SparkEnv.get().blockManager().diskBlockManager().localDirs()) {
                    try (Stream<Path> files = Files.walk(directory.toPath())) {
                        for (Path file : files.filter(Files::isRegularFile).collect(Collectors.toList())) {
                            Files.delete(file);
                        }
                    }
                }
            });
            return RddCases.readAgain(shuffle, first);
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.retriedStages.get() > 0;
        }
    }

    /** An executor gives its shuffle files to others, and goes. */
    private static final class Decommissioned implements Cases.Case {
        @Override
        public List<String> conf() {
            return List.of("spark.decommission.enabled", "true", "spark.storage.decommission.enabled", "true",
                    "spark.storage.decommission.shuffleBlocks.enabled", "true",
                    "spark.storage.decommission.replicationReattemptInterval", "1s");
        }

        @Override
        public long run(JavaSparkContext context) throws Exception {
            Seen seen = new Seen();
            context.sc().addSparkListener(seen);
            JavaPairRDD<Integer, byte[]> shuffle = shuffle(context);
            long first = RddCases.read(shuffle);
            // The signal by which a cluster manager says so.
            context.parallelize(List.of(0), 1).foreach(none -> {
                System.err.println("decommissioned: executor " + SparkEnv.get().executorId());
                new ProcessBuilder("kill", "-PWR", String.valueOf(ProcessHandle.current().pid())).start().waitFor();
            });
            await(() -> seen.executorsRemoved.get() > 0, "an executor that was decommissioned stays");
            return RddCases.readAgain(shuffle, first);
        }

        @Override
        public boolean happened(Seen seen) {
            return seen.executorsRemoved.get() > 0;
        }
    }
}

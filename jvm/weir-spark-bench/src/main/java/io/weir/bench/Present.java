package io.weir.bench;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;

/** Executors that an application waits for, so that Spark gives tasks to all of them alike. */
final class Present {
    private static final long LONGEST_MS = 120_000;

    private Present() {}

    /**
     * Waits for all executors: {@code spark.bench.executors}, or as many as {@code spark.cores.max} and {@code spark.executor.cores} allow,
     * if both are set; otherwise none.
     */
    static void await(SparkContext context) throws InterruptedException {
        SparkConf conf = context.getConf();
        int allowed = conf.getInt("spark.cores.max", 0) / conf.getInt("spark.executor.cores", Integer.MAX_VALUE);
        int wanted = conf.getInt("spark.bench.executors", allowed);
        long until = System.nanoTime() + LONGEST_MS * 1_000_000;
        // The driver is among them.
        while (context.statusTracker().getExecutorInfos().length - 1 < wanted) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("not all of " + wanted + " executors came");
            }
            Thread.sleep(20);
        }
    }
}

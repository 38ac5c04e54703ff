package io.weir.bench;

import org.apache.spark.mllib.stat.Statistics;
import org.apache.spark.sql.SparkSession;

/** Pearson's correlation between columns. */
final class CorrelationJob extends DrawnJob {
    CorrelationJob() {
        super("correlation");
    }

    private static final int COLUMNS = 100;
    private static final int NUMBER_BYTES = 8;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        long rows = megabytes * 1_000_000L / NUMBER_BYTES / COLUMNS;
        double sum = 0;
        for (double entry : Statistics.corr(ComponentsJob.drawn(spark, 15, rows, COLUMNS, partitions).rdd(), "pearson").toArray()) {
            sum += entry;
        }
        return rounded(sum);
    }
}

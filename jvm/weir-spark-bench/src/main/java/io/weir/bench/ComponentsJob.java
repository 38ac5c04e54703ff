package io.weir.bench;

import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.mllib.linalg.Vector;
import org.apache.spark.mllib.linalg.Vectors;
import org.apache.spark.mllib.linalg.distributed.RowMatrix;
import org.apache.spark.sql.SparkSession;

/** Principal components of rows of numbers: each partition sums up its own, so that little is shuffled. */
final class ComponentsJob extends DrawnJob {
    ComponentsJob() {
        super("components");
    }

    private static final int COLUMNS = 100;
    private static final int NUMBER_BYTES = 8;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        RowMatrix rows = new RowMatrix(drawn(spark, 14, megabytes * 1_000_000L / NUMBER_BYTES / COLUMNS, COLUMNS, partitions).rdd());
        double explained = 0;
        for (double part : rows.computePrincipalComponentsAndExplainedVariance(3)._2.toArray()) {
            explained += part;
        }
        return rounded(explained * 100);
    }

    static JavaRDD<Vector> drawn(SparkSession spark, int kind, long rows, int columns, int partitions) {
        return Inputs.records(spark, rows, partitions, number -> {
            Numbers numbers = new Numbers(kind, number);
            double[] row = new double[columns];
            for (int at = 0; at < columns; at++) {
                row[at] = numbers.fraction() + (at == 0 ? 0 : row[at - 1] / 2);
            }
            return Vectors.dense(row);
        });
    }
}

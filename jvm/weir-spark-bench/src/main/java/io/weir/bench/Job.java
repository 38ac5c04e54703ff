package io.weir.bench;

import java.io.IOException;
import org.apache.spark.sql.SparkSession;

/** A job of {@link Jobs}. */
interface Job {
    /** Runs on the input that {@code prepare} wrote into a folder; a digest of the whole result. */
    long run(SparkSession spark, String folder, int partitions) throws IOException;

    /** Writes about so many megabytes of input into the folder, in so many files where it can be said. */
    void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException;

    /** Whether it is a query in SQL. */
    default boolean isSql() {
        return false;
    }
}

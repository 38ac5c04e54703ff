package io.weir.bench;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.SparkSession;

/**
 * A query of TPC-H over {@link TpchTables}, with the parameters of its validation run. Where a query keeps the first rows only, a
 * key at the end of its order says which.
 */
final class TpchJob implements Job {
    private final String query;

    TpchJob(String query) {
        this.query = query;
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) throws IOException {
        TpchTables.open(spark, folder);
        try (InputStream text = TpchJob.class.getResourceAsStream("tpch-" + query + ".sql")) {
            return Digest.ofRows(spark.sql(new String(text.readAllBytes(), StandardCharsets.UTF_8)).collectAsList());
        }
    }

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) {
        TpchTables.prepare(spark, folder, megabytes, partitions);
    }

    @Override
    public boolean isSql() {
        return true;
    }
}

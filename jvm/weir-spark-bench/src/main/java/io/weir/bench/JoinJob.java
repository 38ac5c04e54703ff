package io.weir.bench;

import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * Joins a table of sales to one of customers, both shuffled whole, and sums up by region. A tenth of the sales are of one
 * customer. All sums are of integers.
 */
final class JoinJob implements Job {
    private static final StructType SALES = StructType.fromDDL("customer BIGINT, amount BIGINT, note BINARY");
    private static final StructType CUSTOMERS = StructType.fromDDL("id BIGINT, region INT, note BINARY");
    private static final int NOTE_BYTES = 64;
    private static final int ROW_BYTES = 80;
    private static final int REGIONS = 1_000;

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) {
        long customers = megabytes * 1_000_000L / 3 / ROW_BYTES;
        spark.createDataFrame(Inputs.records(spark, 2 * customers, partitions, number -> {
            Numbers numbers = new Numbers(6, number);
            long customer = numbers.below(10) == 0 ? 0 : numbers.below(customers);
            return RowFactory.create(customer, numbers.below(1_000_000), numbers.bytes(NOTE_BYTES));
        }), SALES).write().mode("overwrite").parquet(folder + "/join/sales");
        spark.createDataFrame(Inputs.records(spark, customers, partitions, number -> {
            Numbers numbers = new Numbers(7, number);
            return RowFactory.create(number, (int) numbers.below(REGIONS), numbers.bytes(NOTE_BYTES));
        }), CUSTOMERS).write().mode("overwrite").parquet(folder + "/join/customers");
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) {
        spark.read().schema(SALES).parquet(folder + "/join/sales").createOrReplaceTempView("sales");
        spark.read().schema(CUSTOMERS).parquet(folder + "/join/customers").createOrReplaceTempView("customers");
        // The sum over both notes makes both go through the shuffles.
        return Digest.ofRows(spark.sql("SELECT region, COUNT(*), SUM(amount), SUM(CRC32(CONCAT(sales.note, customers.note)))"
                + " FROM sales JOIN customers ON customer = id GROUP BY region").collectAsList());
    }

    @Override
    public boolean isSql() {
        return true;
    }
}

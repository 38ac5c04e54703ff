package io.weir.bench;

import io.trino.tpch.CustomerGenerator;
import io.trino.tpch.Distributions;
import io.trino.tpch.LineItemGenerator;
import io.trino.tpch.NationGenerator;
import io.trino.tpch.OrderGenerator;
import io.trino.tpch.RegionGenerator;
import io.trino.tpch.SupplierGenerator;
import io.trino.tpch.TextPool;
import io.trino.tpch.TpchColumn;
import io.trino.tpch.TpchEntity;
import io.trino.tpch.TpchTable;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.LocalDate;
import java.util.Iterator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * The tables of TPC-H that the queries of {@link TpchJob} read, as Parquet. Rows are those of dbgen but for their comments, which
 * are from a smaller text: that of dbgen takes 300 MB of memory. Amounts are decimals, so that sums are exact.
 */
final class TpchTables {
    /** With this scale factor all tables together have about a megabyte. */
    private static final double SCALE_PER_MEGABYTE = 0.0038;
    private static final int TEXT_BYTES = 4_000_000;
    private static final List<String> NAMES = List.of("customer", "lineitem", "nation", "orders", "region", "supplier");

    private TpchTables() {}

    static void prepare(SparkSession spark, String folder, int megabytes, int partitions) {
        double scale = megabytes * SCALE_PER_MEGABYTE;
        for (String name : NAMES) {
            int parts = name.equals("nation") || name.equals("region") ? 1 : partitions;
            JavaRDD<Row> rows = Inputs.parts(spark, parts).flatMap(part -> rows(name, scale, part + 1, parts));
            spark.createDataFrame(rows, schema(name)).write().mode("overwrite").parquet(folder + "/tpch/" + name);
        }
    }

    /** Makes them known to queries. No file is read yet. */
    static void open(SparkSession spark, String folder) {
        for (String name : NAMES) {
            spark.read().schema(schema(name)).parquet(folder + "/tpch/" + name).createOrReplaceTempView(name);
        }
    }

    private static StructType schema(String name) {
        return StructType.fromDDL(TpchTable.getTable(name).getColumns().stream()
                .map(column -> column.getColumnName() + " " + type(column))
                .collect(Collectors.joining(", ")));
    }

    private static String type(TpchColumn<?> column) {
        switch (column.getType().getBase()) {
            case IDENTIFIER: return "BIGINT";
            case INTEGER: return "INT";
            case DATE: return "DATE";
            case DOUBLE: return "DECIMAL(15,2)";
            default: return "STRING";
        }
    }

    private static Iterator<Row> rows(String name, double scale, int part, int parts) {
        Distributions words = Distributions.getDefaultDistributions();
        TextPool text = Text.POOL;
        switch (name) {
            case "customer": return rows(TpchTable.CUSTOMER, new CustomerGenerator(scale, part, parts, words, text));
            case "lineitem": return rows(TpchTable.LINE_ITEM, new LineItemGenerator(scale, part, parts, words, text));
            case "nation": return rows(TpchTable.NATION, new NationGenerator(words, text));
            case "orders": return rows(TpchTable.ORDERS, new OrderGenerator(scale, part, parts, words, text));
            case "region": return rows(TpchTable.REGION, new RegionGenerator(words, text));
            case "supplier": return rows(TpchTable.SUPPLIER, new SupplierGenerator(scale, part, parts, words, text));
            default: throw new IllegalArgumentException(name);
        }
    }

    private static <E extends TpchEntity> Iterator<Row> rows(TpchTable<E> table, Iterable<E> entities) {
        List<TpchColumn<E>> columns = table.getColumns();
        return StreamSupport.stream(entities.spliterator(), false)
                .map(entity -> RowFactory.create(columns.stream().map(column -> value(column, entity)).toArray()))
                .iterator();
    }

    private static <E extends TpchEntity> Object value(TpchColumn<E> column, E entity) {
        switch (column.getType().getBase()) {
            case IDENTIFIER: return column.getIdentifier(entity);
            case INTEGER: return column.getInteger(entity);
            case DATE: return LocalDate.ofEpochDay(column.getDate(entity));
            case DOUBLE: return BigDecimal.valueOf(column.getDouble(entity)).setScale(2, RoundingMode.HALF_UP);
            default: return column.getString(entity);
        }
    }

    /** Made once in each JVM that makes rows. */
    private static final class Text {
        static final TextPool POOL = new TextPool(TEXT_BYTES, Distributions.getDefaultDistributions());
    }
}

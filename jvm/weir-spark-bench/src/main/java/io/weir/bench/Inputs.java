package io.weir.bench;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.function.LongFunction;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.SparkSession;

/** Writes inputs of jobs. What record has which number does not depend on how many files there are. */
final class Inputs {
    private Inputs() {}

    /** What makes a record of its number; sent to tasks. */
    interface Maker<T> extends LongFunction<T>, Serializable {}

    static JavaSparkContext context(SparkSession spark) {
        return JavaSparkContext.fromSparkContext(spark.sparkContext());
    }

    /** Numbers from 0 to partitions, each the one of its partition. */
    static JavaRDD<Integer> parts(SparkSession spark, int partitions) {
        List<Integer> parts = IntStream.range(0, partitions).boxed().collect(Collectors.toList());
        return context(spark).parallelize(parts, partitions);
    }

    static <T> JavaRDD<T> records(SparkSession spark, long records, int partitions, Maker<T> maker) {
        return parts(spark, partitions).flatMap(part -> part(records, part, partitions, maker));
    }

    /** Writes a file for each partition, of the records' bytes one after another. */
    static void write(SparkSession spark, String folder, long records, int partitions, Maker<byte[]> maker) throws IOException {
        remove(Paths.get(folder));
        parts(spark, partitions).foreach(part -> writePart(Paths.get(folder), part, part(records, part, partitions, maker)));
    }

    private static <T> Iterator<T> part(long records, int part, int partitions, Maker<T> maker) {
        return LongStream.range(records * part / partitions, records * (part + 1) / partitions).mapToObj(maker).iterator();
    }

    private static void writePart(Path folder, int part, Iterator<byte[]> records) throws IOException {
        Files.createDirectories(folder);
        // Of two attempts at a task each writes a file of its own, and both have the same bytes. Spark reads no file with a dot.
        Path written = folder.resolve(".part-" + part + "-" + TaskContext.get().taskAttemptId());
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(written), 1 << 16)) {
            while (records.hasNext()) {
                out.write(records.next());
            }
        }
        Files.move(written, folder.resolve(String.format("part-%05d", part)), StandardCopyOption.ATOMIC_MOVE);
    }

    private static void remove(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return;
        }
        try (Stream<Path> found = Files.walk(folder)) {
            found.sorted(Comparator.reverseOrder()).forEach(path -> {
                try {
                    Files.delete(path);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            });
        }
    }
}

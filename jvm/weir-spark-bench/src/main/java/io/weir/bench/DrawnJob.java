package io.weir.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;

/** A job whose first stage draws its input: what is prepared is how much that is. */
abstract class DrawnJob implements Job {
    private final String name;

    DrawnJob(String name) {
        this.name = name;
    }

    @Override
    public final void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException {
        Files.createDirectories(Path.of(folder));
        Files.writeString(size(folder), Integer.toString(megabytes));
    }

    private Path size(String folder) {
        return Path.of(folder, name + ".megabytes");
    }

    @Override
    public final long run(SparkSession spark, String folder, int partitions) throws IOException {
        return run(spark, Integer.parseInt(Files.readString(size(folder)).trim()), partitions);
    }

    /** Draws about so many megabytes, and returns a digest of the result. */
    abstract long run(SparkSession spark, int megabytes, int partitions);

    /** Of a result that depends on the order of sums in its last digits. */
    static long rounded(double value) {
        return Digest.mix(Math.round(value * 100));
    }
}

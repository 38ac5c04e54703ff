package io.weir.bench;

import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.mllib.linalg.Matrices;
import org.apache.spark.mllib.linalg.Matrix;
import org.apache.spark.mllib.linalg.distributed.BlockMatrix;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/** Multiplies two matrices in blocks: each block goes to all partitions that need it. Entries are small integers, so that sums are exact. */
final class MatricesJob extends DrawnJob {
    MatricesJob() {
        super("matrices");
    }

    private static final int BLOCK = 128;
    private static final int ENTRY_BYTES = 8;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        // Two square ones.
        int blocks = Math.max(2, (int) Math.sqrt(megabytes * 1_000_000.0 / 2 / ENTRY_BYTES / BLOCK / BLOCK));
        BlockMatrix product = drawn(spark, 12, blocks, partitions).multiply(drawn(spark, 13, blocks, partitions));
        return Digest.ofHashes(product.blocks().toJavaRDD().map(MatricesJob::hash));
    }

    private static BlockMatrix drawn(SparkSession spark, int kind, int blocks, int partitions) {
        JavaRDD<Tuple2<Tuple2<Object, Object>, Matrix>> drawn = Inputs.records(spark, (long) blocks * blocks, partitions, number -> {
            Numbers numbers = new Numbers(kind, number);
            double[] entries = new double[BLOCK * BLOCK];
            for (int at = 0; at < entries.length; at++) {
                entries[at] = numbers.below(100);
            }
            Tuple2<Object, Object> place = new Tuple2<>((int) (number / blocks), (int) (number % blocks));
            return new Tuple2<>(place, Matrices.dense(BLOCK, BLOCK, entries));
        });
        return new BlockMatrix(drawn.rdd(), BLOCK, BLOCK);
    }

    private static long hash(Tuple2<Tuple2<Object, Object>, Matrix> block) {
        // By its methods: fields of a pair that Scala made of two numbers are others.
        long hash = Digest.of((Integer) block._1._1(), (Integer) block._1._2());
        for (double entry : block._2.toArray()) {
            hash = Digest.of(hash, (long) entry);
        }
        return hash;
    }
}

package io.weir.bench;

import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.Partitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Sorts records as TeraSort has them: a key of 10 bytes and a value of 90, all random. All of the input is shuffled, once. The
 * order of the result is checked, within partitions and across them. Skewed, the bounds of partitions are not drawn from the keys but
 * lie evenly, and lower keys are more frequent: of N partitions the first has N^-2/3 of all records, the others less and less.
 */
final class SortJob implements Job {
    private static final int KEY_BYTES = 10;
    private static final int RECORD_BYTES = 100;
    private static final double SKEW = 1.5;

    private final boolean skewed;

    SortJob(boolean skewed) {
        this.skewed = skewed;
    }

    private String input(String folder) {
        return folder + (skewed ? "/skewed-sort" : "/sort");
    }

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException {
        Inputs.Maker<byte[]> maker = skewed ? SortJob::skewedRecord : number -> new Numbers(1, number).bytes(RECORD_BYTES);
        Inputs.write(spark, input(folder), megabytes * 1_000_000L / RECORD_BYTES, partitions, maker);
    }

    private static byte[] skewedRecord(long number) {
        Numbers numbers = new Numbers(7, number);
        long lead = (long) (Math.pow(numbers.fraction(), SKEW) * (1L << Integer.SIZE));
        byte[] record = numbers.bytes(RECORD_BYTES);
        ByteBuffer.wrap(record).putInt((int) lead);
        return record;
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) {
        JavaPairRDD<byte[], byte[]> records = Inputs.context(spark).binaryRecords(input(folder), RECORD_BYTES)
                .mapToPair(record -> new Tuple2<>(Arrays.copyOf(record, KEY_BYTES),
                        Arrays.copyOfRange(record, KEY_BYTES, RECORD_BYTES)));
        JavaPairRDD<byte[], byte[]> ordered = skewed
                ? records.repartitionAndSortWithinPartitions(new EvenBounds(partitions), new Bytewise())
                : records.sortByKey(new Bytewise(), true, partitions);
        List<Sorted> sorted = ordered
                .mapPartitions(part -> List.of(new Sorted(part)).iterator())
                .collect();
        long digest = 0;
        byte[] last = null;
        for (Sorted part : sorted) {
            if (part.first != null) {
                check(last, part.first);
                last = part.last;
            }
            digest += part.digest;
        }
        return digest;
    }

    private static void check(byte[] before, byte[] after) {
        if (before != null && Arrays.compareUnsigned(before, after) > 0) {
            throw new IllegalStateException("the result is not sorted");
        }
    }

    /** By the first four bytes of a key. */
    private static final class EvenBounds extends Partitioner {
        private static final long serialVersionUID = 1;

        private final int partitions;

        EvenBounds(int partitions) {
            this.partitions = partitions;
        }

        @Override
        public int numPartitions() {
            return partitions;
        }

        @Override
        public int getPartition(Object key) {
            long lead = ByteBuffer.wrap((byte[]) key).getInt() & 0xffff_ffffL;
            return (int) (lead * partitions >>> Integer.SIZE);
        }
    }

    private static final class Bytewise implements Comparator<byte[]>, Serializable {
        private static final long serialVersionUID = 1;

        @Override
        public int compare(byte[] one, byte[] other) {
            return Arrays.compareUnsigned(one, other);
        }
    }

    /** A partition of the result: its first key and its last, and a sum over its records. */
    private static final class Sorted implements Serializable {
        private static final long serialVersionUID = 1;

        private byte[] first;
        private byte[] last;
        private long digest;

        Sorted(Iterator<Tuple2<byte[], byte[]>> records) {
            while (records.hasNext()) {
                Tuple2<byte[], byte[]> record = records.next();
                check(last, record._1);
                first = first == null ? record._1 : first;
                last = record._1;
                digest += Digest.of(Digest.of(record._1), Digest.of(record._2));
            }
        }
    }
}

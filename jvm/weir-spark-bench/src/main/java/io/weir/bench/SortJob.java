package io.weir.bench;

import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Sorts records as TeraSort has them: a key of 10 bytes and a value of 90, all random. All of the input is shuffled, once. The
 * order of the result is checked, within partitions and across them.
 */
final class SortJob implements Job {
    private static final int KEY_BYTES = 10;
    private static final int RECORD_BYTES = 100;

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException {
        Inputs.write(spark, folder + "/sort", megabytes * 1_000_000L / RECORD_BYTES, partitions,
                number -> new Numbers(1, number).bytes(RECORD_BYTES));
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) {
        List<Sorted> sorted = Inputs.context(spark).binaryRecords(folder + "/sort", RECORD_BYTES)
                .mapToPair(record -> new Tuple2<>(Arrays.copyOf(record, KEY_BYTES),
                        Arrays.copyOfRange(record, KEY_BYTES, RECORD_BYTES)))
                .sortByKey(new Bytewise(), true, partitions)
                .mapPartitions(records -> List.of(new Sorted(records)).iterator())
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

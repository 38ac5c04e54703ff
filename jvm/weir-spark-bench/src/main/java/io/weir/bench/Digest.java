package io.weir.bench;

import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Row;

/** Hashes of 64 bits. A digest of a result is the sum of the hashes of its rows, which is the same in any order. */
final class Digest {
    // FNV-1a.
    private static final long BASIS = 0xcbf29ce484222325L;
    private static final long PRIME = 0x100000001b3L;

    private Digest() {}

    static long of(byte[] bytes) {
        long hash = BASIS;
        for (byte one : bytes) {
            hash = (hash ^ (one & 0xff)) * PRIME;
        }
        return mix(hash);
    }

    static long of(String text) {
        long hash = BASIS;
        for (int at = 0; at < text.length(); at++) {
            hash = (hash ^ text.charAt(at)) * PRIME;
        }
        return mix(hash);
    }

    /** Of a pair; which is first matters. */
    static long of(long first, long second) {
        return mix(mix(first) * PRIME + second);
    }

    static long ofRows(List<Row> rows) {
        return rows.stream().mapToLong(row -> of(row.mkString("|"))).sum();
    }

    static long ofHashes(JavaRDD<Long> hashes) {
        // Each task sums up its own, so that the driver has a number from each.
        return hashes.mapPartitions(some -> {
            long sum = 0;
            while (some.hasNext()) {
                sum += some.next();
            }
            return List.of(sum).iterator();
        }).reduce(Long::sum);
    }

    /** The finish of SplitMix64: each bit of the result depends on each bit of the value. */
    static long mix(long value) {
        long mixed = (value ^ value >>> 30) * 0xbf58476d1ce4e5b9L;
        mixed = (mixed ^ mixed >>> 27) * 0x94d049bb133111ebL;
        return mixed ^ mixed >>> 31;
    }
}

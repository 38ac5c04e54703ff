package io.weir.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.HashPartitioner;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.storage.StorageLevel;
import scala.Tuple2;

/**
 * Ranks pages by the links between them, in three iterations. All links are shuffled once, and then in each iteration what each
 * map task has for each page that is linked to. Names of pages are random, so they do not compress well. Both the links from a
 * page and those to a page follow power laws.
 *
 * <p>Ranks are integers, in units of 1e-9 of the mean, and each division rounds down: sums are the same in any order.
 */
final class PageRankJob implements Job {
    private static final int ITERATIONS = 3;
    private static final long ONE = 1_000_000_000;
    private static final long LEAST = ONE * 15 / 100;
    private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    private static final int NAME_LETTERS = 64;
    private static final int MEAN_LINE_BYTES = 550;
    private static final int MOST_LINKS = 1_000;

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException {
        long pages = megabytes * 1_000_000L / MEAN_LINE_BYTES;
        Inputs.write(spark, folder + "/pagerank", pages, partitions, page -> line(page, pages));
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) {
        HashPartitioner partitioner = new HashPartitioner(partitions);
        JavaPairRDD<String, String[]> links = Inputs.context(spark).textFile(folder + "/pagerank", partitions)
                .mapToPair(PageRankJob::links)
                .partitionBy(partitioner)
                // Were they dropped for want of memory, they would be shuffled again.
                .persist(StorageLevel.MEMORY_AND_DISK());
        JavaPairRDD<String, Long> ranks = links.mapValues(targets -> ONE);
        for (int iteration = 0; iteration < ITERATIONS; iteration++) {
            ranks = links.leftOuterJoin(ranks, partitioner)
                    .flatMapToPair(page -> shares(page._2._1, page._2._2.orElse(LEAST)).iterator())
                    .reduceByKey(partitioner, Long::sum)
                    .mapValues(sum -> LEAST + sum * 85 / 100);
        }
        return Digest.ofHashes(ranks.map(page -> Digest.of(Digest.of(page._1), page._2)));
    }

    private static Tuple2<String, String[]> links(String line) {
        String[] names = line.split(" ");
        return new Tuple2<>(names[0], Arrays.copyOfRange(names, 1, names.length));
    }

    private static List<Tuple2<String, Long>> shares(String[] targets, long rank) {
        List<Tuple2<String, Long>> shares = new ArrayList<>(targets.length);
        for (String target : targets) {
            shares.add(new Tuple2<>(target, rank / targets.length));
        }
        return shares;
    }

    private static byte[] line(long page, long pages) {
        Numbers numbers = new Numbers(4, page);
        // A density that falls with the cube of the number of links, 8 in the mean.
        long count = Math.min(MOST_LINKS, (long) (4 / Math.sqrt(1 - numbers.fraction())));
        StringBuilder line = new StringBuilder(name(page));
        for (long link = 0; link < count; link++) {
            // The first pages have the most links to them.
            double fraction = numbers.fraction();
            line.append(' ').append(name((long) (pages * fraction * fraction)));
        }
        return line.append('\n').toString().getBytes(StandardCharsets.US_ASCII);
    }

    private static String name(long page) {
        return new Numbers(5, page).text(LETTERS, NAME_LETTERS);
    }
}

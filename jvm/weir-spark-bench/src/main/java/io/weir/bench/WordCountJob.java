package io.weir.bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.SparkSession;
import scala.Tuple2;

/**
 * Counts words of a text. Map tasks sum up before they write, but there are so many different words that a good part of the text
 * is still shuffled.
 */
final class WordCountJob implements Job {
    private static final String LETTERS = "abcdefghijklmnopqrstuvwxyz";
    private static final int LINE_WORDS = 10;
    private static final int MEAN_LINE_BYTES = 205;
    private static final int WORDS_PER_MEGABYTE = 10_000;

    @Override
    public void prepare(SparkSession spark, String folder, int megabytes, int partitions) throws IOException {
        long vocabulary = (long) megabytes * WORDS_PER_MEGABYTE;
        Inputs.write(spark, folder + "/wordcount", megabytes * 1_000_000L / MEAN_LINE_BYTES, partitions,
                number -> line(number, vocabulary));
    }

    @Override
    public long run(SparkSession spark, String folder, int partitions) {
        return Digest.ofHashes(Inputs.context(spark).textFile(folder + "/wordcount", partitions)
                .flatMap(line -> Arrays.asList(line.split(" ")).iterator())
                .mapToPair(word -> new Tuple2<>(word, 1L))
                .reduceByKey(Long::sum, partitions)
                .map(count -> Digest.of(Digest.of(count._1), count._2)));
    }

    private static byte[] line(long number, long vocabulary) {
        Numbers numbers = new Numbers(2, number);
        StringBuilder line = new StringBuilder();
        for (int word = 0; word < LINE_WORDS; word++) {
            // Some words are more frequent than others.
            Numbers spelling = new Numbers(3, (long) (vocabulary * numbers.fraction() * numbers.fraction()));
            line.append(spelling.text(LETTERS, 8 + (int) spelling.below(24))).append(word + 1 < LINE_WORDS ? ' ' : '\n');
        }
        return line.toString().getBytes(StandardCharsets.US_ASCII);
    }
}

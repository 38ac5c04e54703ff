package io.weir.bench;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.mllib.feature.Word2Vec;
import org.apache.spark.mllib.feature.Word2VecModel;
import org.apache.spark.sql.SparkSession;
import scala.collection.JavaConverters;

/** Vectors of words: what is digested is which words there are. */
final class WordVectorsJob extends DrawnJob {
    WordVectorsJob() {
        super("word2vec");
    }

    private static final int SENTENCE_WORDS = 20;
    private static final int WORD_BYTES = 7;
    private static final int VOCABULARY = 2_000;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        long sentences = megabytes * 1_000_000L / WORD_BYTES / SENTENCE_WORDS;
        JavaRDD<List<String>> drawn = Inputs.records(spark, sentences, partitions, number -> {
            Numbers numbers = new Numbers(16, number);
            List<String> words = new ArrayList<>();
            for (int word = 0; word < SENTENCE_WORDS; word++) {
                words.add("w" + (int) (VOCABULARY * numbers.fraction() * numbers.fraction()));
            }
            return words;
        });
        Word2VecModel model = new Word2Vec().setVectorSize(50).setSeed(1).setNumPartitions(partitions).setMinCount(5).fit(drawn);
        return JavaConverters.mapAsJavaMap(model.getVectors()).keySet().stream().mapToLong(Digest::of).sum();
    }
}

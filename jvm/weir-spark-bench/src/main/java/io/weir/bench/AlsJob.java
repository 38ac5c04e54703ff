package io.weir.bench;

import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.mllib.recommendation.ALS;
import org.apache.spark.mllib.recommendation.MatrixFactorizationModel;
import org.apache.spark.mllib.recommendation.Rating;
import org.apache.spark.sql.SparkSession;

/** Alternating least squares: factors of users and products go between the two in every half of an iteration. */
final class AlsJob extends DrawnJob {
    AlsJob() {
        super("als");
    }

    private static final int RANK = 10;
    private static final int ITERATIONS = 5;
    private static final int RATING_BYTES = 16;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        long ratings = megabytes * 1_000_000L / RATING_BYTES;
        long users = Math.max(10, ratings / 20);
        long products = Math.max(10, ratings / 50);
        JavaRDD<Rating> drawn = Inputs.records(spark, ratings, partitions, number -> {
            Numbers numbers = new Numbers(11, number);
            return new Rating((int) numbers.below(users), (int) numbers.below(products), 1 + numbers.below(5));
        });
        MatrixFactorizationModel model = ALS.train(drawn.rdd(), RANK, ITERATIONS, 0.1, partitions, 1);
        return Digest.of(model.userFeatures().count(), model.productFeatures().count());
    }
}

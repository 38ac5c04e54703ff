package io.weir.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.mllib.fpm.FPGrowth;
import org.apache.spark.mllib.fpm.FPGrowthModel;
import org.apache.spark.sql.SparkSession;

/** Frequent sets of items, by trees of patterns. */
final class ItemSetsJob extends DrawnJob {
    ItemSetsJob() {
        super("itemsets");
    }

    private static final int ITEM_BYTES = 4;
    private static final int ITEMS = 20;
    private static final int KINDS = 500;

    @Override
    long run(SparkSession spark, int megabytes, int partitions) {
        JavaRDD<List<Integer>> drawn = Inputs.records(spark, megabytes * 1_000_000L / ITEM_BYTES / ITEMS, partitions, number -> {
            Numbers numbers = new Numbers(17, number);
            TreeSet<Integer> items = new TreeSet<>();
            for (int item = 0; item < ITEMS; item++) {
                items.add((int) (KINDS * numbers.fraction() * numbers.fraction()));
            }
            return new ArrayList<>(items);
        });
        FPGrowthModel<Integer> model = new FPGrowth().setMinSupport(0.02).setNumPartitions(partitions).run(drawn);
        return Digest.ofHashes(model.freqItemsets().toJavaRDD().map(ItemSetsJob::hash));
    }

    private static long hash(FPGrowth.FreqItemset<Integer> found) {
        long hash = new TreeSet<>(found.javaItems()).stream().mapToLong(Integer::longValue).reduce(0, Digest::of);
        return Digest.of(hash, found.freq());
    }
}

package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import scala.Tuple2;
import weir.v1.Control;

/** A Spark within this process, with the plugin, and what the coordinator hears of its jobs. There is no agent. */
@Timeout(value = 120, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RealJobsTest {
    @TempDir
    Path folder;

    private FakeCoordinator coordinator;

    @BeforeEach
    void start() throws Exception {
        coordinator = new FakeCoordinator();
    }

    @AfterEach
    void stop() throws Exception {
        coordinator.close();
    }

    private SparkConf conf() {
        return new SparkConf(false).setMaster("local[2]").setAppName("test").set("spark.ui.enabled", "false")
                .set("spark.local.dir", folder.toString()).set("spark.driver.host", "127.0.0.1")
                .set("spark.driver.bindAddress", "127.0.0.1").set("spark.plugins", WeirPlugin.class.getName())
                .set(Settings.COORDINATOR, coordinator.address()).set(Settings.AGENT, folder.resolve("none").toString());
    }

    private static JavaPairRDD<Integer, Integer> numbers(JavaSparkContext spark) {
        return spark.parallelize(IntStream.range(0, 100).boxed().collect(Collectors.toList()), 4)
                .mapToPair(number -> new Tuple2<>(number % 10, number));
    }

    /** One more shuffle. */
    private static JavaPairRDD<Integer, Integer> summed(JavaPairRDD<Integer, Integer> pairs, int partitions) {
        return pairs.reduceByKey(Integer::sum, partitions).mapToPair(pair -> new Tuple2<>(pair._2 % 7, pair._1));
    }

    @Test
    void chains_and_joins_are_jobs_and_a_shuffle_of_an_earlier_one_is_nobody_s_parent() throws Exception {
        try (JavaSparkContext spark = new JavaSparkContext(conf())) {
            JavaPairRDD<Integer, Integer> one = summed(numbers(spark), 3);
            JavaPairRDD<Integer, Integer> two = summed(one, 4);
            assertTrue(summed(two, 5).count() > 0);
            List<Control.CoflowOptions> chain = coordinator.await(3);
            assertEquals(3, chain.size());
            assertEquals(List.of(), chain.get(0).getParentsList());
            assertEquals(List.of(1L), chain.get(1).getParentsList());
            assertEquals(List.of(2L), chain.get(2).getParentsList());
            assertEquals(List.of(0L, 1L, 1L), chain.stream().map(Control.CoflowOptions::getJob).collect(Collectors.toList()));
            assertEquals(1, chain.get(0).getWeight());
            // The shuffles are there: all stages but the last are skipped.
            assertTrue(two.join(summed(numbers(spark), 6)).count() >= 0);
            List<Control.CoflowOptions> all = coordinator.await(5);
            for (Control.CoflowOptions options : all.subList(3, all.size())) {
                assertTrue(options.getJob() == 0 || options.getJob() == 4, "" + options);
                assertTrue(options.getParentsList().stream().allMatch(parent -> parent >= 4), "" + options);
            }
            assertEquals(0, all.get(3).getJob());
        }
        for (long coflow = 1; coflow <= coordinator.registered.size(); coflow++) {
            coordinator.awaitEnd(coflow);
        }
    }

    @Test
    void pools_of_the_allocation_file_are_tenants_with_their_weights_and_deadlines_are_the_thread_s() throws Exception {
        Path file = folder.resolve("pools.xml");
        Files.writeString(file, "<allocations><pool name=\"gold\"><schedulingMode>FAIR</schedulingMode><weight>3</weight>"
                + "<minShare>0</minShare></pool></allocations>");
        SparkConf conf = conf().set("spark.scheduler.mode", "FAIR").set("spark.scheduler.allocation.file", file.toUri().toString())
                .set("spark.weir.pool.silver.weight", "0.5");
        Map<String, Double> weights = Map.of("gold", 3.0, "silver", 0.5, "default", 1.0, "unknown", 1.0);
        try (JavaSparkContext spark = new JavaSparkContext(conf)) {
            int count = 0;
            for (String pool : new String[] {"gold", "silver", null, "unknown"}) {
                spark.setLocalProperty("spark.scheduler.pool", pool);
                spark.setLocalProperty("spark.weir.deadline", pool == null ? null : "20s");
                assertTrue(summed(numbers(spark), 3).count() > 0);
                List<Control.CoflowOptions> all = coordinator.await(++count);
                Control.CoflowOptions last = all.get(all.size() - 1);
                assertEquals(pool == null ? "default" : pool, last.getTenant());
                assertEquals(weights.get(last.getTenant()), last.getWeight());
                assertEquals(pool == null ? 0 : 20_000, last.getDeadlineMs());
            }
        }
    }

    @Test
    void jobs_go_on_where_the_coordinator_refuses_all_or_goes() throws Exception {
        coordinator.refuses = options -> true;
        try (JavaSparkContext spark = new JavaSparkContext(conf())) {
            assertTrue(summed(summed(numbers(spark), 3), 4).count() > 0);
            coordinator.close();
            assertTrue(summed(summed(numbers(spark), 3), 4).count() > 0);
        }
    }
}

package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.time.Duration;
import java.util.OptionalInt;
import java.util.Properties;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Pools, weights and deadlines, and what is none. */
class TermsTest {
    private final SparkConf conf = new SparkConf(false);
    private Terms.Pools pools = pool -> OptionalInt.empty();

    private Terms.Reader reader() {
        return new Terms.Reader(conf, pool -> pools.weight(pool));
    }

    private static Properties properties(String... pairs) {
        Properties properties = new Properties();
        for (int at = 0; at < pairs.length; at += 2) {
            properties.setProperty(pairs[at], pairs[at + 1]);
        }
        return properties;
    }

    private static Properties pool(String name) {
        return properties("spark.scheduler.pool", name);
    }

    @Test
    void a_job_without_properties_has_no_tenant_no_deadline_and_weight_1() {
        Terms.Reader reader = reader();
        for (Properties none : new Properties[] {null, new Properties(), pool(" "), properties("spark.weir.deadline", "")}) {
            Terms terms = reader.of(none);
            assertEquals("", terms.tenant);
            assertEquals(1, terms.weight);
            assertNull(terms.deadline);
        }
        assertEquals(0, reader.said());
    }

    @Test
    void a_pool_is_the_tenant_and_its_weight_is_the_setting_s_or_else_spark_s() {
        conf.set("spark.weir.pool.gold.weight", " 2.5 ");
        pools = pool -> pool.equals("silver") ? OptionalInt.of(3) : pool.equals("gold") ? OptionalInt.of(9) : OptionalInt.empty();
        Terms.Reader reader = reader();
        assertEquals("gold", reader.of(pool("gold")).tenant);
        assertEquals(2.5, reader.of(pool("gold")).weight);
        assertEquals(3, reader.of(pool("silver")).weight);
        assertEquals(1, reader.of(pool("a pool of  nobody's")).weight);
        assertEquals("a pool of  nobody's", reader.of(pool("a pool of  nobody's")).tenant);
        assertEquals(0, reader.said());
    }

    @Test
    void under_fair_scheduling_a_job_without_a_pool_is_in_the_default_one() {
        pools = pool -> OptionalInt.of(pool.equals("default") ? 4 : 1);
        assertEquals("", reader().of(null).tenant);
        conf.set("spark.scheduler.mode", "fair");
        assertEquals("default", reader().of(null).tenant);
        assertEquals(4, reader().of(null).weight);
    }

    @ParameterizedTest
    @ValueSource(strings = {"0", "-1", "NaN", "Infinity", "-Infinity", "1e300", "1000001", "heavy", "1,5", "0x", "--", "1 2"})
    void a_weight_that_is_none_counts_as_1_and_is_said_once(String weight) {
        conf.set("spark.weir.pool.p.weight", weight);
        Terms.Reader reader = reader();
        for (int time = 0; time < 3; time++) {
            assertEquals(1, reader.of(pool("p")).weight);
        }
        assertEquals(1, reader.said());
    }

    @Test
    void pools_of_spark_that_have_no_weight_or_throw_count_as_1() {
        for (int weight : new int[] {0, -3, Integer.MIN_VALUE, Integer.MAX_VALUE}) {
            pools = pool -> OptionalInt.of(weight);
            Terms.Reader reader = reader();
            assertEquals(1, reader.of(pool("p")).weight);
            assertEquals(1, reader.said());
        }
        pools = pool -> {
            throw new IllegalStateException("the context was stopped");
        };
        assertEquals(1, reader().of(pool("p")).weight);
        pools = pool -> {
            throw new NoSuchMethodError("getPoolForName");
        };
        assertEquals(1, reader().of(pool("p")).weight);
    }

    @Test
    void deadlines_are_times_in_the_words_of_spark() {
        Terms.Reader reader = reader();
        Object[][] times = {{"30s", 30_000L}, {"2m", 120_000L}, {" 5min ", 300_000L}, {"1h", 3_600_000L}, {"250", 250L}, {"1ms", 1L},
            {"365d", 31_536_000_000L}};
        for (Object[] time : times) {
            assertEquals(Duration.ofMillis((long) time[1]), reader.of(properties("spark.weir.deadline", (String) time[0])).deadline);
        }
        assertEquals(0, reader.said());
    }

    @ParameterizedTest
    @ValueSource(strings = {"soon", "0", "0s", "-30s", "1.5s", "366d", "9223372036854775807d", "99999999999999999999s", "30 s s", "10us", "∞"})
    void a_deadline_that_is_none_is_said_once(String text) {
        Terms.Reader reader = reader();
        for (int time = 0; time < 3; time++) {
            assertNull(reader.of(properties("spark.weir.deadline", text)).deadline);
        }
        assertEquals(1, reader.said());
    }

    @Test
    void a_name_that_no_coordinator_takes_is_no_tenant_and_what_is_said_is_bounded() {
        assertEquals("é".repeat(512), reader().of(pool("é".repeat(512))).tenant);
        Terms.Reader reader = reader();
        assertEquals("", reader.of(pool("é".repeat(512) + "x")).tenant);
        assertEquals(1, reader.said());
        for (int number = 0; number < 10_000; number++) {
            reader.of(properties("spark.weir.deadline", "never " + number));
        }
        assertEquals(100, reader.said());
    }
}

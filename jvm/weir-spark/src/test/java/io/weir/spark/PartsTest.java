package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.Store;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The small parts. */
class PartsTest {
    private static final Store STORE = new Store("app-1", "1", new byte[16]);
    private static final InetSocketAddress ONE = new InetSocketAddress("127.0.0.1", 1);
    private static final InetSocketAddress OTHER = new InetSocketAddress("127.0.0.1", 2);
    private static final long SECOND = 1_000_000_000L;

    @Test
    void names_of_shuffle_blocks_and_of_batches_of_them_are_taken_apart() {
        ShuffleBlocks blocks = ShuffleBlocks.parse(new String[] {"shuffle_0_1_2", "shuffle_0_9223372036854775807_0_200"});
        assertEquals(2, blocks.size());
        assertEquals("shuffle_0_9223372036854775807_0_200", blocks.name(1));
        List<ShuffleBlocks.Part> parts = blocks.gathers(STORE, 7, 3, 0);
        assertEquals(1, parts.size());
        assertEquals(0, parts.get(0).first);
        assertEquals(2, parts.get(0).gather.size());
        assertNotNull(ShuffleBlocks.parse(new String[] {"shuffle_2147483647_0_2147483646"}));
        assertEquals(0, ShuffleBlocks.parse(new String[0]).gathers(STORE, 7, 3, 0).size());
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", "_", "shuffle", "shuffle_", "shuffle_0_1", "shuffle_0_1_2_", "shuffle_0_1_2_3_4", "shuffle_0_1_2_2", "shuffle_0_1_3_2",
        "shuffle_-1_1_2", "shuffle_0_1_-2", "shuffle_0_1_2147483647", "shuffle_2147483648_1_2", "shuffle_0_9223372036854775808_2",
        "shuffle_a_1_2", "shuffle__1_2", "shuffle_0_0_0.data", "shuffle_0_0_0.index", "rdd_0_1", "broadcast_0", "broadcast_0_piece0",
        "shuffleChunk_0_0_0_0", "shuffleMerged_app_0_0_0", "shuffleMerged_0_0_0_0", "shufflePush_0_0_0_0", "taskresult_1", "Shuffle_0_1_2",
    })
    void any_other_name_makes_all_of_them_somebody_elses(String name) {
        assertNull(ShuffleBlocks.parse(new String[] {name}));
        assertNull(ShuffleBlocks.parse(new String[] {"shuffle_0_1_2", name}));
    }

    @Test
    void gathers_have_at_most_so_many_ranges_and_one_shuffle_each() {
        assertEquals(List.of("0+1024"), parts(1_024));
        assertEquals(List.of("0+1024", "1024+1"), parts(1_025));
        assertEquals(List.of("0+1024", "1024+1024", "2048+452"), parts(2_500));
        assertEquals(List.of("0+3", "3+1", "4+1024", "1028+1"), parts(3, 1, 1_025));
        assertEquals(List.of("0+1024", "1024+1"), parts(1_024, 1));
    }

    /** Blocks of shuffle 0, then of shuffle 1, ...: which gathers become of them. */
    private static List<String> parts(int... counts) {
        List<String> names = new ArrayList<>();
        for (int shuffle = 0; shuffle < counts.length; shuffle++) {
            int of = shuffle;
            IntStream.range(0, counts[shuffle]).forEach(map -> names.add("shuffle_" + of + "_" + map + "_0"));
        }
        List<String> parts = new ArrayList<>();
        for (ShuffleBlocks.Part part : ShuffleBlocks.parse(names.toArray(new String[0])).gathers(STORE, 7, 3, 0)) {
            parts.add(part.first + "+" + part.gather.size());
        }
        return parts;
    }

    @Test
    void an_agent_that_fails_rests_twice_as_long_each_time_up_to_a_bound() {
        // Times of the clock may be anything, also about to overflow.
        for (long begin : new long[] {0, -5, Long.MAX_VALUE - 10 * SECOND}) {
            Breaker<InetSocketAddress> breaker = new Breaker<>();
            long now = begin;
            assertTrue(breaker.lets(ONE, now));
            long pause = Breaker.FIRST_PAUSE_NANOS;
            for (int time = 0; time < 10; time++) {
                breaker.failed(ONE, now);
                assertFalse(breaker.lets(ONE, now));
                assertTrue(breaker.lets(OTHER, now));
                assertFalse(breaker.lets(ONE, now + pause - 1));
                assertTrue(breaker.lets(ONE, now + pause));
                now += pause;
                pause = Math.min(2 * pause, Breaker.LONGEST_PAUSE_NANOS);
            }
            assertEquals(60 * SECOND, pause);
        }
    }

    @Test
    void failures_at_the_same_time_count_once_and_a_success_makes_good() {
        Breaker<InetSocketAddress> breaker = new Breaker<>();
        for (int time = 0; time < 100; time++) {
            breaker.failed(ONE, time);
        }
        assertFalse(breaker.lets(ONE, SECOND - 1));
        assertTrue(breaker.lets(ONE, SECOND));
        breaker.failed(ONE, SECOND);
        assertFalse(breaker.lets(ONE, 3 * SECOND - 1));
        breaker.succeeded(ONE);
        breaker.succeeded(OTHER);
        assertTrue(breaker.lets(ONE, SECOND));
        breaker.failed(ONE, SECOND);
        assertTrue(breaker.lets(ONE, 2 * SECOND), "it begins anew");
    }

    @Test
    void agents_are_told_of_in_turn_each_time_they_have_another_address() {
        Agents agents = new Agents();
        assertEquals("0", agents.from(0));
        agents.add("an executor", "h:1");
        agents.add("2", "h:2");
        agents.add("an executor", "h:1");
        assertEquals("2\nh:1 an executor\nh:2 2", agents.from(0));
        assertEquals("2", agents.from(2));
        agents.add("an executor", "h:3");
        assertEquals("3\nh:3 an executor", agents.from(2));
        assertEquals("h:3", agents.of("an executor"));
        assertEquals("", agents.of("3"));
        for (int at = 0; at < 2_500; at++) {
            agents.add("more " + at, "h:4");
        }
        assertTrue(agents.from(3).startsWith("1003\nh:4 more 0\n"));
        assertEquals(501, agents.from(2_003).split("\n").length);
        for (int place : new int[] {2_503, Integer.MAX_VALUE}) {
            assertEquals("2503", agents.from(place));
        }
        assertEquals(1_001, agents.from(-1).split("\n").length);
    }

    @Test
    void messages_come_apart_as_they_were_made() {
        List<String> heard = new ArrayList<>();
        Messages.Handler handler = new Messages.Handler() {
            @Override
            public long coflow(int stage, int attempt) {
                heard.add("coflow " + stage + "/" + attempt);
                return Long.MIN_VALUE;
            }

            @Override
            public long known(int stage, int attempt) {
                heard.add("known " + stage + "/" + attempt);
                return Long.MAX_VALUE;
            }

            @Override
            public String where(String executor) {
                heard.add("where " + executor);
                return "h:1";
            }

            @Override
            public String agents(int place) {
                heard.add("agents " + place);
                return "8";
            }

            @Override
            public void attached(String executor, String address) {
                heard.add("attached " + executor + " at " + address);
            }

            @Override
            public void moved(int stage, int attempt, String executor, Moved moved) {
                heard.add("moved " + stage + "/" + attempt + " " + executor + " " + moved.encode());
            }

            @Override
            public void ends(String executor) {
                heard.add("ends " + executor);
            }
        };
        assertEquals((Object) Long.MIN_VALUE, Messages.dispatch(Messages.coflow(Integer.MAX_VALUE, 3), handler));
        assertEquals((Object) Long.MAX_VALUE, Messages.dispatch(Messages.known(7, Integer.MAX_VALUE), handler));
        assertEquals("known 7/" + Integer.MAX_VALUE, heard.get(heard.size() - 1));
        assertEquals("8", Messages.dispatch(Messages.agents(Integer.MAX_VALUE), handler));
        assertEquals("agents " + Integer.MAX_VALUE, heard.get(heard.size() - 1));
        for (String executor : new String[] {"1", "driver", "an executor of  mine", " ", "", "coflow 1 2"}) {
            assertEquals("h:1", Messages.dispatch(Messages.where(executor), handler));
            assertEquals("where " + executor, heard.get(heard.size() - 1));
            assertNull(Messages.dispatch(Messages.attached(executor, "[::1]:7071"), handler));
            assertEquals("attached " + executor + " at [::1]:7071", heard.get(heard.size() - 1));
            assertNull(Messages.dispatch(Messages.moved(7, 2, executor, new Moved()), handler));
            assertEquals("moved 7/2 " + executor + " 0,0,0", heard.get(heard.size() - 1));
            assertNull(Messages.dispatch(Messages.ends(executor), handler));
            assertEquals("ends " + executor, heard.get(heard.size() - 1));
        }
        assertEquals("coflow 2147483647/3", heard.get(0));
        int count = heard.size();
        for (String other : new String[] {"", "coflow", "coflow ", "coflow 1", "coflow a b", "Where 1", "attached", "attached x", "gone 1",
            "moved", "moved 1 0", "moved 1 0 0,0,0", "moved x 0 0,0,0 1", "moved 1 0 0,0 1", "moved 1 0 0,0,0,GREED=1 1",
            "moved 1 0 0,0,0,PAUSED 1", "moved 1 0 0,0,0,PAUSED=x 1", "moved 1 0 99999999999999999999,0,0 1", "moved 1 0 ,,  1",
            "moved 1 0 0,0,0" + ",PAUSED=1".repeat(11) + " 1"}) {
            assertThrows(IllegalArgumentException.class, () -> Messages.dispatch(other, handler), other);
        }
        assertEquals(count, heard.size());
    }

    @Test
    void bytes_survive_as_digits() {
        byte[] all = new byte[256];
        for (int at = 0; at < all.length; at++) {
            all[at] = (byte) at;
        }
        assertArrayEquals(all, Hex.parse(Hex.of(all)));
        assertEquals("00ff7f80", Hex.of(new byte[] {0, -1, 127, -128}));
        assertArrayEquals(new byte[] {-1, 10}, Hex.parse("FF0a"));
        assertEquals("", Hex.of(new byte[0]));
        for (String bad : new String[] {"0", "0g", "+f", "-f", "123", " f"}) {
            assertThrows(IllegalArgumentException.class, () -> Hex.parse(bad), bad);
        }
    }

    private static SparkConf conf() {
        return new SparkConf(false).set(Settings.COORDINATOR, "10.0.0.1:7070");
    }

    @Test
    void the_plugin_stands_aside_where_it_is_not_wanted_or_would_unprotect_shuffles() {
        assertTrue(new Settings(conf()).whyAside().isEmpty());
        assertTrue(new Settings(conf().set(Settings.ENABLED, "false")).whyAside().orElseThrow().contains(Settings.ENABLED));
        for (String none : new String[] {"", "  "}) {
            SparkConf conf = conf().set(Settings.COORDINATOR, none);
            assertTrue(new Settings(conf).whyAside().orElseThrow().contains(Settings.COORDINATOR));
        }
        assertTrue(new Settings(new SparkConf(false)).whyAside().orElseThrow().contains(Settings.COORDINATOR));
        String[] keys = {"spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled"};
        SparkConf all = conf();
        for (String key : keys) {
            assertTrue(new Settings(conf().set(key, "true")).whyAside().orElseThrow().startsWith(key + " protects"), key);
            assertTrue(new Settings(conf().set(key, "false")).whyAside().isEmpty(), key);
            all.set(key, "true");
        }
        assertTrue(new Settings(all).whyAside().orElseThrow().startsWith(String.join(", ", keys)));
    }

    @Test
    void settings_have_values_that_work_where_nothing_is_said() {
        Settings plain = new Settings(conf());
        assertEquals("10.0.0.1:7070", plain.coordinator());
        assertEquals(Duration.ofSeconds(60), plain.patience());
        assertEquals(64, plain.subdirectories());
        if (System.getenv("WEIR_AGENT") == null) {
            assertEquals(Path.of("/run/weir/agent.sock"), plain.agent());
        }
        Settings said = new Settings(conf().set(Settings.AGENT, "/a/b.sock").set(Settings.PATIENCE, "2m")
                .set("spark.diskStore.subDirectories", "8").set(Settings.COORDINATOR, " c:1 "));
        assertEquals(Path.of("/a/b.sock"), said.agent());
        assertEquals(Duration.ofMinutes(2), said.patience());
        assertEquals(8, said.subdirectories());
        assertEquals("c:1", said.coordinator());
        assertEquals(Duration.ofSeconds(1), new Settings(conf().set(Settings.PATIENCE, "10ms")).patience());
    }
}

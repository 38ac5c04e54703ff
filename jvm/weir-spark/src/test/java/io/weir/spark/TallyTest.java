package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import io.weir.client.FakeAgent;
import io.weir.client.HolderStatus;
import io.weir.client.StoreClient;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What an executor counts and tells: each byte once, under the reason for which it came as it did. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TallyTest {
    private static final String[] NAMES = {"shuffle_0_1_0", "shuffle_0_2_0"};
    private static final int BYTES = 10;

    private final MetricRegistry metrics = new MetricRegistry();
    private final StoreClient client = new StoreClient(Path.of("none"));

    @AfterEach
    void end() {
        TaskContext$.MODULE$.unset();
        client.close();
    }

    /** One fetch of two blocks of ten bytes, and what the driver is told of it. */
    private Moved fetched(FakeDriver driver, Duration patience, int threads, boolean attached) throws Exception {
        TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
        Tally tally = new Tally(driver, metrics);
        Fetches fetches = new Fetches(client, driver.directory(), tally, patience, metrics, threads);
        if (attached) {
            fetches.begin();
        }
        CountDownLatch all = new CountDownLatch(NAMES.length);
        fetches.fetch("1", NAMES, counting(all), (rest, to) -> {
            for (String name : rest) {
                to.onBlockFetchSuccess(name, new NioManagedBuffer(ByteBuffer.allocate(BYTES)));
            }
        });
        assertTrue(all.await(20, TimeUnit.SECONDS));
        fetches.close();
        tally.close();
        return driver.moved();
    }

    private static BlockFetchingListener counting(CountDownLatch all) {
        return new BlockFetchingListener() {
            @Override
            public void onBlockFetchSuccess(String name, ManagedBuffer data) {
                all.countDown();
            }

            @Override
            public void onBlockFetchFailure(String name, Throwable why) {
                throw new AssertionError(why);
            }
        };
    }

    private static FakeAgent saying(byte[] bytes) throws Exception {
        return new FakeAgent((request, in, out) -> {
            out.write(bytes);
            in.read();
        });
    }

    private void assertSpark(Why why, Moved moved) {
        assertEquals("1 fetch, 0 by Weir, 20 by Spark: " + why,
                moved.fetches + " fetch, " + moved.weirBytes + " by Weir, " + moved.spark(why) + " by Spark: " + why);
        assertEquals(2 * BYTES, moved.spark());
    }

    private static String at(FakeAgent agent) {
        return "127.0.0.1:" + agent.address().getPort();
    }

    @Test
    void bytes_by_weir_are_counted_before_the_task_hears_of_them() throws Exception {
        try (FakeAgent agent = saying(FakeAgent.sent(FakeAgent.block(new byte[BYTES], new byte[BYTES])))) {
            Moved moved = fetched(FakeDriver.knowing(at(agent), 7), Duration.ofSeconds(20), 4, true);
            assertEquals("1, 20, 0", moved.fetches + ", " + moved.weirBytes + ", " + moved.spark());
            assertTrue(moved.waitedNanos > 0);
            assertEquals(1, metrics.counter("fetches").getCount());
            assertEquals(0, metrics.counter("vanillaBytes").getCount());
        }
    }

    @Test
    void bytes_by_spark_have_the_reason_for_which_weir_did_not_bring_them() throws Exception {
        Duration long20 = Duration.ofSeconds(20);
        assertSpark(Why.NOT_ATTACHED, fetched(FakeDriver.knowing("127.0.0.1:1", 7), long20, 4, false));
        assertSpark(Why.NO_AGENT, fetched(FakeDriver.knowing("", 7), long20, 4, true));
        assertSpark(Why.NO_COFLOW, fetched(FakeDriver.knowing("127.0.0.1:1", Messages.NONE), long20, 4, true));
        int port;
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = socket.getLocalPort();
        }
        assertSpark(Why.FAILED, fetched(FakeDriver.knowing("127.0.0.1:" + port, 7), long20, 4, true));
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.COFLOW_ENDED))) {
            assertSpark(Why.ENDED, fetched(FakeDriver.knowing(at(agent), 7), long20, 4, true));
        }
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.BUSY))) {
            assertSpark(Why.FAILED, fetched(FakeDriver.knowing(at(agent), 7), long20, 4, true));
        }
        try (FakeAgent agent = saying(new byte[0])) {
            assertSpark(Why.PAUSED, fetched(FakeDriver.knowing(at(agent), 7), Duration.ofMillis(200), 4, true));
        }
        assertEquals(7 * 2 * BYTES, metrics.counter("vanillaBytes").getCount());
        assertEquals(2 * 2 * BYTES, metrics.counter("vanillaBytes.failed").getCount());
        assertEquals(0, metrics.counter("vanillaBytes.resting").getCount());
    }

    @Test
    void an_agent_that_rests_after_a_failure_is_a_reason_of_its_own() throws Exception {
        TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
        FakeDriver driver = FakeDriver.knowing("127.0.0.1:1", 7);
        Tally tally = new Tally(driver, metrics);
        Fetches fetches = new Fetches(client, driver.directory(), tally, Duration.ofSeconds(20), metrics, 4);
        fetches.begin();
        for (int time = 0; time < 2; time++) {
            CountDownLatch all = new CountDownLatch(NAMES.length);
            fetches.fetch("1", NAMES, counting(all), (rest, to) -> {
                for (String name : rest) {
                    to.onBlockFetchSuccess(name, new NioManagedBuffer(ByteBuffer.allocate(BYTES)));
                }
            });
            assertTrue(all.await(20, TimeUnit.SECONDS));
        }
        fetches.close();
        tally.close();
        assertEquals(2 * BYTES, driver.moved().spark(Why.FAILED));
        assertEquals(2 * BYTES, driver.moved().spark(Why.RESTING));
    }

    @Test
    void large_blocks_are_counted_and_blocks_of_no_shuffle_are_not() {
        FakeDriver driver = FakeDriver.knowing("", 7);
        Tally tally = new Tally(driver, metrics);
        Fetches fetches = new Fetches(client, driver.directory(), tally, Duration.ofSeconds(20), metrics, 4);
        BlockFetchingListener listener = counting(new CountDownLatch(9));
        assertSame(listener, fetches.counted(NAMES, listener, Why.LARGE), "there is no task");
        TaskContext$.MODULE$.setTaskContext(TaskContext$.MODULE$.empty());
        assertSame(listener, fetches.counted(new String[] {"rdd_0_0"}, listener, Why.LARGE));
        assertSame(listener, fetches.counted(new String[] {"broadcast_0_piece0"}, listener, Why.LARGE));
        assertSame(listener, fetches.counted(new String[0], listener, Why.LARGE));
        BlockFetchingListener counted = fetches.counted(new String[] {"shuffleChunk_0_0_0_0"}, listener, Why.MERGED);
        counted.onBlockFetchSuccess("shuffleChunk_0_0_0_0", new NioManagedBuffer(ByteBuffer.allocate(BYTES)));
        // A buffer that does not know its size is no reason to fail.
        counted.onBlockFetchSuccess("shuffleChunk_0_0_0_1", null);
        tally.close();
        fetches.close();
        assertEquals(BYTES, driver.moved().spark(Why.MERGED));
    }

    @Test
    void what_cannot_be_told_is_told_later_and_its_memory_is_bounded() {
        FakeDriver driver = FakeDriver.knowing("", 7);
        driver.sendsInVain = true;
        Tally tally = new Tally(driver, metrics);
        for (int stage = 0; stage < 3 * Tally.MAX_ATTEMPTS; stage++) {
            tally.weir(stage, 0, 1);
        }
        tally.close();
        assertEquals(0, driver.sent.size());
        tally.weir(0, 0, 1);
        driver.sendsInVain = false;
        tally.close();
        assertEquals(Tally.MAX_ATTEMPTS, driver.moves().size());
        assertEquals(Messages.ends("1"), driver.sent.get(driver.sent.size() - 1));
        assertEquals(Tally.MAX_ATTEMPTS + 1, driver.moved().weirBytes);
    }

    @Test
    void news_are_told_once_a_second_at_most_and_lose_nothing() throws Exception {
        FakeDriver driver = FakeDriver.knowing("", 7);
        Tally tally = new Tally(driver, metrics);
        Thread[] threads = new Thread[4];
        long begun = System.nanoTime();
        for (int at = 0; at < threads.length; at++) {
            threads[at] = new Thread(() -> {
                for (int block = 0; block < 200_000; block++) {
                    tally.weir(1, 0, 1);
                }
            });
            threads[at].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        Thread.sleep(1_300);
        long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun);
        assertEquals(800_000, driver.moved().weirBytes, "told without being asked");
        assertTrue(driver.moves().size() <= seconds + 2, driver.moves().size() + " messages in " + seconds + " s");
        tally.close();
        assertEquals(800_000, driver.moved().weirBytes);
    }
}

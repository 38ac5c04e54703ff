package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.codahale.metrics.MetricRegistry;
import io.weir.client.FakeAgent;
import io.weir.client.HolderStatus;
import io.weir.client.StoreClient;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Whatever agents, drivers and tasks do, each block comes once: by Weir or by Spark's own fetch. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FetchesTest {
    private static final int[] SIZES = {0, 10, 300_000, 0, 70_000, 200_000, 5, 0};
    private static final long COFLOW = 42;

    private final StoreClient client = new StoreClient(Path.of("none"));
    private final MetricRegistry metrics = new MetricRegistry();
    private final List<Fetches> made = new ArrayList<>();
    /** Of the fetches that were made last. */
    private FakeDriver last;
    private Tally tally;

    /** A task of this thread. */
    private static TaskContextImpl newTask() {
        TaskContextImpl task = TaskContext$.MODULE$.empty();
        TaskContext$.MODULE$.setTaskContext(task);
        return task;
    }

    @AfterEach
    void end() {
        made.forEach(Fetches::close);
        client.close();
    }

    private Fetches fetches(FakeDriver driver, Duration patience, int most) {
        if (TaskContext.get() == null) {
            newTask();
        }
        last = driver;
        tally = new Tally(driver, metrics);
        Fetches fetches = new Fetches(client, driver.directory(), tally, patience, metrics, most);
        fetches.begin();
        made.add(fetches);
        return fetches;
    }

    private Fetches fetches(FakeAgent agent) {
        return fetches(FakeDriver.knowing("127.0.0.1:" + agent.address().getPort(), COFLOW), Duration.ofSeconds(20), 16);
    }

    private static byte[] content(String name) {
        int map = Integer.parseInt(name.split("_")[2]);
        byte[] bytes = new byte[SIZES[map % SIZES.length]];
        new Random(name.hashCode()).nextBytes(bytes);
        return bytes;
    }

    private static String[] names(int count, int shuffles) {
        String[] names = new String[count];
        for (int at = 0; at < count; at++) {
            names[at] = "shuffle_" + at * shuffles / count + "_" + at + "_0";
        }
        return names;
    }

    private static byte[] block(String... names) {
        return FakeAgent.block(Arrays.stream(names).map(FetchesTest::content).toArray(byte[][]::new));
    }

    /** What the task hears, and Spark's own fetch. */
    private static class Heard implements BlockFetchingListener, Fetches.Vanilla {
        final String[] names;
        final Map<String, AtomicInteger> times = new ConcurrentHashMap<>();
        final Set<String> byVanilla = ConcurrentHashMap.newKeySet();
        final Set<String> failed = ConcurrentHashMap.newKeySet();
        final AtomicInteger vanillaCalls = new AtomicInteger();
        final CountDownLatch all;
        volatile String throwsAt;
        volatile RuntimeException vanillaThrows;
        volatile AssertionError wrong;

        Heard(String[] names) {
            this.names = names;
            all = new CountDownLatch(names.length);
        }

        private void heard(String name) {
            times.computeIfAbsent(name, key -> new AtomicInteger()).incrementAndGet();
            all.countDown();
        }

        @Override
        public void onBlockFetchSuccess(String name, ManagedBuffer data) {
            try {
                ByteBuffer bytes = data.nioByteBuffer();
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                assertEquals(copy.length, data.size());
                assertArrayEquals(content(name), copy, name);
            } catch (IOException | AssertionError e) {
                wrong = new AssertionError(e);
            }
            if (name.equals(throwsAt)) {
                throw new IllegalStateException("the task's listener has no room for it");
            }
            heard(name);
        }

        @Override
        public void onBlockFetchFailure(String name, Throwable why) {
            failed.add(name);
            heard(name);
        }

        @Override
        public void fetch(String[] rest, BlockFetchingListener to) {
            vanillaCalls.incrementAndGet();
            if (vanillaThrows != null) {
                throw vanillaThrows;
            }
            for (String name : rest) {
                byVanilla.add(name);
                to.onBlockFetchSuccess(name, new NioManagedBuffer(ByteBuffer.wrap(content(name))));
            }
        }

        void assertEachOnce(String where) throws InterruptedException {
            assertTrue(all.await(20, TimeUnit.SECONDS), where + ": " + all.getCount() + " blocks never came");
            assertEquals(names.length, times.size(), where);
            times.forEach((name, count) -> assertEquals(1, count.get(), where + ": " + name));
            if (wrong != null) {
                throw wrong;
            }
        }
    }

    private Heard run(Fetches fetches, String[] names, String where) throws Exception {
        Heard heard = new Heard(names);
        fetches.fetch("1", names, heard, heard);
        heard.assertEachOnce(where);
        return heard;
    }

    private static FakeAgent saying(byte[] bytes, boolean leaves) throws IOException {
        return new FakeAgent((request, in, out) -> {
            out.write(bytes);
            if (leaves) {
                throw new IllegalStateException("leaves");
            }
            in.read();
        });
    }

    /** The block of the ranges that are asked for: maps are the names' numbers. */
    private static byte[] asked(byte[] gather) {
        ByteBuffer bytes = ByteBuffer.wrap(gather).order(ByteOrder.LITTLE_ENDIAN);
        String[] names = new String[bytes.getInt(68)];
        int begin = gather.length - 16 * names.length;
        for (int at = 0; at < names.length; at++) {
            names[at] = "shuffle_" + bytes.getInt(64) + "_" + bytes.getLong(begin + 16 * at) + "_" + bytes.getInt(begin + 16 * at + 8);
        }
        return block(names);
    }

    @Test
    void blocks_come_by_weir_alone_where_all_is_well() throws Exception {
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.sent(asked(request.gather)));
            in.read();
            throw new IllegalStateException("leaves");
        });
        try (agent) {
            Fetches fetches = fetches(agent);
            String[] names = names(16, 2);
            assertEquals(0, run(fetches, names, "two shuffles").vanillaCalls.get());
            assertEquals(2, agent.requests.size());
            byte[] gather = agent.requests.get(0).gather;
            assertEquals(COFLOW, gather[8]);
            assertEquals(names.length, metrics.counter("gatheredBlocks").getCount());
            long bytes = Arrays.stream(names).mapToLong(name -> content(name).length).sum();
            assertEquals(bytes, metrics.counter("gatheredBytes").getCount());
            assertEquals(0, metrics.counter("vanillaBlocks").getCount());
            assertEquals(0, metrics.counter("failures").getCount());
        }
    }

    @Test
    void more_blocks_than_a_gather_has_come_by_several_gathers_on_one_connection() throws Exception {
        String[] names = new String[2_500];
        for (int at = 0; at < names.length; at++) {
            names[at] = "shuffle_0_" + (SIZES.length * at + 1) + "_" + at;
        }
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.sent(asked(request.gather)));
            in.read();
        });
        try (agent) {
            assertEquals(0, run(fetches(agent), names, "many").vanillaCalls.get());
            assertEquals(3, agent.requests.size());
        }
    }

    @Test
    void each_block_comes_once_wherever_the_connection_ends() throws Exception {
        String[] names = names(SIZES.length, 1);
        byte[] sent = FakeAgent.sent(block(names));
        Set<Integer> cuts = new LinkedHashSet<>(List.of(0, 1, 31, 32, 36, 40, 41, 262_143, 262_183, 262_184, 262_185, 262_192,
                524_335, 524_336, 524_344, sent.length - 1, sent.length));
        new Random(1).ints(25, 0, sent.length).forEach(cuts::add);
        for (int cut : cuts) {
            try (FakeAgent agent = saying(Arrays.copyOf(sent, cut), true)) {
                Heard heard = run(fetches(agent), names, "cut at " + cut);
                // What came verified is not fetched again, and the rest is asked for once.
                int byWeir = cut < 262_184 + 0 ? 0 : cut < 262_184 + 262_152 ? 2 : cut < sent.length ? 5 : 8;
                assertEquals(names.length - byWeir, heard.byVanilla.size(), "cut at " + cut);
                assertEquals(byWeir == 8 ? 0 : 1, heard.vanillaCalls.get());
            }
        }
    }

    @Test
    void each_block_comes_once_wherever_a_byte_is_wrong() throws Exception {
        String[] names = names(SIZES.length, 1);
        byte[] sent = FakeAgent.sent(block(names));
        Set<Integer> places = new LinkedHashSet<>(List.of(0, 4, 5, 8, 15, 32, 34, 36, 40, 47, 48, 103, 104, 262_184, 262_188, 262_192,
                sent.length - 1));
        new Random(2).ints(20, 40, sent.length).forEach(places::add);
        for (int place : places) {
            byte[] damaged = sent.clone();
            damaged[place] ^= 0x41;
            try (FakeAgent agent = saying(damaged, false)) {
                Heard heard = run(fetches(agent), names, "damaged at " + place);
                assertEquals(1, heard.vanillaCalls.get(), "damaged at " + place);
            }
        }
    }

    @Test
    void each_block_comes_once_whatever_the_agent_answers() throws Exception {
        String[] names = names(SIZES.length, 2);
        for (HolderStatus status : HolderStatus.values()) {
            try (FakeAgent agent = saying(FakeAgent.answer(status), false)) {
                Fetches fetches = fetches(agent);
                assertEquals(names.length, run(fetches, names, "" + status).byVanilla.size());
                assertEquals(names.length, run(fetches, names, "" + status).byVanilla.size());
                // An agent that failed rests. Whose coflow it is that has ended, or was refused, is not the agent's fault.
                boolean isOfTheCoflow = status == HolderStatus.COFLOW_ENDED || status == HolderStatus.COFLOW_REFUSED;
                assertEquals(isOfTheCoflow ? 2 : 1, agent.requests.size(), "" + status);
            }
        }
    }

    @Test
    void a_flow_that_is_broken_off_is_asked_for_once_more_and_an_agent_that_then_answers_does_not_rest() throws Exception {
        String[] names = names(16, 2);
        for (HolderStatus second : new HolderStatus[] {HolderStatus.ACCEPTED, HolderStatus.COFLOW_ENDED, null}) {
            AtomicInteger count = new AtomicInteger();
            FakeAgent agent = new FakeAgent((request, in, out) -> {
                byte[] sent = FakeAgent.sent(asked(request.gather));
                if (count.incrementAndGet() == 1) {
                    // The table and some blocks, then the coflow ends, or the agent.
                    out.write(sent, 0, 262_184 + 100);
                } else if (second == HolderStatus.COFLOW_ENDED) {
                    out.write(FakeAgent.answer(second));
                } else {
                    out.write(sent, 0, second == null ? 32 : sent.length);
                }
                if (second == HolderStatus.ACCEPTED && count.get() > 1) {
                    in.read();
                }
                throw new IllegalStateException("leaves");
            });
            try (agent) {
                Fetches fetches = fetches(agent);
                Heard heard = run(fetches, names, "" + second);
                assertEquals(second == HolderStatus.ACCEPTED ? 0 : 14, heard.byVanilla.size(), "" + second);
                assertEquals(second == HolderStatus.ACCEPTED ? 3 : 2, count.get(), "one for each shuffle, and one more");
                int before = count.get();
                run(fetches, names, "again after " + second);
                assertEquals(second == null, count.get() == before, "" + second);
            }
        }
    }

    @Test
    void each_block_comes_once_where_the_second_gather_of_a_fetch_fails() throws Exception {
        String[] names = names(16, 2);
        AtomicInteger count = new AtomicInteger();
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            if (count.incrementAndGet() == 2) {
                throw new IllegalStateException("leaves");
            }
            out.write(FakeAgent.sent(asked(request.gather)));
            in.read();
            throw new IllegalStateException("leaves");
        });
        try (agent) {
            Heard heard = run(fetches(agent), names, "second");
            assertEquals(8, heard.byVanilla.size());
            assertTrue(heard.byVanilla.contains(names[8]));
        }
    }

    @Test
    void each_block_comes_once_where_nobody_knows_or_nobody_is_there() throws Exception {
        String[] names = names(SIZES.length, 1);
        FakeAgent gone = saying(new byte[0], true);
        gone.close();
        List<FakeDriver> drivers = List.of(FakeDriver.knowing("", COFLOW), FakeDriver.knowing("nonsense", COFLOW),
                FakeDriver.knowing("127.0.0.1:" + gone.address().getPort(), COFLOW),
                FakeDriver.knowing("127.0.0.1:1", Messages.NONE), FakeDriver.knowing("127.0.0.1:1", Messages.NOT_YET),
                new FakeDriver(message -> {
                    throw new IOException("away");
                }), new FakeDriver(message -> {
                    Thread.sleep(60_000);
                    return null;
                }));
        for (int at = 0; at < drivers.size(); at++) {
            long start = System.nanoTime();
            Heard heard = run(fetches(drivers.get(at), Duration.ofSeconds(20), 16), names, "driver " + at);
            assertEquals(names.length, heard.byVanilla.size());
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(3), "driver " + at);
        }
        Fetches closed = fetches(drivers.get(0), Duration.ofSeconds(20), 16);
        closed.close();
        assertEquals(1, run(closed, names, "closed").vanillaCalls.get());
        Fetches notReady = new Fetches(client, drivers.get(0).directory(), tally, Duration.ofSeconds(20), metrics);
        made.add(notReady);
        assertEquals(1, run(notReady, names, "not ready").vanillaCalls.get());
    }

    @Test
    void a_flow_that_is_paused_for_longer_than_the_patience_is_spark_s_own() throws Exception {
        String[] names = names(SIZES.length, 1);
        byte[] sent = FakeAgent.sent(block(names));
        for (int cut : new int[] {32, 262_184 + 100}) {
            try (FakeAgent agent = saying(Arrays.copyOf(sent, cut), false)) {
                FakeDriver driver = FakeDriver.knowing("127.0.0.1:" + agent.address().getPort(), COFLOW);
                Heard heard = run(fetches(driver, Duration.ofMillis(300), 16), names, "paused at " + cut);
                assertEquals(cut == 32 ? 8 : 6, heard.byVanilla.size());
            }
        }
    }

    @Test
    void each_block_is_heard_of_once_where_a_listener_or_spark_s_own_fetch_throws() throws Exception {
        String[] names = names(SIZES.length, 1);
        for (String at : names) {
            try (FakeAgent agent = saying(FakeAgent.sent(block(names)), false)) {
                Heard heard = new Heard(names);
                heard.throwsAt = at;
                fetches(agent).fetch("1", names, heard, heard);
                heard.assertEachOnce("throws at " + at);
                // Nobody waits in vain for what the listener could not take.
                assertEquals(Set.of(at), heard.failed);
            }
        }
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.BUSY), false)) {
            Heard heard = new Heard(names);
            heard.vanillaThrows = new IllegalStateException("Spark's own");
            fetches(agent).fetch("1", names, heard, heard);
            heard.assertEachOnce("its own fetch throws");
            assertEquals(names.length, heard.failed.size());
        }
    }

    @Test
    void other_blocks_and_threads_without_a_task_are_spark_s_own_at_once() throws Exception {
        try (FakeAgent agent = saying(new byte[0], true)) {
            Fetches fetches = fetches(agent);
            String[] other = {"shuffle_0_1_0", "rdd_0_1_0"};
            AtomicInteger calls = new AtomicInteger();
            Thread here = Thread.currentThread();
            fetches.fetch("1", other, new Heard(other), (rest, to) -> {
                assertEquals(here, Thread.currentThread());
                assertArrayEquals(other, rest);
                calls.incrementAndGet();
            });
            TaskContext$.MODULE$.unset();
            fetches.fetch("1", names(2, 1), new Heard(other), (rest, to) -> calls.addAndGet(rest.length));
            assertEquals(3, calls.get());
            assertTrue(agent.requests.isEmpty());
        }
    }

    @Test
    void more_fetches_than_threads_are_spark_s_own_at_once() throws Exception {
        String[] names = names(SIZES.length, 1);
        CountDownLatch go = new CountDownLatch(1);
        FakeAgent slow = new FakeAgent((request, in, out) -> {
            go.await();
            out.write(FakeAgent.sent(block(names)));
            in.read();
            throw new IllegalStateException("leaves");
        });
        try (slow) {
            Fetches fetches = fetches(FakeDriver.knowing("127.0.0.1:" + slow.address().getPort(), COFLOW), Duration.ofSeconds(20), 2);
            Heard[] first = {new Heard(names), new Heard(names)};
            for (Heard heard : first) {
                fetches.fetch("1", names, heard, heard);
            }
            for (int time = 0; time < 5; time++) {
                Heard more = new Heard(names);
                fetches.fetch("1", names, more, more);
                assertEquals(0, more.all.getCount(), "before fetch returns");
                more.assertEachOnce("beyond");
            }
            go.countDown();
            for (Heard heard : first) {
                heard.assertEachOnce("within");
                assertEquals(0, heard.vanillaCalls.get());
            }
        }
    }

    @Test
    void a_task_that_is_over_has_nothing_fetched_for_it_any_more() throws Exception {
        String[] names = names(SIZES.length, 1);
        byte[] sent = FakeAgent.sent(block(names));
        for (int cut : new int[] {0, 32, 262_184, 262_184 + 100}) {
            CountDownLatch asked = new CountDownLatch(1);
            CountDownLatch left = new CountDownLatch(1);
            FakeAgent agent = new FakeAgent((request, in, out) -> {
                out.write(sent, 0, cut);
                asked.countDown();
                in.readAllBytes();
                left.countDown();
            });
            try (agent) {
                TaskContextImpl own = newTask();
                Heard heard = new Heard(names);
                fetches(agent).fetch("1", names, heard, heard);
                assertTrue(asked.await(5, TimeUnit.SECONDS));
                Thread.sleep(50);
                own.markTaskCompleted(scala.Option.empty());
                assertTrue(left.await(5, TimeUnit.SECONDS), "the connection is closed");
                Thread.sleep(50);
                assertEquals(0, heard.vanillaCalls.get(), "cut at " + cut);
                // One that asks after its end gets nothing either.
                Heard late = new Heard(names);
                fetches(agent).fetch("1", names, late, late);
                Thread.sleep(50);
                assertEquals(0, late.vanillaCalls.get());
            }
        }
    }

    @Test
    void a_task_that_is_over_just_as_its_fetch_fails_has_no_other_begun() throws Exception {
        String[] names = names(SIZES.length, 1);
        try (FakeAgent agent = saying(FakeAgent.sent(block(names)), false)) {
            Fetches fetches = fetches(agent);
            TaskContextImpl own = newTask();
            CountDownLatch heard = new CountDownLatch(1);
            Heard none = new Heard(names) {
                @Override
                public void onBlockFetchSuccess(String name, ManagedBuffer data) {
                    own.markTaskCompleted(scala.Option.empty());
                    // The fetch hears nothing of the end but this error.
                    assertTrue(Thread.interrupted());
                    heard.countDown();
                    throw new IllegalStateException("at the same time");
                }
            };
            fetches.fetch("1", names, none, none);
            assertTrue(heard.await(5, TimeUnit.SECONDS));
            Thread.sleep(100);
            assertEquals(0, none.vanillaCalls.get());
        }
    }
}

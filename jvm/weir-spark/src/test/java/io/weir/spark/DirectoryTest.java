package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Drivers that are slow, silent or odd: whoever fetches waits for a moment at most. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class DirectoryTest {
    private static long millisSince(long start) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    private static long askers() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().equals("weir-asks-driver")).count();
    }

    @Test
    void answers_are_asked_for_once_and_kept() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        FakeDriver driver = new FakeDriver(message -> {
            asked.incrementAndGet();
            return message.startsWith("where") ? "[::1]:7071" : (Object) 42L;
        });
        Directory directory = driver.directory();
        for (int time = 0; time < 3; time++) {
            assertEquals(new InetSocketAddress(InetAddress.getByName("::1"), 7_071), directory.agent("exec 1"));
            assertEquals(42, directory.coflow(3, 1));
        }
        assertEquals(2, asked.get());
        assertEquals(42, directory.coflow(3, 2));
        assertEquals(42, directory.coflow(1, 3));
        assertEquals(4, asked.get());
        assertEquals("executor e of app-1", directory.store("e").toString());
        directory.close();
    }

    @Test
    void a_driver_that_never_answers_costs_a_moment_and_no_heap_of_threads() throws Exception {
        CountDownLatch never = new CountDownLatch(1);
        AtomicInteger asked = new AtomicInteger();
        Directory directory = new FakeDriver(message -> {
            asked.incrementAndGet();
            never.await();
            return null;
        }).directory();
        long before = askers();
        ExecutorService tasks = Executors.newFixedThreadPool(32);
        List<Future<?>> fetches = new ArrayList<>();
        long start = System.nanoTime();
        for (int at = 0; at < 64; at++) {
            int number = at;
            fetches.add(tasks.submit(() -> {
                long begin = System.nanoTime();
                assertNull(directory.agent("exec " + number % 40));
                assertNull(directory.coflow(number % 20, 0));
                long millis = millisSince(begin);
                assertTrue(millis >= 190 && millis < 2_000, millis + " ms");
                return null;
            }));
        }
        for (Future<?> fetch : fetches) {
            fetch.get();
        }
        assertTrue(millisSince(start) < 5_000);
        assertTrue(askers() - before <= 4, askers() + " threads");
        assertTrue(asked.get() <= 4, asked + " questions");
        tasks.shutdownNow();
        directory.close();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
        while (askers() > before && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        assertEquals(before, askers());
    }

    @Test
    void an_answer_that_comes_too_late_for_one_fetch_serves_the_next() throws Exception {
        CountDownLatch later = new CountDownLatch(1);
        Directory directory = new FakeDriver(message -> {
            later.await();
            return message.startsWith("where") ? "127.0.0.1:1" : (Object) 42L;
        }).directory();
        assertNull(directory.agent("1"));
        assertNull(directory.coflow(0, 0));
        later.countDown();
        assertEquals(1, directory.agent("1").getPort());
        assertEquals(42, directory.coflow(0, 0));
        directory.close();
    }

    @Test
    void a_coflow_that_is_being_registered_is_waited_for() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        Directory directory = new FakeDriver(message -> asked.incrementAndGet() < 4 ? Messages.NOT_YET : 42L).directory();
        assertEquals(42, directory.coflow(0, 0));
        assertEquals(4, asked.get());
        directory.close();
        AtomicInteger more = new AtomicInteger();
        Directory other = new FakeDriver(message -> {
            more.incrementAndGet();
            return Messages.NOT_YET;
        }).directory();
        long start = System.nanoTime();
        assertNull(other.coflow(0, 0));
        assertTrue(millisSince(start) < 1_000);
        Thread.sleep(1_000);
        assertTrue(more.get() <= 100, "it is not asked for ever");
        other.close();
    }

    @Test
    void a_coflow_that_the_driver_knows_is_there_before_a_fetch_asks_and_no_fetch_waits_for_what_it_does_not_know() throws Exception {
        List<String> asked = new CopyOnWriteArrayList<>();
        CountDownLatch never = new CountDownLatch(1);
        Directory directory = new FakeDriver(message -> {
            if (message.startsWith("agents ")) {
                return "0";
            }
            asked.add(message);
            switch (message) {
                case "known 1 0":
                    return asked.size() < 3 ? Messages.NOT_YET : 41L;
                case "known 2 0":
                    return Messages.NONE;
                case "known 4 0":
                    never.await();
                    return null;
                default:
                    return message.startsWith("known") ? Messages.NOT_YET : (Object) 42L;
            }
        }).directory();
        for (int task = 0; task < 10; task++) {
            directory.prepare(1, 0);
        }
        until(() -> asked.size() == 3);
        Thread.sleep(50);
        assertEquals(41, directory.coflow(1, 0));
        assertEquals(List.of("known 1 0", "known 1 0", "known 1 0"), asked);
        directory.prepare(2, 0);
        until(() -> asked.size() == 4);
        assertEquals(42, directory.coflow(2, 0), "none by then may be one now");
        directory.prepare(3, 0);
        until(() -> asked.contains("known 3 0"));
        Thread.sleep(400);
        assertTrue(asked.stream().filter("known 3 0"::equals).count() <= 5, "most stages read nothing, and are not asked for over and over");
        assertEquals(42, directory.coflow(3, 0));
        directory.prepare(4, 0);
        directory.prepare(5, 0);
        long start = System.nanoTime();
        assertEquals(42, directory.coflow(4, 0));
        assertEquals(42, directory.coflow(5, 0));
        assertTrue(millisSince(start) < 100, "a driver that is silent there keeps no fetch");
        directory.close();
        directory.prepare(6, 0);
        never.countDown();
    }

    @Test
    void agents_that_the_driver_knows_are_there_before_a_fetch_asks() throws Exception {
        List<String> asked = new CopyOnWriteArrayList<>();
        Agents agents = new Agents();
        for (int executor = 0; executor < 2_500; executor++) {
            agents.add("e " + executor, "127.0.0.1:" + (1 + executor));
        }
        Directory directory = new FakeDriver(message -> {
            asked.add(message);
            String place = message.startsWith("agents ") ? message.substring(7) : null;
            return place != null ? agents.from(Integer.parseInt(place)) : message.startsWith("where ") ? "" : (Object) Messages.NONE;
        }).directory();
        directory.prepare(1, 0);
        until(() -> asked.contains("agents 2000"));
        Thread.sleep(50);
        for (int executor = 0; executor < 2_500; executor++) {
            assertEquals(1 + executor, directory.agent("e " + executor).getPort());
        }
        assertTrue(asked.stream().noneMatch(message -> message.startsWith("where")), "" + asked);
        agents.add("e 7", "127.0.0.1:9999");
        directory.prepare(2, 0);
        until(() -> asked.contains("agents 2500"));
        Thread.sleep(50);
        assertEquals(9_999, directory.agent("e 7").getPort());
        directory.close();
        for (Object odd : new Object[] {null, 7, "", "x", "1\n", "1\nnonsense", "1\n:1 e", "9999999999", new Object()}) {
            Directory other = new FakeDriver(message -> message.startsWith("agents ") ? odd : message.startsWith("where ") ? "127.0.0.1:5" : 42L)
                    .directory();
            other.prepare(1, 0);
            Thread.sleep(20);
            assertEquals(5, other.agent("e").getPort(), "" + odd);
            assertEquals(42, other.coflow(1, 0), "" + odd);
            other.close();
        }
    }

    private static void until(BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (!holds.getAsBoolean() && System.nanoTime() < end) {
            Thread.sleep(2);
        }
        assertTrue(holds.getAsBoolean());
    }

    @Test
    void what_was_not_known_is_asked_for_again_after_a_while_and_not_before() throws Exception {
        AtomicInteger asked = new AtomicInteger();
        Directory directory = new FakeDriver(message -> {
            boolean first = asked.getAndIncrement() < 2;
            return message.startsWith("where") ? first ? "" : "127.0.0.1:1" : (Object) (first ? Messages.NONE : 42L);
        }).directory();
        for (int time = 0; time < 5; time++) {
            assertNull(directory.agent("1"));
            assertNull(directory.coflow(0, 0));
        }
        assertEquals(2, asked.get());
        Thread.sleep(1_050);
        assertEquals(1, directory.agent("1").getPort());
        assertEquals(42, directory.coflow(0, 0));
        assertEquals(4, asked.get());
        directory.close();
    }

    @Test
    void errors_and_answers_of_another_kind_are_none() throws Exception {
        Object[] answers = {
            null, 7, "", ":1", "h", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1", "[", new Object(),
            new IllegalStateException("away"), new NoClassDefFoundError("another version"), new InterruptedException("at once"),
        };
        for (Object answer : answers) {
            Directory directory = new FakeDriver(message -> {
                if (answer instanceof Error) {
                    throw (Error) answer;
                }
                if (answer instanceof Exception) {
                    throw (Exception) answer;
                }
                return answer;
            }).directory();
            // One that never came would cost the wait each time.
            long millis = Long.MAX_VALUE;
            for (int time = 0; time < 5 && millis >= 100; time++) {
                long start = System.nanoTime();
                assertNull(directory.agent("1"), "" + answer);
                assertNull(directory.coflow(0, 0), "" + answer);
                millis = millisSince(start);
            }
            assertTrue(millis < 100, answer + ": " + millis + " ms");
            directory.close();
        }
    }
}

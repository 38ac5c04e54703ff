package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Gathers from agents that fall silent, and gathers that are ended from this side. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GatherPatienceTest extends GatherReading {
    // Silence.

    private static void assertTook(long start, long leastMs, long mostMs) {
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(millis >= leastMs && millis <= mostMs, millis + " ms");
    }

    @Test
    void an_agent_that_nobody_is_at_is_an_error_of_its_own() throws Exception {
        FakeAgent gone = saying();
        gone.close();
        var failed = assertThrows(UnreachableException.class, () -> run(gone.address(), 1, LONG));
        assertTrue(failed.mayComeLater());
    }

    @Test
    void an_agent_that_does_not_answer_or_drips_its_answer_ends_at_the_limit_of_answers() throws Exception {
        long start = System.nanoTime();
        fails(UnreachableException.class, 1, limits(200, 10_000, 20_000));
        assertTook(start, 200, 3_000);
        FakeAgent dripping = new FakeAgent((request, in, out) -> {
            for (byte each : accepted(100)) {
                out.write(each);
                Thread.sleep(150);
            }
            in.read();
        });
        try (dripping) {
            long again = System.nanoTime();
            assertThrows(UnreachableException.class, () -> run(dripping.address(), 1, limits(400, 10_000, 20_000)));
            assertTook(again, 400, 3_000);
        }
        long whole = System.nanoTime();
        fails(TimeLimitException.class, 1, limits(10_000, 10_000, 200));
        assertTook(whole, 200, 3_000);
    }

    @Test
    void a_paused_flow_is_waited_for_while_its_agent_shows_that_it_is_there() throws Exception {
        byte[][] ranges = {bytes(1, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        for (int cut : new int[] {32, 36, 45, sent.length - 1}) {
            FakeAgent paused = new FakeAgent((request, in, out) -> {
                out.write(sent, 0, cut);
                Thread.sleep(500);
                out.write(sent, cut, sent.length - cut);
                in.read();
            });
            try (paused) {
                got.clear();
                run(paused.address(), 1, limits(300, 50, 20_000));
                assertGot(ranges);
                assertEquals(1, paused.requests.size());
            }
        }
    }

    /** Where a path loses packets, a new connection may take longer than the flow does to go on. */
    @Test
    void a_byte_of_the_flow_shows_that_its_agent_is_there() throws Exception {
        byte[][] ranges = {bytes(1, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        for (int cut : new int[] {32, 36, sent.length - 1}) {
            FakeAgent slow = new FakeAgent((request, in, out) -> {
                out.write(sent, 0, cut);
                // It is asked after 50 ms, and would be left 2 s later.
                Thread.sleep(1_000);
                out.write(sent, cut, 1);
                Thread.sleep(1_500);
                out.write(sent, cut + 1, sent.length - cut - 1);
                in.read();
            });
            slow.mute = true;
            try (slow) {
                got.clear();
                run(slow.address(), 1, limits(300, 50, 20_000));
                assertGot(ranges);
                assertEquals(1, slow.requests.size());
            }
        }
    }

    @Test
    void a_paused_flow_ends_at_the_limit_of_the_whole() throws Exception {
        long start = System.nanoTime();
        var failed = fails(TimeLimitException.class, 1, limits(5_000, 50, 500), accepted(100));
        assertTook(start, 500, 3_000);
        assertTrue(failed.getMessage().contains("500 ms"), failed.getMessage());
    }

    @Test
    void an_agent_that_is_silent_everywhere_is_left_soon() throws Exception {
        long start = System.nanoTime();
        FakeAgent stuck = saying(accepted(100));
        try (stuck) {
            Channels.daemons("killer").newThread(() -> {
                try {
                    Thread.sleep(100);
                    stuck.close();
                } catch (IOException | InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }).start();
            var failed = assertThrows(UnreachableException.class, () -> run(stuck.address(), 1, limits(5_000, 300, 20_000)));
            assertTrue(failed.getMessage().contains("does not answer any more"), failed.getMessage());
            assertTook(start, 300, 3_000);
        }
        // One that takes connections, and says nothing on them.
        try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            AtomicReference<Socket> held = new AtomicReference<>();
            Channels.daemons("mute").newThread(() -> {
                try {
                    Socket socket = mute.accept();
                    held.set(socket);
                    socket.getOutputStream().write(accepted(100));
                } catch (IOException e) {
                    throw new IllegalStateException(e);
                }
            }).start();
            long again = System.nanoTime();
            InetSocketAddress at = (InetSocketAddress) mute.getLocalSocketAddress();
            assertThrows(UnreachableException.class, () -> run(at, 1, limits(5_000, 100, 20_000)));
            assertTook(again, 2_000, 6_000);
            assertNotNull(held.get());
        }
    }

    @Test
    void a_slow_sink_does_not_keep_the_gather_beyond_its_limit() throws Exception {
        byte[][] ranges = new byte[40][];
        for (int at = 0; at < ranges.length; at++) {
            ranges[at] = bytes(at, 100_000);
        }
        try (FakeAgent agent = saying(FakeAgent.sent(FakeAgent.block(ranges)))) {
            long start = System.nanoTime();
            assertThrows(TimeLimitException.class, () -> client.gather(agent.address(), gather(40), limits(5_000, 5_000, 400),
                    (at, bytes) -> {
                        keep(at, bytes);
                        pause(100);
                    }));
            assertTook(start, 400, 2_000);
            assertGot(Arrays.copyOf(ranges, got.size()));
        }
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    // Ends from this side.

    @Test
    void errors_of_the_sink_come_through_as_they_are_and_close_the_connection() throws Exception {
        byte[][] ranges = {bytes(1, 100), bytes(2, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        for (Exception thrown : new Exception[] {
            new FileNotFoundException("a disk"), new WaitExpiredException("of the sink"), new IllegalStateException("a bug"),
        }) {
            CountDownLatch closed = new CountDownLatch(1);
            AtomicReference<byte[]> said = new AtomicReference<>();
            FakeAgent agent = new FakeAgent((request, in, out) -> {
                out.write(sent);
                said.set(in.readAllBytes());
                closed.countDown();
            });
            try (agent) {
                AtomicInteger calls = new AtomicInteger();
                Exception failed = assertThrows(thrown.getClass(),
                        () -> client.gather(agent.address(), gather(2), LONG, (at, bytes) -> {
                            calls.incrementAndGet();
                            if (thrown instanceof IOException) {
                                throw (IOException) thrown;
                            }
                            throw (RuntimeException) thrown;
                        }));
                assertSame(thrown, failed);
                assertEquals(1, calls.get());
                assertTrue(closed.await(5, TimeUnit.SECONDS));
                assertEquals(0, said.get().length, "it was not acknowledged");
            }
        }
    }

    @Test
    void an_interrupt_or_the_end_of_the_client_ends_a_gather_wherever_it_is_and_closes_its_connection() throws Exception {
        byte[] endless = FakeAgent.frame(FakeAgent.join(table(1 << 30), new byte[FRAME - 8]));
        byte[] more = FakeAgent.frame(new byte[FRAME]);
        for (String where : new String[] {"answer", "frame", "data"}) {
            for (boolean interrupts : new boolean[] {true, false}) {
                CountDownLatch asked = new CountDownLatch(1);
                CountDownLatch closed = new CountDownLatch(1);
                FakeAgent agent = new FakeAgent((request, in, out) -> {
                    try {
                        if (!where.equals("answer")) {
                            out.write(accepted(8 + (1 << 30)));
                        }
                        asked.countDown();
                        if (where.equals("data")) {
                            out.write(endless);
                            for (int at = 0; at < 1_000; at++) {
                                out.write(more);
                            }
                        }
                        in.readAllBytes();
                    } finally {
                        closed.countDown();
                    }
                });
                AtomicReference<Exception> ended = new AtomicReference<>();
                AtomicBoolean stays = new AtomicBoolean();
                StoreClient own = new StoreClient(Path.of("none"));
                try (agent; own) {
                    Thread waiting = new Thread(() -> {
                        try {
                            own.gather(agent.address(), gather(1), limits(20_000, 10_000, 20_000), (at, bytes) -> {});
                        } catch (Exception e) {
                            ended.set(e);
                            stays.set(Thread.currentThread().isInterrupted());
                        }
                    });
                    waiting.start();
                    assertTrue(asked.await(5, TimeUnit.SECONDS));
                    Thread.sleep(where.equals("data") ? 5 : 100);
                    if (interrupts) {
                        waiting.interrupt();
                    } else {
                        own.close();
                    }
                    waiting.join(5_000);
                    assertEquals(interrupts ? InterruptedIOException.class : ClientClosedException.class, ended.get().getClass(), where);
                    assertEquals(interrupts, stays.get(), where);
                    assertTrue(closed.await(5, TimeUnit.SECONDS), where);
                }
            }
        }
    }
}

package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Gathers from agents that keep to the protocol in unusual ways, break it, or lie. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GatherReaderTest extends GatherReading {
    // What an agent may say.

    /** Bytes that are there from the start, read in pieces. */
    private static final class Played implements Connection {
        private final ByteBuffer bytes;
        private final Random cuts;
        private final List<Byte> said = new ArrayList<>();
        private boolean closed;

        Played(byte[] bytes, Random cuts) {
            this.bytes = ByteBuffer.wrap(bytes);
            this.cuts = cuts;
        }

        @Override
        public int read(ByteBuffer into, long limit) throws IOException {
            if (!bytes.hasRemaining()) {
                return -1;
            }
            int most = Math.min(into.remaining(), bytes.remaining());
            int count = 1 + cuts.nextInt(cuts.nextBoolean() ? Math.min(most, 9) : most);
            for (int at = 0; at < count; at++) {
                into.put(bytes.get());
            }
            return count;
        }

        @Override
        public void write(ByteBuffer from, long limit) {
            while (from.hasRemaining()) {
                said.add(from.get());
            }
        }

        @Override
        public boolean isFit() {
            return !closed && !bytes.hasRemaining();
        }

        @Override
        public void close() {
            closed = true;
        }
    }

    @Test
    void frames_are_cut_into_ranges_wherever_they_lie_and_however_the_bytes_come() throws Exception {
        int[][] shapes = {
            {0}, {1}, {0, 0, 0}, {0, 5, 0}, {5, 0, 0, 6}, {FRAME - 8}, {FRAME - 7}, {FRAME}, {3 * FRAME},
            {FRAME - 24, 0, 0}, {FRAME - 24, 0, 1}, {FRAME - 16, FRAME, 0}, {1, 2 * FRAME, 0, FRAME, 7}, {5 * FRAME + 1, 3},
        };
        InetSocketAddress nowhere = new InetSocketAddress(InetAddress.getLoopbackAddress(), 1);
        ConnectionPool pool = new ConnectionPool();
        for (int[] shape : shapes) {
            byte[][] ranges = new byte[shape.length][];
            for (int at = 0; at < ranges.length; at++) {
                ranges[at] = bytes(at, shape[at]);
            }
            byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
            for (int seed = 0; seed < 5; seed++) {
                Played played = new Played(sent, new Random(seed));
                got.clear();
                Gather gather = gather(ranges.length);
                Dialer dialer = (address, limit) -> played;
                new GatherReader(gather, nowhere, 9, LONG, null, pool, dialer, this::keep).run();
                assertGot(ranges);
                ByteBuffer expected = gather.encode(9);
                for (byte each : played.said.subList(0, played.said.size() - 1)) {
                    assertEquals(expected.get(), each);
                }
                assertTrue(!expected.hasRemaining() && played.said.get(played.said.size() - 1) == Wire.ACK);
                assertSame(played, pool.take(nowhere), "it may be used again");
                assertTrue(!played.closed);
            }
        }
    }

    @Test
    void whatever_of_it_comes_before_the_connection_ends_is_handed_out_up_to_the_last_whole_frame() throws Exception {
        byte[][] ranges = {bytes(1, 10), bytes(2, FRAME), {}, bytes(3, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        ConnectionPool pool = new ConnectionPool();
        InetSocketAddress nowhere = new InetSocketAddress(InetAddress.getLoopbackAddress(), 1);
        int firstFrame = Wire.RESPONSE_BYTES + 8 + FRAME;
        for (int cut : new int[] {0, 1, 31, 32, 33, 40, 41, firstFrame - 1, firstFrame, firstFrame + 7, firstFrame + 8, sent.length - 1}) {
            got.clear();
            Played played = new Played(Arrays.copyOf(sent, cut), new Random(cut));
            Class<? extends WeirException> kind = cut < Wire.RESPONSE_BYTES ? UnreachableException.class : BrokenOffException.class;
            var failed = assertThrows(kind,
                    () -> new GatherReader(gather(4), nowhere, 9, LONG, null, pool, (address, limit) -> played, this::keep).run());
            assertTrue(failed.getMessage().contains("closed the connection"), failed.getMessage());
            assertTrue(played.closed);
            assertGot(cut < firstFrame ? new byte[0][] : new byte[][] {ranges[0]});
        }
    }

    @Test
    void most_ranges_of_one_gather_come_and_the_connection_serves_the_next() throws Exception {
        byte[][] ranges = new byte[Gather.MAX_RANGES][];
        for (int at = 0; at < ranges.length; at++) {
            ranges[at] = bytes(at, at % 7 == 0 ? 0 : at);
        }
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        AtomicInteger connections = new AtomicInteger();
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            do {
                connections.incrementAndGet();
                out.write(sent);
                assertEquals(Wire.ACK, in.read());
            } while (in.readNBytes(72 + 6 + 16 * ranges.length).length > 0);
        });
        try (agent) {
            for (int time = 0; time < 3; time++) {
                got.clear();
                run(agent.address(), ranges.length, LONG);
                assertGot(ranges);
            }
            assertEquals(3, connections.get());
            assertEquals(1, agent.requests.size(), "one connection");
            assertArrayEquals(gather(ranges.length).encode(0).array(), agent.requests.get(0).gather);
        }
    }

    @Test
    void a_range_is_handed_out_before_the_next_frame_is_there() throws Exception {
        byte[][] ranges = {{}, bytes(1, 1_000), bytes(2, FRAME)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        int firstFrame = Wire.RESPONSE_BYTES + 8 + FRAME;
        CountDownLatch two = new CountDownLatch(2);
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(sent, 0, firstFrame);
            if (two.await(10, TimeUnit.SECONDS)) {
                out.write(sent, firstFrame, sent.length - firstFrame);
            }
            in.read();
        });
        try (agent) {
            client.gather(agent.address(), gather(3), LONG, (at, bytes) -> {
                keep(at, bytes);
                two.countDown();
            });
            assertGot(ranges);
        }
    }

    @Test
    void an_agent_that_goes_after_its_last_byte_has_done_what_it_was_asked_for() throws Exception {
        byte[][] ranges = {bytes(1, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(sent);
            throw new IllegalStateException("leaves");
        });
        try (agent) {
            for (int time = 0; time < 20; time++) {
                got.clear();
                run(agent.address(), 1, LONG);
                assertGot(ranges);
            }
        }
    }

    @Test
    void an_idle_connection_that_is_closed_as_it_is_asked_is_replaced_by_a_new_one_once() throws Exception {
        byte[][] ranges = {bytes(1, 100)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        AtomicInteger served = new AtomicInteger();
        AtomicBoolean broken = new AtomicBoolean();
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            if (broken.get()) {
                throw new IllegalStateException("leaves at once");
            }
            served.incrementAndGet();
            out.write(sent);
            assertEquals(Wire.ACK, in.read());
            // Heard on the idle connection: it goes without an answer.
            if (in.read() >= 0) {
                throw new IllegalStateException("leaves");
            }
        });
        try (agent) {
            for (int time = 1; time <= 3; time++) {
                got.clear();
                run(agent.address(), 1, LONG);
                assertGot(ranges);
                assertEquals(time, served.get());
            }
            int before = agent.requests.size();
            broken.set(true);
            assertThrows(UnreachableException.class, () -> run(agent.address(), 1, LONG));
            assertEquals(before + 1, agent.requests.size(), "a new connection is no idle one");
        }
    }

    // What it must not.

    @Test
    void a_frame_without_its_checksum_is_not_handed_out_and_the_agent_hears_which_it_was() throws Exception {
        byte[][] ranges = {bytes(1, 100), bytes(2, FRAME)};
        byte[] sent = FakeAgent.sent(FakeAgent.block(ranges));
        sent[sent.length - 1]++;
        AtomicReference<byte[]> said = new AtomicReference<>();
        CountDownLatch heard = new CountDownLatch(1);
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(sent);
            said.set(in.readAllBytes());
            heard.countDown();
        });
        try (agent) {
            var failed = assertThrows(ProtocolException.class, () -> run(agent.address(), 2, LONG));
            assertTrue(failed.getMessage().contains("frame 1") && failed.getMessage().contains("127.0.0.1"), failed.getMessage());
            assertGot(ranges[0]);
            assertTrue(heard.await(5, TimeUnit.SECONDS));
            assertArrayEquals(new byte[] {0x15, 1, 0, 0, 0, 0, 0, 0, 0}, said.get());
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, Integer.MIN_VALUE, Integer.MAX_VALUE, 0, 107, 109, 262_144})
    void a_frame_of_another_length_than_its_place_has_is_not_read(int length) throws Exception {
        byte[] block = FakeAgent.block(bytes(1, 100));
        fails(ProtocolException.class, 1, LONG, accepted(block.length), FakeAgent.frame(length, 0, block));
        assertGot();
    }

    @ParameterizedTest
    @ValueSource(longs = {-1, Long.MIN_VALUE, Long.MAX_VALUE, (1L << 43) + 1, 0, 1, 15})
    void a_size_that_no_made_block_has_is_not_believed(long size) throws Exception {
        fails(ProtocolException.class, 2, LONG, accepted(size));
    }

    @Test
    void a_table_that_does_not_sum_to_the_size_is_not_believed() throws Exception {
        long[][] tables = {
            {11, 0}, {0, 11}, {6, 5}, {9, 0}, {0, 9}, {0, 0}, {-1, 11}, {11, -1}, {Long.MIN_VALUE, Long.MIN_VALUE},
            {Long.MAX_VALUE, Long.MAX_VALUE}, {Long.MAX_VALUE, -Long.MAX_VALUE + 10}, {10, Long.MIN_VALUE},
        };
        for (long[] lengths : tables) {
            byte[] block = FakeAgent.join(table(lengths), new byte[10]);
            fails(ProtocolException.class, 2, LONG, accepted(block.length), FakeAgent.frame(block));
            assertGot();
        }
    }

    @Test
    void a_range_that_no_array_has_room_for_is_an_error_when_it_comes_and_those_before_are_handed_out() throws Exception {
        for (long huge : new long[] {Integer.MAX_VALUE - 7L, Integer.MAX_VALUE, 1L << 31, 1L << 42}) {
            got.clear();
            byte[] frame = FakeAgent.frame(FakeAgent.join(table(4, huge), new byte[FRAME - 16]));
            var failed = fails(ProtocolException.class, 2, LONG, accepted(16 + 4 + huge), frame);
            assertTrue(failed.getMessage().contains("array"), failed.getMessage());
            assertGot(new byte[4]);
        }
    }

    @Test
    void memory_grows_with_what_comes_and_not_with_what_is_said() throws Exception {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long huge = 1 << 30;
        byte[] first = FakeAgent.frame(FakeAgent.join(table(huge), new byte[FRAME - 8]));
        byte[] head = FakeAgent.frame(FRAME, 0, new byte[0]);
        for (int sent : new int[] {0, 1, 4}) {
            AtomicInteger connections = new AtomicInteger();
            FakeAgent agent = new FakeAgent((request, in, out) -> {
                connections.incrementAndGet();
                out.write(accepted(8 + huge));
                for (int at = 0; at < sent; at++) {
                    out.write(at == 0 ? first : FakeAgent.frame(new byte[FRAME]));
                }
                out.write(head);
                out.write(new byte[64 << 10]);
                in.read();
            });
            try (agent) {
                long id = Thread.currentThread().getId();
                long before = threads.getThreadAllocatedBytes(id);
                assertThrows(TimeLimitException.class, () -> run(agent.address(), 1, limits(5_000, 100, 300)));
                long grown = threads.getThreadAllocatedBytes(id) - before;
                assertTrue(grown < 16 << 20, grown + " bytes for " + sent + " frames");
                assertGot();
            }
        }
    }

    @Test
    void bytes_after_the_last_frame_are_not_read_and_the_connection_is_not_used_again() throws Exception {
        byte[][] ranges = {bytes(1, 100)};
        byte[] sent = FakeAgent.join(FakeAgent.sent(FakeAgent.block(ranges)), new byte[] {1, 2, 3});
        AtomicInteger served = new AtomicInteger();
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            served.incrementAndGet();
            out.write(sent);
            in.read();
        });
        try (agent) {
            for (int time = 1; time <= 3; time++) {
                got.clear();
                run(agent.address(), 1, LONG);
                assertGot(ranges);
                assertEquals(time, served.get());
                Thread.sleep(20);
            }
        }
    }

    @Test
    void noise_in_place_of_an_answer_is_an_error() throws Exception {
        fails(ProtocolException.class, 1, LONG, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".getBytes());
        byte[] unknown = accepted(8);
        unknown[5] = 11;
        fails(ProtocolException.class, 1, LONG, unknown);
        byte[] later = accepted(8);
        later[4] = 3;
        fails(ProtocolException.class, 1, LONG, later);
    }

    @ParameterizedTest
    @EnumSource(value = HolderStatus.class, mode = EnumSource.Mode.EXCLUDE, names = "ACCEPTED")
    void each_status_is_an_error_that_says_which(HolderStatus status) throws Exception {
        HolderException failed = fails(HolderException.class, 1, LONG, FakeAgent.answer(status));
        assertEquals(status, failed.status());
        assertTrue(failed.getMessage().contains("127.0.0.1"), failed.getMessage());
        assertGot();
    }
}

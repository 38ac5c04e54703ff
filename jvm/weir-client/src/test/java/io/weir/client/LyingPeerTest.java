package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Holders that break the protocol, or say what is not true: the get goes on elsewhere, or ends with an error in time. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class LyingPeerTest {
    private static final Identity ONE = Identity.drawn();
    private static final byte[] SMALL = {1, 2, 3, 4, 5};

    private static byte[] get(Duration limit, FakeAgent... agents) throws Exception {
        try (WeirClient client = WeirClient.builder().build()) {
            return client.getBytes(7, "b", options(limit, agents), 100 << 20);
        }
    }

    private static GetOptions options(Duration limit, FakeAgent... agents) {
        List<InetSocketAddress> holders = new ArrayList<>();
        for (FakeAgent agent : agents) {
            holders.add(agent.address());
        }
        return GetOptions.DEFAULT.withTimeLimit(limit).withHolders(holders);
    }

    private static FakeAgent honest(byte[] block) throws Exception {
        return new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, block.length, ONE));
            for (int at = (int) request.offset; at < block.length; at += Wire.FRAME_BYTES) {
                int end = Math.min(block.length, at + Wire.FRAME_BYTES);
                out.write(FakeAgent.frame(Arrays.copyOfRange(block, at, end)));
            }
            assertEquals(Wire.ACK, in.read());
        });
    }

    private static FakeAgent saying(byte[]... parts) throws Exception {
        return new FakeAgent((request, in, out) -> {
            for (byte[] part : parts) {
                out.write(part);
            }
            in.read();
        });
    }

    private static TimeLimitException endsInTime(FakeAgent agent) {
        long start = System.nanoTime();
        var failed = assertThrows(TimeLimitException.class, () -> get(Duration.ofMillis(400), agent));
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10), "it took too long");
        return failed;
    }

    @Test
    void a_frame_without_its_checksum_is_told_to_the_holder_and_got_elsewhere() throws Exception {
        AtomicReference<byte[]> said = new AtomicReference<>();
        FakeAgent damaged = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, SMALL.length, ONE));
            out.write(FakeAgent.frame(SMALL.length, 0, SMALL));
            said.set(in.readNBytes(Wire.NAK_BYTES));
        });
        try (damaged; FakeAgent other = honest(SMALL)) {
            assertArrayEquals(SMALL, get(Duration.ofSeconds(10), damaged, other));
            assertEquals(1, damaged.requests.size());
            for (int tries = 0; said.get() == null && tries < 200; tries++) {
                Thread.sleep(10);
            }
            assertArrayEquals(new byte[] {0x15, 0, 0, 0, 0, 0, 0, 0, 0}, said.get());
            assertInstanceOf(ProtocolException.class, endsInTime(damaged).getCause());
        }
    }

    @Test
    void a_stream_that_breaks_off_goes_on_at_its_last_whole_frame_with_the_same_identity() throws Exception {
        byte[] block = new byte[Wire.FRAME_BYTES + 10];
        new java.util.Random(1).nextBytes(block);
        byte[] first = Arrays.copyOf(block, Wire.FRAME_BYTES);
        FakeAgent dying = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, block.length, ONE));
            out.write(FakeAgent.frame(first));
            out.write(new byte[] {10, 0, 0});
            throw new IllegalStateException("dies");
        });
        try (dying; FakeAgent other = honest(block)) {
            FakeAgent[] order = {dying, other};
            dying.requests.clear();
            byte[] got = get(Duration.ofSeconds(10), order);
            assertArrayEquals(block, got);
            FakeAgent.Request resumed = other.requests.isEmpty() ? dying.requests.get(1) : other.requests.get(0);
            assertEquals(Wire.FRAME_BYTES, resumed.offset);
            assertEquals(ONE, resumed.identity);
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {-1, Integer.MIN_VALUE, Integer.MAX_VALUE, 0, 4, 6, 262_145})
    void a_frame_of_another_length_than_its_place_has_is_not_read(int length) throws Exception {
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.ACCEPTED, SMALL.length, ONE),
                FakeAgent.frame(length, 0, SMALL))) {
            assertInstanceOf(ProtocolException.class, endsInTime(agent).getCause());
        }
    }

    @ParameterizedTest
    @ValueSource(longs = {-1, Long.MIN_VALUE, Long.MAX_VALUE, (1L << 43) + 1})
    void a_size_that_no_block_has_is_not_believed(long size) throws Exception {
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.ACCEPTED, size, ONE))) {
            assertInstanceOf(ProtocolException.class, endsInTime(agent).getCause());
        }
    }

    @Test
    void a_huge_size_reserves_no_memory_and_ends_at_the_limit() throws Exception {
        try (FakeAgent agent = saying(FakeAgent.answer(HolderStatus.ACCEPTED, Integer.MAX_VALUE - 8, ONE));
                WeirClient client = WeirClient.builder().build()) {
            long before = Runtime.getRuntime().totalMemory();
            assertThrows(TimeLimitException.class, () -> client.getBytes(7, "b",
                    options(Duration.ofMillis(300), agent), Integer.MAX_VALUE - 8));
            long grown = Runtime.getRuntime().totalMemory() - before;
            assertTrue(grown < 512L << 20, "the heap grew by " + grown + " bytes for bytes that never came");
            var large = assertThrows(BlockTooLargeException.class,
                    () -> client.get(7, "b", options(Duration.ofSeconds(5), agent), ByteBuffer.allocate(10)));
            assertEquals(Integer.MAX_VALUE - 8, large.size());
        }
    }

    @Test
    void noise_in_place_of_an_answer_is_an_error_in_time() throws Exception {
        try (FakeAgent agent = saying("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".getBytes())) {
            assertInstanceOf(ProtocolException.class, endsInTime(agent).getCause());
        }
    }

    @Test
    void a_holder_that_never_answers_or_drips_bytes_ends_at_the_limit() throws Exception {
        try (FakeAgent mute = new FakeAgent((request, in, out) -> in.read())) {
            endsInTime(mute);
        }
        FakeAgent slow = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, Wire.FRAME_BYTES, ONE));
            out.write(new byte[] {0, 0, 4, 0, 0, 0, 0, 0});
            while (true) {
                out.write(0);
                Thread.sleep(20);
            }
        });
        try (slow) {
            String text = endsInTime(slow).getMessage();
            assertTrue(text.contains("sent 0 of 262144 bytes so far"), text);
        }
    }

    @Test
    void a_holder_that_is_silent_is_left_only_if_it_does_not_answer_on_another_connection() throws Exception {
        FakeAgent paused = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, SMALL.length, ONE));
            Thread.sleep(700);
            out.write(FakeAgent.frame(SMALL));
            in.read();
        });
        try (paused; WeirClient client = WeirClient.builder().build()) {
            GetOptions options = options(Duration.ofSeconds(10), paused).withSilenceLimit(Duration.ofMillis(100));
            assertArrayEquals(SMALL, client.getBytes(7, "b", options, 10));
            assertEquals(1, paused.requests.size());
            // A byte of the flow is an answer, too.
            paused.mute = true;
            assertArrayEquals(SMALL, client.getBytes(7, "b", options, 10));
            assertEquals(2, paused.requests.size());
        }
        FakeAgent stuck = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, SMALL.length, ONE));
            in.read();
        });
        try (stuck; FakeAgent other = honest(SMALL); WeirClient client = WeirClient.builder().build()) {
            GetOptions options = options(Duration.ofSeconds(15), stuck, other).withSilenceLimit(Duration.ofMillis(100));
            Thread killer = new Thread(() -> {
                try {
                    Thread.sleep(50);
                    stuck.close();
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            });
            killer.start();
            assertArrayEquals(SMALL, client.getBytes(7, "b", options, 10));
        }
    }

    @Test
    void other_bytes_under_the_name_never_continue_what_was_handed_out() throws Exception {
        byte[] block = new byte[Wire.FRAME_BYTES + 10];
        byte[] first = Arrays.copyOf(block, Wire.FRAME_BYTES);
        FakeAgent changing = new FakeAgent((request, in, out) -> {
            if (request.offset > 0) {
                out.write(FakeAgent.answer(HolderStatus.OTHER_BYTES, 0, Identity.UNKNOWN));
                return;
            }
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, block.length, Identity.drawn()));
            out.write(FakeAgent.frame(first));
            first[0]++;
            throw new IllegalStateException("dies");
        });
        try (changing; WeirClient client = WeirClient.builder().build();
                BlockInputStream stream = client.open(7, "b", options(Duration.ofSeconds(10), changing))) {
            assertEquals(Wire.FRAME_BYTES, stream.readNBytes(Wire.FRAME_BYTES).length);
            var changed = assertThrows(BlockChangedException.class, stream::read);
            assertEquals(Wire.FRAME_BYTES, changed.read());
            assertThrows(BlockChangedException.class, stream::read, "an error stays");
        }
    }

    @ParameterizedTest
    @CsvSource({
        "NO_SUCH_BLOCK,TimeLimitException", "BAD_REQUEST,HolderException", "COFLOW_ENDED,CoflowEndedException",
        "BUSY,TimeLimitException", "UNREADABLE,TimeLimitException", "COFLOW_REFUSED,CoflowRefusedException",
        "RELAYED,TimeLimitException", "CHANGED,BlockGoneException", "OTHER_BYTES,TimeLimitException",
    })
    void each_status_is_an_error_of_its_own(HolderStatus status, String error) throws Exception {
        try (FakeAgent agent = saying(FakeAgent.answer(status, 0, Identity.UNKNOWN))) {
            var failed = assertThrows(WeirException.class, () -> get(Duration.ofMillis(300), agent));
            assertEquals(error, failed.getClass().getSimpleName());
            Throwable said = failed instanceof HolderException ? failed : failed.getCause();
            assertEquals(status, assertInstanceOf(HolderException.class, said).status());
        }
    }

    @Test
    void a_thread_that_is_interrupted_or_whose_client_closes_stops_waiting() throws Exception {
        try (FakeAgent mute = new FakeAgent((request, in, out) -> in.read())) {
            WeirClient client = WeirClient.builder().build();
            AtomicReference<Exception> ended = new AtomicReference<>();
            for (boolean interrupts : new boolean[] {true, false}) {
                Thread waiting = new Thread(() -> {
                    try {
                        client.getBytes(7, "b", options(Duration.ofSeconds(60), mute), 10);
                    } catch (Exception e) {
                        ended.set(e);
                    }
                });
                waiting.start();
                Thread.sleep(200);
                if (interrupts) {
                    waiting.interrupt();
                } else {
                    client.close();
                    client.close();
                }
                waiting.join(5_000);
                Class<?> expected = interrupts ? InterruptedIOException.class : ClientClosedException.class;
                assertEquals(expected, ended.get().getClass());
            }
        }
    }
}

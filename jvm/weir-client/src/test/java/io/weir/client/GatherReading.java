package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;

/** A gather from an agent that is played by hand, and what it brought. */
abstract class GatherReading {
    static final int FRAME = Wire.FRAME_BYTES;
    static final Store STORE = new Store("app-1", "0", new byte[16]);

    final StoreClient client = new StoreClient(Path.of("none"));
    final List<byte[]> got = new ArrayList<>();

    @AfterEach
    void close() {
        client.close();
    }

    static GatherLimits limits(long answerMs, long silenceMs, long wholeMs) {
        return new GatherLimits(Duration.ofSeconds(2), Duration.ofMillis(answerMs), Duration.ofMillis(silenceMs),
                Duration.ofMillis(wholeMs));
    }

    static final GatherLimits LONG = limits(10_000, 10_000, 20_000);

    static Gather gather(int ranges) {
        Gather gather = new Gather(STORE, 7, 3, 5);
        for (int at = 0; at < ranges; at++) {
            gather.range(at, 0, 1);
        }
        return gather;
    }

    static byte[] bytes(int seed, int size) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    /** Keeps ranges, and checks that they come in their order. */
    void keep(int index, ByteBuffer bytes) {
        assertEquals(got.size(), index);
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        got.add(copy);
    }

    void run(InetSocketAddress agent, int ranges, GatherLimits limits) throws IOException {
        client.gather(agent, gather(ranges), limits, this::keep);
    }

    void assertGot(byte[]... expected) {
        assertEquals(expected.length, got.size());
        for (int at = 0; at < expected.length; at++) {
            assertArrayEquals(expected[at], got.get(at), "range " + at);
        }
    }

    /** Says something and waits for the receiver to say something or to leave. */
    static FakeAgent saying(byte[]... parts) throws IOException {
        return new FakeAgent((request, in, out) -> {
            for (byte[] part : parts) {
                out.write(part);
            }
            in.read();
        });
    }

    static byte[] table(long... lengths) {
        ByteBuffer table = ByteBuffer.allocate(8 * lengths.length).order(ByteOrder.LITTLE_ENDIAN);
        for (long length : lengths) {
            table.putLong(length);
        }
        return table.array();
    }

    static byte[] accepted(long size) {
        return FakeAgent.answer(HolderStatus.ACCEPTED, size, Identity.drawn());
    }

    <T extends IOException> T fails(Class<T> as, int ranges, GatherLimits limits, byte[]... parts) throws IOException {
        try (FakeAgent agent = saying(parts)) {
            return assertThrows(as, () -> run(agent.address(), ranges, limits));
        }
    }
}

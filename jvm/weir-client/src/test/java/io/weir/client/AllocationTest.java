package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AllocationTest {
    /** Drops what is written. */
    private static final class Nowhere implements WritableByteChannel {
        @Override
        public int write(ByteBuffer from) {
            int count = from.remaining();
            from.position(from.limit());
            return count;
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {}
    }

    private static long allocatedBy(int frames) throws Exception {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        long size = (long) frames * Wire.FRAME_BYTES;
        byte[] frame = FakeAgent.frame(new byte[Wire.FRAME_BYTES]);
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.ACCEPTED, size, Identity.drawn()));
            for (int at = 0; at < frames; at++) {
                out.write(frame);
            }
            in.read();
        });
        try (agent; WeirClient client = WeirClient.builder().build()) {
            GetOptions options = GetOptions.DEFAULT.withTimeLimit(Duration.ofSeconds(30))
                    .withHolders(List.of(agent.address())).withVerifyWhole(true);
            long id = Thread.currentThread().getId();
            long before = threads.getThreadAllocatedBytes(id);
            assertEquals(size, client.get(7, "b", options, new Nowhere()));
            return threads.getThreadAllocatedBytes(id) - before;
        }
    }

    @Test
    void a_get_allocates_nothing_for_a_frame_but_the_four_bytes_of_its_checksum() throws Exception {
        // Classes are loaded, and selectors made, by the first one.
        allocatedBy(10);
        long few = allocatedBy(64);
        long many = allocatedBy(512);
        // 448 frames more: their checksums in an array that doubles, 4 * (128 + 256 + 512) bytes, and room for what the JDK does
        // while it waits for the socket.
        assertTrue(many - few < 448 * 256, few + " bytes for 64 frames, " + many + " for 512");
    }
}

package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.WeirClient;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Coordinators that are away or mute: who asks for a coflow never waits for them. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StageCoflowsTest {
    private static final ScheduledExecutorService CLOCK = Executors.newSingleThreadScheduledExecutor();

    @AfterAll
    static void stopClock() {
        CLOCK.shutdownNow();
    }

    private static StageCoflows coflows(int port) {
        return new StageCoflows(() -> "app-1",
                WeirClient.builder().coordinator("127.0.0.1:" + port).callLimit(Duration.ofMillis(300)).build(), new Ancestry(), CLOCK, 500);
    }

    private static int nobodysPort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    /** Asks without waiting. */
    private static long of(StageCoflows coflows, int stage) {
        long start = System.nanoTime();
        long answer = coflows.of(stage, 0);
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        assertTrue(millis < 200, millis + " ms");
        return answer;
    }

    /** When it is answered so, in milliseconds from now. */
    private static long until(StageCoflows coflows, int stage, long answer) throws InterruptedException {
        long start = System.nanoTime();
        while (of(coflows, stage) != answer) {
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(millis < 15_000, "never answered " + answer);
            Thread.sleep(5);
        }
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    @Test
    void after_a_failure_there_is_none_until_a_pause_is_over_that_doubles() throws Exception {
        try (StageCoflows coflows = coflows(nobodysPort())) {
            assertEquals(Messages.NOT_YET, of(coflows, 1));
            until(coflows, 1, Messages.NONE);
            assertEquals(Messages.NONE, of(coflows, 2), "nor for others");
            long first = until(coflows, 2, Messages.NOT_YET);
            assertTrue(first >= 600 && first < 1_700, first + " ms");
            until(coflows, 2, Messages.NONE);
            long second = until(coflows, 1, Messages.NOT_YET);
            assertTrue(second >= 1_600 && second < 3_000, second + " ms");
        }
    }

    @Test
    void stages_that_wait_while_the_coordinator_is_mute_count_as_one_failure() throws Exception {
        try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                StageCoflows coflows = coflows(mute.getLocalPort())) {
            for (int stage = 0; stage < 20; stage++) {
                coflows.begin(stage, 0, Terms.PLAIN, true, Map.of());
                assertEquals(Messages.NOT_YET, of(coflows, stage));
            }
            for (int stage = 0; stage < 20; stage++) {
                until(coflows, stage, Messages.NONE);
            }
            // 20 calls, or a pause of 20 failures, would take far longer.
            assertTrue(until(coflows, 30, Messages.NOT_YET) < 2_500);
        }
    }

    @Test
    void ends_of_stages_that_are_not_known_and_a_close_do_not_wait() throws Exception {
        try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            StageCoflows coflows = coflows(mute.getLocalPort());
            long start = System.nanoTime();
            coflows.end(7, 0);
            coflows.begin(1, 0, Terms.PLAIN, true, Map.of());
            coflows.end(1, 0);
            coflows.end(1, 0);
            assertEquals(Messages.NONE, of(coflows, 1), "it is over");
            assertEquals(Messages.NONE, of(coflows, 7));
            coflows.begin(2, 0, Terms.PLAIN, true, Map.of());
            assertTrue(System.nanoTime() - start < TimeUnit.MILLISECONDS.toNanos(250));
            coflows.close();
            coflows.close();
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(5));
            assertEquals(Messages.NONE, of(coflows, 3));
            coflows.end(2, 0);
        }
    }
}

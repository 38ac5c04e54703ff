package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Coordinators and agents that are not there, or do not answer: an error that says which, within the limit of the call. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class AbsentPeerTest {
    private static final Duration LIMIT = Duration.ofSeconds(2);

    @Test
    void a_coordinator_that_takes_connections_and_says_nothing_ends_calls_and_gets_in_time() throws Exception {
        try (ServerSocket mute = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                WeirClient client = WeirClient.builder().coordinator("127.0.0.1:" + mute.getLocalPort()).callLimit(LIMIT).build()) {
            long start = System.nanoTime();
            WeirException failed = assertThrows(WeirException.class, client::status);
            assertTrue(failed.mayComeLater() && failed.getMessage().contains("" + mute.getLocalPort()), failed.getMessage());
            assertThrows(TimeLimitException.class,
                    () -> client.getBytes(7, "b", GetOptions.DEFAULT.withTimeLimit(LIMIT), 10));
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(20), "it took too long");
        }
    }

    @Test
    void an_agent_whose_socket_is_not_there_is_named(@TempDir Path folder) {
        Path socket = folder.resolve("agent.sock");
        try (WeirClient client = WeirClient.builder().agent(socket).callLimit(LIMIT).build()) {
            var failed = assertThrows(UnreachableException.class, () -> client.put(7, "b", ByteBuffer.allocate(1)));
            assertTrue(failed.getMessage().contains(socket + " cannot be reached (no such file)"), failed.getMessage());
            client.close();
            assertThrows(ClientClosedException.class, () -> client.put(7, "b", ByteBuffer.allocate(1)));
        }
    }
}

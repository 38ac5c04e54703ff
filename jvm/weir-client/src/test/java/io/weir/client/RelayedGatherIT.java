package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Gathers between two sites, by relays that are real. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RelayedGatherIT {
    private static final Duration SOON = Duration.ofSeconds(10);
    private static final GatherLimits LIMITS =
            new GatherLimits(Duration.ofSeconds(1), Duration.ofSeconds(2), Duration.ofSeconds(1), Duration.ofSeconds(40));
    private static final Store STORE = new Store("app-1", "1", new byte[16]);
    private static final int RANGES = 40;

    @TempDir
    private Path folder;
    private Cluster cluster;
    private StoreClient sender;
    private StoreClient receiver;
    private WeirClient driver;
    private Coflow coflow;
    private final byte[] written = new byte[RANGES * 500_000];

    @BeforeEach
    void start() throws Exception {
        Cluster.assumeBinary();
        cluster = new Cluster(folder, true);
        sender = new StoreClient(cluster.spool(0).resolve("agent.sock"));
        receiver = new StoreClient(cluster.spool(1).resolve("agent.sock"));
        driver = cluster.client(1);
        coflow = driver.register(CoflowOptions.named("app-1/1.0").pattern(Pattern.SHUFFLE).build());
        new Random(5).nextBytes(written);
        Path outputs = Files.createDirectories(cluster.shared.resolve("outputs").resolve("00"));
        ByteBuffer index = ByteBuffer.allocate(8 * (RANGES + 1));
        for (int at = 0; at <= RANGES; at++) {
            index.putLong((long) at * written.length / RANGES);
        }
        Files.write(outputs.resolve("shuffle_3_0_0.index"), index.array());
        Files.write(outputs.resolve("shuffle_3_0_0.data"), written);
        sender.attach(STORE, List.of(outputs.getParent()), 1, SOON);
        // It has files of its own.
        Path others = Files.createDirectories(cluster.shared.resolve("others"));
        receiver.attach(new Store("app-1", "2", new byte[16]), List.of(others), 1, SOON);
    }

    @AfterEach
    void end() throws Exception {
        for (AutoCloseable one : new AutoCloseable[] {driver, sender, receiver, cluster}) {
            if (one != null) {
                one.close();
            }
        }
    }

    /** What comes of all ranges, which the sink may look at. */
    private List<byte[]> run(StoreClient client, GatherSink also) throws IOException {
        Gather gather = new Gather(STORE, coflow.id(), 0, 3);
        for (int at = 0; at < RANGES; at++) {
            gather.range(0, at, at + 1);
        }
        List<byte[]> got = new ArrayList<>();
        try {
            client.gather(cluster.dataAddress(0), gather, LIMITS, (at, bytes) -> {
                byte[] copy = new byte[bytes.remaining()];
                bytes.duplicate().get(copy);
                got.add(copy);
                also.range(at, bytes);
            });
        } finally {
            for (int at = 0; at < got.size(); at++) {
                int length = written.length / RANGES;
                assertArrayEquals(Arrays.copyOfRange(written, at * length, (at + 1) * length), got.get(at), "range " + at);
            }
        }
        return got;
    }

    private static void signal(String signal, Process process) throws IOException, InterruptedException {
        assertEquals(0, new ProcessBuilder("kill", signal, "" + process.pid()).start().waitFor());
    }

    @Test
    void bytes_go_by_relays_between_sites_and_without_them_within_one() throws Exception {
        assertEquals(RANGES, run(receiver, (at, bytes) -> {}).size());
        // While the sender's relay stands still nothing comes of a flow that enters there.
        signal("-STOP", cluster.relay(0));
        assertEquals(RANGES, run(sender, (at, bytes) -> {}).size());
        var silent = assertThrows(BrokenOffException.class, () -> run(receiver, (at, bytes) -> {}));
        assertTrue(silent.getMessage().contains("by the relay at"), silent.getMessage());
        assertEquals(RANGES, run(receiver, (at, bytes) -> {}).size(), "without relays, for a while");
        signal("-CONT", cluster.relay(0));
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1})
    void a_relay_that_is_killed_breaks_a_gather_off_and_the_next_goes_without_it(int site) throws Exception {
        int[] seen = new int[1];
        var failed = assertThrows(BrokenOffException.class, () -> run(receiver, (at, bytes) -> {
            seen[0] = at;
            if (at == 3) {
                kill(site);
            }
        }));
        assertTrue(failed.mayComeLater());
        assertTrue(seen[0] >= 3 && seen[0] < RANGES - 1, seen[0] + " ranges");
        List<byte[]> got;
        try {
            got = run(receiver, (at, bytes) -> {});
        } catch (BrokenOffException e) {
            // Where the receiver's own relay was not to blame, the agent has to learn that nobody is at its.
            got = run(receiver, (at, bytes) -> {});
        }
        assertEquals(RANGES, got.size());
    }

    private void kill(int site) {
        Process relay = cluster.relay(site).destroyForcibly();
        try {
            relay.waitFor();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}

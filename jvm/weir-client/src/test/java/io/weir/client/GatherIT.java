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
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Shuffle files of an executor at a real agent. See {@link Cluster} for which binary. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class GatherIT {
    private static final Duration SOON = Duration.ofSeconds(5);
    private static final GatherLimits LIMITS = new GatherLimits(Duration.ofSeconds(1), Duration.ofSeconds(2), Duration.ofSeconds(1),
            Duration.ofSeconds(30));
    private static final byte[] TOKEN = Store.newToken();
    private static final Store STORE = new Store("app-1", "driver one", TOKEN);
    private static final int SUBDIRECTORIES = 64;

    @TempDir
    Path folder;

    private Cluster cluster;
    private List<Path> directories;
    private StoreClient sender;
    private StoreClient receiver;
    private WeirClient driver;
    private Coflow coflow;

    @BeforeEach
    void start() throws Exception {
        Cluster.assumeBinary();
        cluster = new Cluster(folder);
        directories = List.of(Files.createDirectories(cluster.shared.resolve("one/blockmgr-1")).toRealPath(),
                Files.createDirectories(cluster.shared.resolve("two/blockmgr-2")).toRealPath());
        sender = new StoreClient(cluster.spool(0).resolve("agent.sock"));
        receiver = new StoreClient(cluster.spool(1).resolve("agent.sock"));
        driver = cluster.client(0);
        coflow = driver.register(CoflowOptions.named("app-1/1.0").pattern(Pattern.SHUFFLE).build());
        // This is how the receiver learns which host it is.
        receiver.attach(new Store("app-1", "receiver", TOKEN), directories, SUBDIRECTORIES, SOON);
    }

    @AfterEach
    void stop() throws Exception {
        if (cluster != null) {
            coflow.close();
            driver.close();
            sender.close();
            receiver.close();
            cluster.close();
        }
    }

    /** Writes the output of a map task where Spark's DiskBlockManager does. */
    private byte[][] write(int shuffle, long map, int... lengths) throws IOException {
        ByteBuffer index = ByteBuffer.allocate(8 * (lengths.length + 1));
        byte[][] ranges = new byte[lengths.length][];
        long at = 0;
        index.putLong(0);
        for (int reducer = 0; reducer < lengths.length; reducer++) {
            ranges[reducer] = new byte[lengths[reducer]];
            new Random(map * 1_000 + reducer).nextBytes(ranges[reducer]);
            at += lengths[reducer];
            index.putLong(at);
        }
        Files.write(place("shuffle_" + shuffle + "_" + map + "_0.index"), index.array());
        Files.write(place("shuffle_" + shuffle + "_" + map + "_0.data"), FakeAgent.join(ranges));
        return ranges;
    }

    private Path place(String name) throws IOException {
        int hash = name.hashCode() == Integer.MIN_VALUE ? 0 : Math.abs(name.hashCode());
        Path directory = directories.get(hash % directories.size());
        int sub = hash / directories.size() % SUBDIRECTORIES;
        return Files.createDirectories(directory.resolve(String.format("%02x", sub))).resolve(name);
    }

    private Gather gather(Store store) {
        return new Gather(store, coflow.id(), 0, 3);
    }

    private List<byte[]> run(Gather gather) throws IOException {
        List<byte[]> got = new ArrayList<>();
        receiver.gather(cluster.dataAddress(0), gather, LIMITS, (at, bytes) -> {
            assertEquals(got.size(), at);
            byte[] copy = new byte[bytes.remaining()];
            bytes.get(copy);
            got.add(copy);
        });
        return got;
    }

    private HolderStatus refusal(Gather gather) {
        return assertThrows(HolderException.class, () -> run(gather)).status();
    }

    private void attach() throws IOException {
        String address = sender.attach(STORE, directories, SUBDIRECTORIES, SOON);
        assertEquals("127.0.0.1:" + cluster.dataAddress(0).getPort(), address);
    }

    @Test
    void ranges_of_an_executor_come_as_it_wrote_them_and_are_one_flow() throws Exception {
        byte[][] first = write(3, 0, 100_000, 0, 300_000, 7);
        byte[][] second = write(3, (1L << 40) + 5, 0, 0, 0, 900_000);
        byte[][] third = write(3, 12, 1, 2, 3, 4);
        attach();
        attach();
        for (int time = 0; time < 3; time++) {
            List<byte[]> got = run(gather(STORE).range((1L << 40) + 5, 3, 4).range(0, 0, 1).range(0, 1, 2).range(12, 0, 4)
                    .range(0, 2, 4).range((1L << 40) + 5, 0, 3));
            byte[][] expected = {second[3], first[0], {}, FakeAgent.join(third), FakeAgent.join(first[2], first[3]), {}};
            assertEquals(expected.length, got.size());
            for (int at = 0; at < expected.length; at++) {
                assertArrayEquals(expected[at], got.get(at), "range " + at);
            }
        }
        CoflowRecord record = coflow.unregister().orElseThrow();
        assertEquals(1, record.flows());
        // Whatever is asked for again is counted once; the table is part of it.
        assertEquals(8 * 6 + 900_000 + 100_000 + 10 + 300_007, record.bytes());
    }

    @Test
    void most_ranges_come_from_as_many_files() throws Exception {
        attach();
        Gather gather = gather(STORE);
        byte[][] expected = new byte[Gather.MAX_RANGES][];
        for (int map = 0; map < Gather.MAX_RANGES; map++) {
            expected[map] = write(3, map, 10, map)[1];
            gather.range(map, 1, 2);
        }
        List<byte[]> got = run(gather);
        assertEquals(expected.length, got.size());
        for (int at = 0; at < expected.length; at++) {
            assertArrayEquals(expected[at], got.get(at));
        }
    }

    @Test
    void whoever_has_not_the_token_and_whatever_is_not_there_is_refused_by_status() throws Exception {
        write(3, 0, 10, 20);
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(STORE).range(0, 0, 1)), "not attached yet");
        attach();
        assertEquals(2, run(gather(STORE).range(0, 0, 1).range(0, 1, 2)).size());
        Store wrong = new Store("app-1", "driver one", Store.newToken());
        assertEquals(HolderStatus.FORBIDDEN, refusal(gather(wrong).range(0, 0, 1)));
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(new Store("app-1", "2", TOKEN)).range(0, 0, 1)));
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(new Store("app-2", "driver one", TOKEN)).range(0, 0, 1)));
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(STORE).range(1, 0, 1)));
        assertEquals(HolderStatus.UNREADABLE, refusal(gather(STORE).range(0, 0, 3)));
        assertEquals("ALREADY_EXISTS", assertThrows(RefusedException.class,
                () -> sender.attach(wrong, directories, SUBDIRECTORIES, SOON)).code());
        assertEquals("PERMISSION_DENIED", assertThrows(RefusedException.class, () -> sender.attach(
                new Store("app-1", "3", TOKEN), List.of(folder.toRealPath()), SUBDIRECTORIES, SOON)).code());
        assertEquals("NOT_FOUND", assertThrows(RefusedException.class, () -> sender.detach(wrong, SOON)).code());
        sender.detach(STORE, SOON);
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(STORE).range(0, 0, 1)));
        assertEquals("NOT_FOUND", assertThrows(RefusedException.class, () -> sender.detach(STORE, SOON)).code());
        attach();
        assertEquals(1, run(gather(STORE).range(0, 1, 2)).size());
    }

    @Test
    void a_coflow_that_is_over_has_nothing_gathered_for_it() throws Exception {
        write(3, 0, 10);
        attach();
        assertEquals(1, run(gather(STORE).range(0, 0, 1)).size());
        coflow.unregister();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        HolderStatus status = null;
        while (status == null && System.nanoTime() < end) {
            try {
                run(gather(STORE).range(0, 0, 1));
                Thread.sleep(20);
            } catch (HolderException e) {
                status = e.status();
            }
        }
        assertEquals(HolderStatus.COFLOW_ENDED, status);
    }

    @Test
    void an_agent_that_is_killed_ends_a_gather_soon_and_what_was_handed_out_is_sound() throws Exception {
        int[] lengths = new int[50];
        Arrays.fill(lengths, 1_000_000);
        byte[][] written = write(3, 0, lengths);
        attach();
        Gather gather = gather(STORE);
        for (int at = 0; at < written.length; at++) {
            gather.range(0, at, at + 1);
        }
        List<byte[]> got = new ArrayList<>();
        long[] killed = new long[1];
        var failed = assertThrows(BrokenOffException.class,
                () -> receiver.gather(cluster.dataAddress(0), gather, LIMITS, (at, bytes) -> {
                    got.add(Arrays.copyOfRange(bytes.array(), bytes.arrayOffset(), bytes.limit()));
                    if (at == 5) {
                        killed[0] = System.nanoTime();
                        killAgent();
                    }
                }));
        long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - killed[0]);
        assertTrue(millis < 5_000, millis + " ms");
        assertTrue(failed.mayComeLater());
        assertTrue(got.size() >= 6 && got.size() < written.length, got.size() + " ranges");
        for (int at = 0; at < got.size(); at++) {
            assertArrayEquals(written[at], got.get(at), "range " + at);
        }
        assertThrows(UnreachableException.class, () -> run(gather));
    }

    private void killAgent() {
        try {
            cluster.killAgent(0);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void an_agent_that_is_started_again_still_has_the_store() throws Exception {
        byte[][] written = write(3, 0, 100, 300_000);
        attach();
        assertEquals(1, run(gather(STORE).range(0, 1, 2)).size());
        restart();
        List<byte[]> got = run(gather(STORE).range(0, 0, 1).range(0, 1, 2));
        assertArrayEquals(written[0], got.get(0));
        assertArrayEquals(written[1], got.get(1));
        attach();
        sender.detach(STORE, SOON);
        restart();
        assertEquals(HolderStatus.NO_SUCH_BLOCK, refusal(gather(STORE).range(0, 0, 1)));
    }

    private void restart() throws Exception {
        // An agent answers an attach a moment before its journal has it.
        Thread.sleep(500);
        cluster.killAgent(0);
        cluster.startAgent(0);
    }
}

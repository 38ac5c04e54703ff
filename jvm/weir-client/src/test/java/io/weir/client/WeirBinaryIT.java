package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** This client with the real coordinator and agents. See {@link Cluster} for which binary. */
@Timeout(value = 90, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class WeirBinaryIT {
    private static final GetOptions SOON = GetOptions.DEFAULT.withTimeLimit(Duration.ofSeconds(20));

    @TempDir
    Path folder;

    private Cluster cluster;

    @BeforeEach
    void start() throws Exception {
        Cluster.assumeBinary();
        cluster = new Cluster(folder);
    }

    @AfterEach
    void stop() throws Exception {
        if (cluster != null) {
            cluster.close();
        }
    }

    private static byte[] random(int size) {
        byte[] bytes = new byte[size];
        new Random(size).nextBytes(bytes);
        return bytes;
    }

    @Test
    void what_is_put_at_one_host_is_got_at_the_other_in_every_way() throws Exception {
        byte[] bytes = random(600_001);
        Path file = cluster.shared.resolve("m0");
        Files.write(file, bytes);
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1)) {
            Coflow coflow = sender.register(CoflowOptions.named("shuffle").pattern(Pattern.SHUFFLE).build());
            sender.put(coflow.id(), "memory", ByteBuffer.wrap(bytes));
            sender.putFile(coflow.id(), "file", file, 1, 600_000);
            sender.put(coflow.id(), "empty", ByteBuffer.allocate(0));

            List<Holder> holders = receiver.locate(coflow.id(), "memory", Duration.ofSeconds(5));
            assertEquals(1, holders.size());
            assertEquals(bytes.length, holders.get(0).size());
            assertTrue(holders.get(0).identity().isContent());
            assertEquals(List.of(), receiver.locate(coflow.id(), "absent", Duration.ZERO));

            GetOptions whole = SOON.withVerifyWhole(true);
            assertArrayEquals(bytes, receiver.getBytes(coflow.id(), "memory", whole, 1 << 20));
            ByteBuffer buffer = ByteBuffer.allocate(700_000).position(5);
            assertEquals(600_000, receiver.get(coflow.id(), "file", SOON, buffer));
            assertEquals(600_005, buffer.position());
            assertArrayEquals(Arrays.copyOfRange(bytes, 1, 600_001), Arrays.copyOfRange(buffer.array(), 5, 600_005));
            var sink = new ByteArrayOutputStream();
            assertEquals(bytes.length, receiver.get(coflow.id(), "memory", SOON, Channels.newChannel(sink)));
            assertArrayEquals(bytes, sink.toByteArray());
            try (BlockInputStream stream = receiver.open(coflow.id(), "memory", SOON)) {
                assertEquals(bytes.length, stream.size());
                assertArrayEquals(bytes, stream.readAllBytes());
            }
            assertEquals(0, receiver.getBytes(coflow.id(), "empty", SOON, 0).length);
            var large = assertThrows(BlockTooLargeException.class,
                    () -> receiver.getBytes(coflow.id(), "memory", SOON, 100));
            assertEquals(bytes.length, large.size());

            coflow.seal();
            ClusterStatus status = receiver.status();
            assertEquals("varys", status.policy().split(":")[0]);
            assertEquals(2, status.agents().size());
            CoflowRecord record = coflow.unregister().orElseThrow();
            assertEquals("shuffle", record.name());
            assertTrue(receiver.status(coflow.id()).hasEnded());
            coflow.close();
            coflow.close();
            assertThrows(CoflowEndedException.class, () -> receiver.getBytes(coflow.id(), "memory", SOON, 1 << 20));
            assertEquals("NOT_FOUND", assertThrows(RefusedException.class, () -> sender.seal(coflow.id())).code());
        }
    }

    @Test
    void the_example_of_the_readme_runs() throws Exception {
        byte[] bytes = ReadmeExample.run(cluster.coordinator(), cluster.spool(0).resolve("agent.sock"));
        assertArrayEquals("some bytes".getBytes(), bytes);
    }

    @Test
    void a_stream_whose_last_byte_was_read_is_acknowledged_though_nobody_reads_on() throws Exception {
        byte[] bytes = random(300_000);
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1);
                Coflow coflow = sender.register(CoflowOptions.named("one flow").flows(1).build())) {
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            try (BlockInputStream stream = receiver.open(coflow.id(), "b", SOON)) {
                assertArrayEquals(bytes, stream.readNBytes(bytes.length));
            }
            CoflowRecord record = coflow.unregister().orElseThrow();
            assertEquals(1, record.flows());
            assertEquals(bytes.length, record.bytes());
        }
    }

    @Test
    void a_put_is_waited_for_and_the_same_bytes_may_be_put_again_and_others_not() throws Exception {
        byte[] bytes = random(1_000);
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1);
                Coflow coflow = sender.register(CoflowOptions.named("late").build())) {
            Thread late = new Thread(() -> {
                try {
                    Thread.sleep(300);
                    sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
                } catch (IOException | InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            late.start();
            assertArrayEquals(bytes, receiver.getBytes(coflow.id(), "b", SOON, 1_000));
            late.join();
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            var other = assertThrows(RefusedException.class,
                    () -> sender.put(coflow.id(), "b", ByteBuffer.wrap(random(999))));
            assertEquals("ALREADY_EXISTS", other.code());
            var missing = assertThrows(RefusedException.class,
                    () -> sender.putFile(coflow.id(), "f", cluster.shared.resolve("none"), 0, 1));
            assertEquals("NOT_FOUND", missing.code());
        }
    }

    @Test
    void a_block_of_50_mb_arrives_as_it_was_put() throws Exception {
        byte[] bytes = random(50_000_000);
        Path out = folder.resolve("out");
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1);
                Coflow coflow = sender.register(CoflowOptions.named("large").flows(1).build())) {
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            try (FileChannel file = FileChannel.open(out, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                receiver.get(coflow.id(), "b", SOON.withVerifyWhole(true), file);
            }
            assertEquals(-1, Arrays.mismatch(bytes, Files.readAllBytes(out)));
            assertEquals(50_000_000, coflow.unregister().orElseThrow().bytes());
        }
    }

    @Test
    void a_block_of_the_command_line_has_the_hash_that_this_client_makes_and_the_other_way_round() throws Exception {
        byte[] bytes = random(9_000_001);
        Path file = folder.resolve("in");
        Path out = folder.resolve("copy");
        Files.write(file, bytes);
        try (WeirClient client = cluster.client(0);
                Coflow coflow = client.register(CoflowOptions.named("both").build())) {
            cluster.run("put", "--coflow", Long.toUnsignedString(coflow.id()), file.toString());
            Identity theirs = client.locate(coflow.id(), "in", Duration.ofSeconds(5)).get(0).identity();
            assertEquals(ContentHash.of(ByteBuffer.wrap(bytes)), theirs);
            assertArrayEquals(bytes, client.getBytes(coflow.id(), "in", SOON.withVerifyWhole(true), bytes.length));
            client.put(coflow.id(), "ours", ByteBuffer.wrap(bytes));
            cluster.run("get", "--coflow", Long.toUnsignedString(coflow.id()), "ours", out.toString());
            assertEquals(-1, Arrays.mismatch(bytes, Files.readAllBytes(out)));
        }
    }

    @Test
    void a_holder_that_is_killed_in_mid_transfer_ends_the_get_within_its_limit() throws Exception {
        byte[] bytes = random(50_000_000);
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1);
                Coflow coflow = sender.register(CoflowOptions.named("killed").flows(1).build())) {
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            long start = System.nanoTime();
            GetOptions options = SOON.withTimeLimit(Duration.ofSeconds(4));
            try (BlockInputStream stream = receiver.open(coflow.id(), "b", options)) {
                byte[] head = stream.readNBytes(1_000_000);
                assertArrayEquals(Arrays.copyOf(bytes, head.length), head);
                cluster.killAgent(0);
                var failed = assertThrows(TimeLimitException.class, stream::readAllBytes);
                assertTrue(failed.mayComeLater());
                assertTrue(failed.getMessage().contains("127.0.0.1"), failed.getMessage());
            }
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(millis < 15_000, millis + " ms");
        }
    }

    @Test
    void a_get_goes_on_where_it_was_once_its_holder_is_back() throws Exception {
        byte[] bytes = random(20_000_000);
        try (WeirClient sender = cluster.client(0); WeirClient receiver = cluster.client(1);
                Coflow coflow = sender.register(CoflowOptions.named("back").flows(1).build())) {
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            try (BlockInputStream stream = receiver.open(coflow.id(), "b", SOON)) {
                byte[] head = stream.readNBytes(1_000_000);
                cluster.killAgent(0);
                cluster.startAgent(0);
                byte[] rest = stream.readAllBytes();
                assertEquals(bytes.length, head.length + rest.length);
                assertEquals(-1, Arrays.mismatch(rest, Arrays.copyOfRange(bytes, head.length, bytes.length)));
            }
        }
    }

    @Test
    void a_coordinator_that_is_away_is_an_error_within_the_limit_of_each_call() throws Exception {
        try (WeirClient client = cluster.client(0);
                Coflow coflow = client.register(CoflowOptions.named("alone").build())) {
            cluster.killCoordinator();
            long start = System.nanoTime();
            var register = assertThrows(WeirException.class,
                    () -> client.register(CoflowOptions.named("never").build()));
            assertInstanceOf(UnreachableException.class, register);
            assertTrue(register.getMessage().contains("127.0.0.1"), register.getMessage());
            assertThrows(UnreachableException.class, () -> client.seal(coflow.id()));
            assertThrows(UnreachableException.class, client::status);
            assertThrows(WeirException.class, () -> client.locate(coflow.id(), "b", Duration.ZERO));
            GetOptions options = SOON.withTimeLimit(Duration.ofSeconds(2));
            assertThrows(TimeLimitException.class, () -> client.getBytes(coflow.id(), "b", options, 10));
            // Four calls of 2 s, a get of 2 s, and as much again for a busy machine.
            long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(millis < 20_000, millis + " ms");
        }
    }

    @Test
    void a_lease_is_renewed_while_a_handle_is_open_and_ends_after_it() throws Exception {
        try (WeirClient driver = cluster.client(0); WeirClient other = cluster.client(1)) {
            Coflow coflow = driver.register(CoflowOptions.named("lease").lease(Duration.ofSeconds(3)).build());
            Thread.sleep(5_000);
            assertFalse(other.status(coflow.id()).hasEnded());
            assertFalse(coflow.hasEnded());
            coflow.close();
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (!other.status(coflow.id()).hasEnded() && System.nanoTime() < end) {
                Thread.sleep(200);
            }
            assertTrue(other.status(coflow.id()).hasEnded());
            assertThrows(CoflowEndedException.class, () -> other.keep(coflow.id()));
        }
    }

    @Test
    void a_client_without_a_coordinator_gets_from_holders_that_it_is_told() throws Exception {
        byte[] bytes = random(10_000);
        try (WeirClient sender = cluster.client(0);
                Coflow coflow = sender.register(CoflowOptions.named("told").build());
                WeirClient alone = WeirClient.builder().host(1).build()) {
            sender.put(coflow.id(), "b", ByteBuffer.wrap(bytes));
            GetOptions told = SOON.withHolders(List.of(cluster.dataAddress(0)));
            assertArrayEquals(bytes, alone.getBytes(coflow.id(), "b", told, 10_000));
            assertThrows(IllegalStateException.class, () -> alone.getBytes(coflow.id(), "b", SOON, 10_000));
            assertThrows(IllegalStateException.class, () -> alone.put(coflow.id(), "c", ByteBuffer.allocate(1)));
        }
    }
}

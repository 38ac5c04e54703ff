package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Gathers whose frames come by a relay, from an agent and a relay that are played by hand. */
@Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RelayedGatherTest extends GatherReading {
    private static final int HOST = 9;
    private static final int SITE = 4;
    private static final byte[][] RANGES = {bytes(1, 300_000), {}, bytes(2, 5)};
    private static final byte[] BLOCK = FakeAgent.block(RANGES);

    private final ConnectionPool pool = new ConnectionPool();

    private void run(InetSocketAddress agent, Ways ways, GatherLimits limits) throws IOException {
        new GatherReader(gather(RANGES.length), agent, HOST, limits, ways, pool, SocketConnection::connect, this::keep).run();
    }

    /** An agent that sends by relays whenever it may. */
    private static FakeAgent relaying() throws IOException {
        return saying(FakeAgent.answer(HolderStatus.RELAYED, BLOCK.length, Identity.drawn()));
    }

    private static Ways ways(FakeRelay... relays) {
        return new Ways(SITE, Arrays.stream(relays).map(FakeRelay::address).collect(java.util.stream.Collectors.toList()));
    }

    private void ends(FakeRelay.Behaviour relay, String why) throws IOException {
        got.clear();
        try (FakeAgent agent = relaying(); FakeRelay lying = new FakeRelay(relay)) {
            Ways ways = ways(lying);
            var failed = assertThrows(BrokenOffException.class, () -> run(agent.address(), ways, LONG));
            assertTrue(failed.getMessage().contains(why), failed.getMessage());
            assertNull(ways.draw(), "a relay that failed is done without for a while");
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {1, 31, 8, 262_152, 100_000})
    void a_flow_is_subscribed_to_and_comes_however_it_is_cut(int most) throws Exception {
        byte[] block = most > 31 ? BLOCK : FakeAgent.block(bytes(1, 500), new byte[0], bytes(2, 5));
        FakeAgent sender = saying(FakeAgent.answer(HolderStatus.RELAYED, block.length, Identity.drawn()));
        try (sender; FakeRelay relay = new FakeRelay((key, in, out) -> {
            out.write(FakeRelay.message(6, key, 0, new byte[0]));
            out.write(FakeRelay.relayed(key, block, most));
            in.read();
        })) {
            run(sender.address(), ways(relay), LONG);
            assertEquals(3, got.size());
            assertArrayEquals(bytes(2, 5), got.get(2));
            byte[] way = sender.requests.get(0).way;
            ByteBuffer said = ByteBuffer.wrap(way).order(ByteOrder.LITTLE_ENDIAN);
            assertArrayEquals(new byte[] {'W', 'R', 'L', 'Y', 1, 0, 0, 0, SITE, 0, 0, 0}, Arrays.copyOf(way, 12));
            assertArrayEquals(new byte[] {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1, 127, 0, 0, 1}, Arrays.copyOfRange(way, 16, 32));
            assertEquals(relay.address().getPort(), said.getShort(32) & 0xffff);
            byte[] subscribed = relay.subscriptions.get(0);
            assertArrayEquals(new byte[] {1, 0, 8, 0, 16, 0, 0, 0}, Arrays.copyOf(subscribed, 8));
            assertArrayEquals(new byte[] {'W', 'E', 'I', 'R', 2, 1, 0, 0}, Arrays.copyOfRange(subscribed, 32, 40));
            assertArrayEquals(new byte[] {1, 7, 8, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 9, 0},
                    Arrays.copyOfRange(subscribed, 48, 68));
            assertArrayEquals(Arrays.copyOfRange(way, 12, 16), Arrays.copyOfRange(subscribed, 68, 72), "the mapper");
        }
    }

    @Test
    void an_agent_that_sends_itself_is_read_from_and_the_relay_is_left_for_later() throws Exception {
        try (FakeAgent agent = saying(FakeAgent.sent(BLOCK)); FakeRelay relay = new FakeRelay((key, in, out) -> {})) {
            Ways ways = ways(relay);
            run(agent.address(), ways, LONG);
            assertGot(RANGES);
            assertNotNull(agent.requests.get(0).way);
            assertTrue(relay.subscriptions.isEmpty());
            Connection idle = pool.take(relay.address());
            assertNotNull(idle);
            idle.close();
        }
    }

    @Test
    void an_agent_that_answers_by_relays_unasked_is_refused() throws Exception {
        try (FakeAgent agent = relaying()) {
            var refused = assertThrows(HolderException.class, () -> run(agent.address(), (Ways) null, LONG));
            assertEquals(HolderStatus.RELAYED, refused.status());
            assertNull(agent.requests.get(0).way);
        }
    }

    @Test
    void a_relay_that_nobody_is_at_is_done_without() throws Exception {
        InetSocketAddress nowhere;
        try (ServerSocket gone = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            nowhere = (InetSocketAddress) gone.getLocalSocketAddress();
        }
        Ways ways = new Ways(SITE, List.of(nowhere));
        try (FakeAgent agent = saying(FakeAgent.sent(BLOCK))) {
            run(agent.address(), ways, LONG);
            assertGot(RANGES);
            assertNull(agent.requests.get(0).way);
            assertNull(ways.draw());
        }
    }

    @Test
    void other_relays_are_asked_where_one_failed_and_flows_have_keys_of_their_own() {
        var one = new InetSocketAddress(InetAddress.getLoopbackAddress(), 1);
        var two = new InetSocketAddress(InetAddress.getLoopbackAddress(), 2);
        Ways ways = new Ways(SITE, List.of(one, two));
        ways.avoid(one);
        byte[] last = {};
        for (int time = 0; time < 20; time++) {
            Way way = ways.draw();
            assertEquals(two, way.relay());
            byte[] key = way.key(7, HOST, 3);
            assertNotEquals(Arrays.toString(last), Arrays.toString(key));
            last = key;
        }
        ways.avoid(two);
        assertNull(ways.draw());
    }

    @Test
    void what_a_relay_must_not_say_ends_the_gather_and_the_relay_is_left_alone() throws Exception {
        byte[] frames = FakeAgent.frames(BLOCK);
        byte[] first = Arrays.copyOf(frames, 1_000);
        ends((key, in, out) -> out.write(FakeRelay.message(5, key, 0, new byte[0])), "gave the flow up");
        ends((key, in, out) -> out.close(), "closed the connection");
        ends((key, in, out) -> {
            out.write(FakeRelay.message(2, key, 0, first));
            out.write(FakeRelay.message(2, key, 999, first));
            in.read();
        }, "something else than the next bytes");
        ends((key, in, out) -> says(in, out, FakeRelay.message(2, new byte[16], 0, first)), "something else");
        ends((key, in, out) -> says(in, out, FakeRelay.message(3, key, 0, new byte[0])), "something else");
        ends((key, in, out) -> says(in, out, FakeRelay.message(2, key, 0, new byte[0])), "something else");
        ends((key, in, out) -> says(in, out, FakeRelay.message(2, key, 0, new byte[262_153])), "something else");
        byte[] other = FakeRelay.message(2, new byte[16], 0, first);
        other[0] = 2;
        ends((key, in, out) -> says(in, out, other), "version 2");
        byte[] huge = FakeRelay.message(2, new byte[16], 0, first);
        ByteBuffer.wrap(huge).order(ByteOrder.LITTLE_ENDIAN).putInt(4, -1);
        ends((key, in, out) -> {
            System.arraycopy(key, 0, huge, 8, 16);
            says(in, out, huge);
        }, "something else");
    }

    private static void says(InputStream in, OutputStream out, byte[] said) throws IOException {
        out.write(said);
        in.read();
    }

    @Test
    void a_relay_that_says_nothing_but_that_the_flow_goes_on_holds_a_gather_no_longer_than_its_limit() throws Exception {
        try (FakeAgent agent = relaying(); FakeRelay relay = new FakeRelay((key, in, out) -> {
            byte[] alive = FakeRelay.message(6, key, 0, new byte[0]);
            byte[] many = new byte[alive.length * 1_000];
            for (int at = 0; at < many.length; at += alive.length) {
                System.arraycopy(alive, 0, many, at, alive.length);
            }
            while (true) {
                out.write(many);
            }
        })) {
            long start = System.nanoTime();
            assertThrows(TimeLimitException.class, () -> run(agent.address(), ways(relay), limits(10_000, 200, 1_000)));
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(10));
        }
    }

    @Test
    void a_frame_without_its_checksum_is_told_to_the_agent() throws Exception {
        byte[] bad = BLOCK.clone();
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.RELAYED, BLOCK.length, Identity.drawn()));
            assertArrayEquals(new byte[] {0x15, 1, 0, 0, 0, 0, 0, 0, 0}, in.readNBytes(9));
            bad[0] = 1;
        });
        try (agent; FakeRelay relay = new FakeRelay((key, in, out) -> {
            byte[] frames = FakeAgent.frames(BLOCK);
            frames[FRAME + 100]++;
            out.write(FakeRelay.message(2, key, 0, Arrays.copyOf(frames, FRAME)));
            out.write(FakeRelay.message(2, key, FRAME, Arrays.copyOfRange(frames, FRAME, frames.length)));
            in.read();
        })) {
            var failed = assertThrows(ProtocolException.class, () -> run(agent.address(), ways(relay), LONG));
            assertTrue(failed.getMessage().contains("frame 1 does not have its checksum"), failed.getMessage());
            for (int wait = 0; bad[0] != 1 && wait < 200; wait++) {
                Thread.sleep(10);
            }
            assertEquals(1, bad[0], "the agent was told");
        }
    }

    @Test
    void an_agent_that_gives_the_flow_up_is_noticed_though_the_relay_says_nothing_of_it() throws Exception {
        FakeAgent agent = new FakeAgent((request, in, out) -> {
            out.write(FakeAgent.answer(HolderStatus.RELAYED, BLOCK.length, Identity.drawn()));
            Thread.sleep(100);
            throw new IOException("it ends");
        });
        long start = System.nanoTime();
        try (agent; FakeRelay relay = new FakeRelay((key, in, out) -> in.read())) {
            var failed = assertThrows(BrokenOffException.class, () -> run(agent.address(), ways(relay), LONG));
            assertTrue(failed.getMessage().contains("it closed the connection"), failed.getMessage());
            assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(5));
        }
    }

    @Test
    void a_paused_flow_is_waited_for_while_its_relay_says_that_it_goes_on_and_a_silent_relay_is_left() throws Exception {
        GatherLimits shortSilence = limits(10_000, 300, 20_000);
        try (FakeAgent agent = relaying(); FakeRelay relay = new FakeRelay((key, in, out) -> {
            for (int time = 0; time < 7; time++) {
                out.write(FakeRelay.message(6, key, 0, new byte[0]));
                Thread.sleep(1_000);
            }
            out.write(FakeRelay.relayed(key, BLOCK, 100_000));
            in.read();
        })) {
            run(agent.address(), ways(relay), shortSilence);
            assertGot(RANGES);
        }
        long start = System.nanoTime();
        ends((key, in, out) -> {
            out.write(FakeRelay.message(6, key, 0, new byte[0]));
            in.read();
        }, "the relay is silent");
        assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(9));
    }
}

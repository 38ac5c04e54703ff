package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class GatherTest {
    private static final byte[] TOKEN = {50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65};

    private static byte[] bytes(ByteBuffer from) {
        byte[] bytes = new byte[from.remaining()];
        from.get(bytes);
        return bytes;
    }

    @Test
    void a_gather_has_its_fields_where_the_protocol_has_them() {
        Gather gather = new Gather(new Store("app-1", "µ", TOKEN), 0x0102030405060708L, 9, 0x0a0b0c0d)
                .range((1L << 40) + 2, 3, 4).range(5, 0, 0x01020304);
        byte[] expected = {
            'W', 'G', 'T', 'H', 1, 5, 2, 0,
            8, 7, 6, 5, 4, 3, 2, 1,
            0, 0, 0, 0, 0, 0, 0, 0,
            7, 0, 0, 0, 9, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65,
            0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 0, 0,
            'a', 'p', 'p', '-', '1', (byte) 0xc2, (byte) 0xb5,
            2, 0, 0, 0, 0, 1, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0,
            5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1,
        };
        assertArrayEquals(expected, bytes(gather.encode(7)));
        assertArrayEquals(expected, bytes(gather.encode(7)), "it may be said again");
    }

    @Test
    void the_longest_names_and_most_ranges_fit_and_no_more() {
        Store store = new Store("a".repeat(255), "µ".repeat(127) + "b", TOKEN);
        Gather gather = new Gather(store, -1, -1, 0);
        for (int at = 0; at < Gather.MAX_RANGES; at++) {
            gather.range(at, at, at + 1);
        }
        assertThrows(IllegalStateException.class, () -> gather.range(0, 0, 1));
        assertEquals(1_024, gather.size());
        byte[] said = bytes(gather.encode(-1));
        assertEquals(72 + 255 + 255 + 16 * 1_024, said.length);
        assertArrayEquals(new byte[] {'W', 'G', 'T', 'H', 1, -1, -1, 0}, Arrays.copyOf(said, 8));
        assertArrayEquals(new byte[] {0, 4, 0, 0}, Arrays.copyOfRange(said, 68, 72));
        assertArrayEquals(new byte[] {-1, 3, 0, 0, 0, 0, 0, 0, -1, 3, 0, 0, 0, 4, 0, 0},
                Arrays.copyOfRange(said, said.length - 16, said.length));
    }

    @ParameterizedTest
    @CsvSource({"0,0", "1,1", "2,1", "-1,1", "-2,-1", "0,-1", "2147483647,-2147483648"})
    void what_is_no_range_of_reducers_is_refused(int first, int end) {
        Gather gather = new Gather(new Store("a", "0", TOKEN), 1, 0, 0);
        assertThrows(IllegalArgumentException.class, () -> gather.range(0, first, end));
        assertEquals(0, gather.size());
    }

    @Test
    void stores_have_names_and_a_token_within_their_bounds() {
        for (String bad : new String[] {"", "a".repeat(256), "µ".repeat(128)}) {
            assertThrows(IllegalArgumentException.class, () -> new Store(bad, "0", TOKEN));
            assertThrows(IllegalArgumentException.class, () -> new Store("a", bad, TOKEN));
        }
        for (int length : new int[] {0, 15, 17}) {
            assertThrows(IllegalArgumentException.class, () -> new Store("a", "0", new byte[length]));
        }
        byte[] token = Store.newToken();
        assertEquals(16, token.length);
        assertFalse(Arrays.equals(token, Store.newToken()));
        Store store = new Store("a", "0", token);
        token[0]++;
        assertNotEquals(token[0], store.token()[0], "a store has its own copy");
        assertFalse(store.toString().contains(Arrays.toString(store.token())), "a token is told to nobody");
        assertTrue(store.toString().contains("executor 0 of a"));
    }

    @Test
    void limits_are_more_than_nothing() {
        Duration one = Duration.ofSeconds(1);
        for (Duration bad : new Duration[] {Duration.ZERO, Duration.ofNanos(-1)}) {
            assertThrows(IllegalArgumentException.class, () -> new GatherLimits(bad, one, one, one));
            assertThrows(IllegalArgumentException.class, () -> new GatherLimits(one, bad, one, one));
            assertThrows(IllegalArgumentException.class, () -> new GatherLimits(one, one, bad, one));
            assertThrows(IllegalArgumentException.class, () -> new GatherLimits(one, one, one, bad));
        }
        new GatherLimits(one, one, one, Duration.ofSeconds(Long.MAX_VALUE));
    }

    @Test
    void a_gather_without_ranges_and_one_of_a_closed_client_say_nothing() throws Exception {
        Duration one = Duration.ofSeconds(1);
        GatherLimits limits = new GatherLimits(one, one, one, one);
        try (FakeAgent agent = new FakeAgent((request, in, out) -> {})) {
            InetSocketAddress address = agent.address();
            StoreClient client = new StoreClient(Path.of("none"));
            Gather gather = new Gather(new Store("a", "0", TOKEN), 1, 0, 0);
            assertThrows(IllegalArgumentException.class, () -> client.gather(address, gather, limits, (at, bytes) -> {}));
            gather.range(0, 0, 1);
            client.close();
            client.close();
            assertThrows(ClientClosedException.class, () -> client.gather(address, gather, limits, (at, bytes) -> {}));
            assertTrue(agent.requests.isEmpty());
        }
    }
}

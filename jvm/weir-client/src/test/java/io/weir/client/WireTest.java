package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

class WireTest {
    private static ByteBuffer answer(int magic, int version, int status, long size) {
        ByteBuffer bytes = ByteBuffer.allocate(Wire.RESPONSE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(magic).put((byte) version).put((byte) status).putShort((short) 0).putLong(size);
        return bytes;
    }

    @Test
    void a_request_has_its_fields_where_the_protocol_has_them() {
        Identity identity = Identity.ofWire(new byte[] {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
        byte[] request = Wire.request(0x0102030405060708L, 0x40000, 3, 4, identity, Wire.name("aµ")).array();
        byte[] expected = {
            'W', 'E', 'I', 'R', 2, 3, 0, 0, 0, 0,
            8, 7, 6, 5, 4, 3, 2, 1,
            0, 0, 4, 0, 0, 0, 0, 0,
            3, 0, 0, 0, 4, 0, 0, 0,
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
            'a', (byte) 0xc2, (byte) 0xb5,
        };
        assertArrayEquals(expected, request);
        assertArrayEquals(new byte[] {0x15, 8, 7, 6, 5, 4, 3, 2, 1}, Wire.nak(0x0102030405060708L).array());
    }

    @Test
    void names_beyond_their_bound_are_refused_before_anything_is_said() {
        assertEquals(255, Wire.name("µ".repeat(127) + "a").length);
        assertThrows(IllegalArgumentException.class, () -> Wire.name("µ".repeat(128)));
        assertThrows(IllegalArgumentException.class, () -> Wire.name(""));
    }

    @Test
    void answers_that_are_none_are_told_apart_from_statuses() throws Exception {
        for (HolderStatus status : HolderStatus.values()) {
            assertEquals(status, Wire.status(answer(Wire.MAGIC, 2, status.ordinal(), 0)));
        }
        assertThrows(ProtocolException.class, () -> Wire.status(answer(0x50545448, 2, 0, 0)));
        assertThrows(ProtocolException.class, () -> Wire.status(answer(Wire.MAGIC, 3, 0, 0)));
        assertThrows(ProtocolException.class, () -> Wire.status(answer(Wire.MAGIC, 2, 11, 0)));
        assertThrows(ProtocolException.class, () -> Wire.status(answer(Wire.MAGIC, 2, 255, 0)));
    }

    @Test
    void sizes_that_no_block_has_are_refused() throws Exception {
        assertEquals(1L << 43, Wire.size(answer(Wire.MAGIC, 2, 0, 1L << 43)));
        assertThrows(ProtocolException.class, () -> Wire.size(answer(Wire.MAGIC, 2, 0, (1L << 43) + 1)));
        assertThrows(ProtocolException.class, () -> Wire.size(answer(Wire.MAGIC, 2, 0, -1)));
        assertThrows(ProtocolException.class, () -> Wire.size(answer(Wire.MAGIC, 2, 0, Long.MIN_VALUE)));
    }

    @Test
    void frames_lie_on_a_grid_and_the_last_is_short() {
        long size = 2L * Wire.FRAME_BYTES + 5;
        assertEquals(3, Wire.frameCount(size));
        assertEquals(Wire.FRAME_BYTES, Wire.frameLength(size, Wire.FRAME_BYTES));
        assertEquals(5, Wire.frameLength(size, 2L * Wire.FRAME_BYTES));
        assertEquals(0, Wire.frameLength(size, size));
        assertEquals(Wire.FRAME_BYTES, Wire.frameLength(1L << 43, (1L << 43) - Wire.FRAME_BYTES));
    }

    @Test
    void addresses_are_read_as_people_write_them() {
        assertEquals("10.0.0.1:7070", HostPort.parse("10.0.0.1:7070").toString());
        assertEquals("[::1]:7070", HostPort.parse("[::1]:7070").toString());
        for (String bad : new String[] {"", "a", "a:", "a:0", "a:65536", ":1", "::1:7070", "a:b"}) {
            assertThrows(IllegalArgumentException.class, () -> HostPort.parse(bad), bad);
        }
    }
}

package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ContentHashTest {
    private static byte[] counting(int length) {
        byte[] bytes = new byte[length];
        for (int at = 0; at < length; at++) {
            bytes[at] = (byte) (at % 251);
        }
        return bytes;
    }

    /** Values of XXH3-128 with seed 0 over bytes that count to 250 and begin anew; the highest bit is set besides. */
    @ParameterizedTest
    @CsvSource({
        "0,99aa06d3014798d86001c324468d497f",
        "1,a6cd5e9392000f6ac44bdff4074eecdb",
        "2,6a4a5274c1b0d3add6645fc3051a9457",
        "3,e3b55f57945a17cf5f4299fc161c9cbb",
        "4,eb70bf5fc779e9e6a6111d53e80a3db5",
        "8,e1e4432a62217fe4cfd50c61c8bb98c1",
        "9,16c769d83e4aebce907931979dca3746",
        "16,729506318276 07e2842812cc870dcae2",
        "17,685bc458b37d057fc06e233df7729217",
        "32,25e7c9b3424ceed2457d9566b6fcd697",
        "33,02175c3aabb00637e08d84951339de86",
        "128,14792fc3af88dc6c05321a0b64d67b41",
        "129,dd5e74ac6b45f54ebc30b63382b09a3b",
        "240,65b5be86da5540e7c92b68e16f83bbb6",
        "241,1da1cb61bcb8a2a102e8cd95421c6d02",
        "1024,d0ac1f7b93bf57b9e5d78bafa45b2aa5",
        "10240,4f6375cca7ece1e1bcd63266df6e2244",
    })
    void the_hash_is_xxh3_whatever_pieces_bytes_come_in(int length, String hash) {
        String known = hash.replace(" ", "");
        char first = Character.forDigit(Character.digit(known.charAt(0), 16) | 8, 16);
        String expected = first + known.substring(1);
        byte[] bytes = counting(length);
        assertEquals(expected, ContentHash.of(ByteBuffer.wrap(bytes)).toString());
        for (int piece : new int[] {1, 63, 64, 65, 1023, 1025}) {
            ContentHash pieces = new ContentHash();
            for (int at = 0; at < length; at += piece) {
                pieces.update(ByteBuffer.wrap(bytes, at, Math.min(piece, length - at)));
            }
            assertEquals(expected, pieces.identity().toString(), "in pieces of " + piece);
        }
    }

    /** Far beyond where compilers of the JVM take over, in two shapes of input. The value is that of the interpreter alone. */
    @Test
    void a_large_block_has_its_hash_in_compiled_code_too() {
        byte[] bytes = new byte[50_000_000];
        new java.util.Random(50_000_000).nextBytes(bytes);
        ByteBuffer frame = ByteBuffer.allocateDirect(Wire.FRAME_BYTES);
        for (int round = 0; round < 4; round++) {
            assertEquals("92e3b575fd85cef60f5644f32d667a32", ContentHash.of(ByteBuffer.wrap(bytes)).toString());
            ContentHash frames = new ContentHash();
            for (int at = 0; at < bytes.length; at += Wire.FRAME_BYTES) {
                frame.clear();
                frame.put(bytes, at, Math.min(Wire.FRAME_BYTES, bytes.length - at)).flip();
                frames.update(frame.asReadOnlyBuffer());
            }
            assertEquals("92e3b575fd85cef60f5644f32d667a32", frames.identity().toString());
        }
    }

    @Test
    void hashes_and_drawn_identities_are_told_apart_and_survive_the_wire() {
        Identity hash = ContentHash.of(ByteBuffer.allocate(0));
        assertTrue(hash.isContent() && hash.isKnown());
        Identity drawn = Identity.drawn();
        assertTrue(!drawn.isContent() && drawn.isKnown());
        assertEquals(drawn, Identity.ofWire(drawn.toWire()));
        assertEquals(Identity.UNKNOWN, Identity.ofWire(new byte[3]));
    }
}

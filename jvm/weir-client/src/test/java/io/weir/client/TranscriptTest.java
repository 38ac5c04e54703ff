package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The recorded transcripts of the data plane and of gathers; see docs/protocol.md. {@code relayed} is of a block that comes by
 * relays, and not of a gather: this client offers no way for blocks.
 */
class TranscriptTest {
    static final Path FOLDER = Path.of(System.getProperty("weir.transcripts", "../../docs/transcripts"));

    private static String how(Script script, Script.Get get, ConnectionPool pool) throws IOException {
        GetOptions options = GetOptions.DEFAULT.withHolders(script.agents).withTimeLimit(Duration.ofSeconds(20));
        BlockName block = new BlockName(get.coflow, get.block, get.host);
        Finder finder = new Located(null, block, List.<InetSocketAddress>copyOf(script.agents));
        long at = 0;
        try (BlockReader reader = new BlockReader(block, options, finder, script, pool, Long.MAX_VALUE)) {
            for (ByteBuffer frame = reader.next(); frame != null; frame = reader.next()) {
                while (frame.hasRemaining()) {
                    assertEquals((byte) ((31 * at + 7) % 251), frame.get(), "byte " + at);
                    at++;
                }
            }
            assertEquals(reader.size(), at);
            return "ok";
        } catch (CoflowEndedException e) {
            return "ended";
        } catch (BlockGoneException e) {
            return "gone";
        } catch (BlockChangedException e) {
            assertEquals(at, e.read());
            return "changed";
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "small", "empty", "frames", "next", "resume", "anew", "changed", "elsewhere", "ended", "gone", "doubt"
    })
    void this_client_says_what_the_transcript_says_however_it_is_cut(String name) throws IOException {
        assertTrue(Files.isDirectory(FOLDER), FOLDER + " is not there; the transcripts are part of the repository");
        for (int seed = 0; seed < 20; seed++) {
            Script script = new Script(FOLDER, name, seed);
            assertTrue(!script.gets.isEmpty() && !script.agents.isEmpty());
            try (ConnectionPool pool = new ConnectionPool()) {
                for (Script.Get get : script.gets) {
                    assertEquals(get.end, how(script, get, pool), name + ", seed " + seed);
                }
                script.end();
            }
        }
    }

    /** What stands in a transcript as the message of a type, each one. */
    private static List<String> messages(String name, String type) throws IOException {
        return Files.readAllLines(FOLDER.resolve(name + ".txt")).stream().map(line -> line.split(" "))
                .filter(words -> words.length == 4 && words[2].equals(type)).map(words -> words[3]).collect(Collectors.toList());
    }

    private static String digits(byte[] bytes) {
        return IntStream.range(0, bytes.length).mapToObj(at -> String.format("%02x", bytes[at])).collect(Collectors.joining());
    }

    @Test
    void stores_are_attached_and_detached_as_the_transcripts_have_it() throws IOException {
        byte[] token = new byte[Store.TOKEN_BYTES];
        Arrays.fill(token, (byte) 0x55);
        Store store = new Store("app-1", "0", token);
        String attachment = digits(StoreClient.attachment(store, List.of(Path.of("/data/blockmgr-1")), 64).toByteArray());
        assertEquals(List.of(attachment, attachment), messages("gathered", "AttachStoreRequest"));
        String detachment = digits(StoreClient.detachment(store).toByteArray());
        assertTrue(messages("forbidden", "DetachStoreRequest").contains(detachment));
    }

    private static String how(Script script, Script.Gathering gathering, ConnectionPool pool) throws IOException {
        Duration limit = Duration.ofSeconds(20);
        GatherLimits limits = new GatherLimits(limit, limit, limit, limit);
        AtomicInteger whole = new AtomicInteger();
        GatherSink sink = (index, bytes) -> {
            assertEquals(whole.getAndIncrement(), index);
            byte[] got = new byte[bytes.remaining()];
            bytes.get(got);
            assertArrayEquals(gathering.range(index), got, "range " + index);
        };
        InetSocketAddress agent = script.agents.get(0);
        try {
            new GatherReader(gathering.gather, agent, gathering.host, limits, gathering.ways, pool, script, sink).run();
            assertEquals(gathering.gather.size(), whole.get());
            return "ok";
        } catch (HolderException e) {
            assertEquals(0, whole.get());
            return refused(e.status());
        } catch (BrokenOffException e) {
            return "broken after " + whole + " ranges";
        } catch (ProtocolException e) {
            assertTrue(e.getMessage().contains("does not have its checksum"), e.getMessage());
            return "doubt after " + whole + " ranges";
        }
    }

    private static String refused(HolderStatus status) {
        switch (status) {
            case NO_SUCH_BLOCK:
                return "absent";
            case COFLOW_ENDED:
                return "ended";
            case UNREADABLE:
                return "unreadable";
            case FORBIDDEN:
                return "forbidden";
            default:
                return status.toString();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"gathered", "broken", "detoured", "forbidden"})
    void a_gather_says_what_the_transcript_says_and_hands_out_what_its_executor_wrote_however_it_is_cut(String name)
            throws IOException {
        for (int seed = 0; seed < 20; seed++) {
            Script script = new Script(FOLDER, name, seed);
            assertFalse(script.gatherings.isEmpty());
            try (ConnectionPool pool = new ConnectionPool()) {
                for (Script.Gathering gathering : script.gatherings) {
                    assertEquals(gathering.end, how(script, gathering, pool), name + ", seed " + seed);
                }
                script.end();
            }
        }
    }
}

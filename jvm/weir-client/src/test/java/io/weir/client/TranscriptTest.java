package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The recorded transcripts of the data plane; see docs/protocol.md. {@code relayed} needs relays, which this client does not use. */
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
}

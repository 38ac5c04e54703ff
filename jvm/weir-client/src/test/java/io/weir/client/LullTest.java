package io.weir.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** A receiver of pieces that come at a rate, on a clock of the test's own. */
class LullTest {
    private static final int PIECE = 11_584;

    private final Lull lull = new Lull();
    private long now = TimeUnit.HOURS.toNanos(1);
    private int reads;

    /** Reads pieces that come {@code gap} nanoseconds after each other into a frame; returns how late the last byte was read. */
    private long frame(int pieces, long gap) {
        long first = now;
        int read = 0;
        while (read < pieces * PIECE) {
            int asked = pieces * PIECE - read;
            now += lull.nanos(asked, now);
            int come = (int) Math.min(pieces, 1 + (now - first) / gap) * PIECE - read;
            if (come == 0) {
                // The selector waits for the next one.
                now = first + read / PIECE * gap;
                come = PIECE;
            }
            reads++;
            read += come;
            lull.read(come, asked, now);
        }
        return now - (first + (pieces - 1) * gap);
    }

    /** Five pieces are read, so many milliseconds after each other; it is the time of the last one then. */
    private void pieces(int milliseconds) {
        for (int at = 0; at < 5; at++) {
            now += TimeUnit.MILLISECONDS.toNanos(milliseconds);
            lull.read(PIECE, 1 << 20, now);
        }
    }

    @Test
    void aRateOfSmallPiecesIsReadSeldom() {
        // 3 MB/s, 22 pieces a frame.
        long gap = 1_000_000_000L * PIECE / 3_000_000;
        for (int frames = 0; frames < 20; frames++) {
            long late = frame(22, gap);
            assertTrue(late <= 2 * gap, "frame " + frames + " was " + late + " ns late");
            now += gap;
        }
        assertTrue(reads < 20 * 22 / 2, reads + " reads");
    }

    @Test
    void aFastConnectionIsNotLeftAlone() {
        // 1 GB/s: bytes are there before a sleep would end.
        long gap = PIECE;
        for (int frames = 0; frames < 20; frames++) {
            frame(22, gap);
            now += gap;
            assertEquals(0, lull.nanos(256 << 10, now));
        }
    }

    @Test
    void noByteIsReadLaterThanTheLongestLull() {
        lull.read(PIECE, 2 * PIECE, now);
        now += Lull.PAUSE_NANOS;
        lull.read(1, 2 * PIECE, now);
        assertEquals(Lull.LONGEST_NANOS, lull.nanos(PIECE, now));
        assertEquals(0, lull.nanos(PIECE, now + Lull.LONGEST_NANOS));
    }

    @Test
    void afterAPauseNothingIsKnown() {
        pieces(20);
        assertTrue(lull.nanos(1 << 20, now) > 0);
        now += Lull.PAUSE_NANOS + 1;
        lull.read(PIECE, 1 << 20, now);
        assertEquals(0, lull.nanos(1 << 20, now));
    }

    @Test
    void whereMoreIsThereOneReadsOn() {
        lull.read(100, 200, now);
        now += TimeUnit.MILLISECONDS.toNanos(20);
        lull.read(100, 200, now);
        assertTrue(lull.nanos(200, now) > 0);
        lull.read(200, 200, now);
        assertEquals(0, lull.nanos(200, now));
    }

    @Test
    void aFewBytesThatAreLeftAreNotWaitedForLong() {
        pieces(10);
        assertTrue(lull.nanos(1 << 20, now) >= TimeUnit.MILLISECONDS.toNanos(25));
        assertEquals(0, lull.nanos(8, now));
    }

    @Test
    void whatWasReadBeforeAQuestionSaysNothingOfItsAnswer() {
        pieces(10);
        assertTrue(lull.nanos(1 << 20, now) > 0);
        lull.forget();
        assertEquals(0, lull.nanos(1 << 20, now));
    }
}

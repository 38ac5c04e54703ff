package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.Admission;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Sums of executors, and the lines that are made of them. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StageLinesTest {
    private static final String NOTHING = "no coflow. 0 B by Weir, 0 B by Spark. 0 fetches waited 0.00 s in all for the driver's answers."
            + " Heard from 0 of 0 executors.";

    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private final List<String> said = new CopyOnWriteArrayList<>();

    @AfterEach
    void stop() {
        clock.shutdownNow();
    }

    private StageLines lines(long delayMs) {
        return new StageLines(clock, delayMs, said::add);
    }

    private void awaitSaid(int count) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (said.size() < count && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        assertEquals(count, said.size(), "" + said);
    }

    private static Moved moved(long fetches, long waitedNanos, long weir) {
        Moved moved = new Moved();
        moved.fetches = fetches;
        moved.waitedNanos = waitedNanos;
        moved.weirBytes = weir;
        return moved;
    }

    private static StageCoflows.Life life(long coflow, long job, Long... parents) {
        StageCoflows.Life life = new StageCoflows.Life();
        life.coflow = coflow;
        life.job = job;
        life.parents = List.of(parents);
        return life;
    }

    @Test
    void a_line_says_what_moved_how_why_and_who_told() {
        Moved moved = moved(60, 123_000_000, 96_000_000);
        moved.spark(Why.NO_COFLOW, 800_000);
        moved.spark(Why.PAUSED, 400_000);
        assertEquals("Stage 3.0: coflow 17 of the job of coflow 12, after 14, 15. 96.0 MB by Weir, 1.2 MB by Spark (800.0 kB: no coflow was"
                + " known; 400.0 kB: took longer than spark.weir.patience). 60 fetches waited 0.12 s in all for the driver's answers."
                + " Heard from 6 of 7 executors.", StageLine.of(3, 0, life(17, 12, 14L, 15L), moved, 6, 7));
        assertEquals("Stage 3.1: coflow 18446744073709551615. 0 B by Weir, 0 B by Spark. 1 fetch waited 0.00 s in all for the driver's"
                + " answers. Heard from 1 of 1 executor.", StageLine.of(3, 1, life(-1, 0), moved(1, 0, 0), 1, 0));
        assertEquals("Stage 4.0: " + NOTHING, StageLine.of(4, 0, null, new Moved(), 0, 0));
        assertEquals("Stage 4.0: " + NOTHING, StageLine.of(4, 0, life(0, 12, 3L), new Moved(), 0, 0));
        Long[] many = LongStream.rangeClosed(1, 100).boxed().toArray(Long[]::new);
        assertTrue(StageLine.of(4, 0, life(200, 1, many), new Moved(), 0, 0).contains(", after 1, 2, 3, 4, 5 and 95 more. "));
    }

    @Test
    void a_line_says_what_became_of_a_deadline() {
        StageCoflows.Life life = life(1, 0);
        life.hasDeadline = true;
        assertTrue(StageLine.of(1, 0, life, new Moved(), 0, 0).contains(" It is not known what became of its deadline. "));
        life.admission = Admission.REFUSED;
        assertTrue(StageLine.of(1, 0, life, new Moved(), 0, 0).contains(" Its deadline was refused, so it moved without one. "));
        life.admission = Admission.ADMITTED;
        assertTrue(StageLine.of(1, 0, life, new Moved(), 0, 0).contains(" Its deadline was admitted, and missed. "));
        life.metDeadline = true;
        assertTrue(StageLine.of(1, 0, life, new Moved(), 0, 0).contains(" Its deadline was met. "));
        life.admission = Admission.UNDECIDED;
        assertTrue(StageLine.of(1, 0, life, new Moved(), 0, 0).contains(" Nothing was decided on its deadline. "));
    }

    @Test
    void sizes_are_written_in_units_of_a_thousand() {
        Object[][] sizes = {{0L, "0 B"}, {999L, "999 B"}, {1_000L, "1.0 kB"}, {999_949L, "999.9 kB"}, {999_950L, "1.0 MB"},
            {192_000_000L, "192.0 MB"}, {Long.MAX_VALUE, "9.2 EB"}};
        for (Object[] size : sizes) {
            assertEquals(size[1], StageLine.size((long) size[0]));
        }
    }

    @Test
    void sums_come_apart_as_they_were_made_and_never_overflow() {
        Moved moved = moved(1, 2, 3);
        for (Why why : Why.values()) {
            moved.spark(why, 10 + why.ordinal());
        }
        assertEquals(moved.encode(), Moved.parse(moved.encode()).encode());
        // 10 + 11 + ... + 19.
        assertEquals(145, Moved.parse(moved.encode()).spark());
        Moved most = Moved.parse(Long.MAX_VALUE + ",-5," + Long.MAX_VALUE + ",PAUSED=" + Long.MAX_VALUE + ",FAILED=-7,LARGE=9");
        most.add(moved);
        most.add(most);
        assertEquals(Long.MAX_VALUE, most.fetches);
        assertEquals(4, most.waitedNanos, "what is below 0 is not counted");
        assertEquals(Long.MAX_VALUE, most.spark());
        for (String bad : new String[] {"", ",", "1,2", "a,b,c", "1,2,3,", "1,2,3,PAUSED", "1,2,3,=4", "1,2,3,paused=4"}) {
            assertThrows(IllegalArgumentException.class, () -> Moved.parse(bad), bad);
        }
    }

    @Test
    void a_line_is_written_once_and_what_is_told_later_is_lost() throws Exception {
        StageLines lines = lines(100);
        lines.begin(1, 0);
        lines.begin(1, 0);
        lines.ran(1, 0, "1");
        lines.ran(1, 0, "2");
        lines.heard(1, 0, "1", moved(1, 0, 100));
        lines.heard(1, 0, "1", moved(1, 0, 200));
        lines.end(1, 0, life(5, 0));
        lines.end(1, 0, null);
        lines.heard(1, 0, "3", moved(1, 0, 300));
        awaitSaid(1);
        assertTrue(said.get(0).startsWith("Stage 1.0: coflow 5. 600 B by Weir, "), said.get(0));
        assertTrue(said.get(0).endsWith(" 3 fetches waited 0.00 s in all for the driver's answers. Heard from 2 of 2 executors."), said.get(0));
        lines.heard(1, 0, "2", moved(1, 0, 1));
        lines.heard(9, 0, "2", moved(1, 0, 1));
        lines.ran(9, 0, "2");
        lines.end(9, 0, null);
        assertEquals(2, lines.sumsLost.getCount());
        assertEquals(0, lines.size());
    }

    @Test
    void attempts_and_executors_are_bounded() {
        StageLines lines = lines(60_000);
        for (int stage = 0; stage < 50_000; stage++) {
            lines.begin(stage, 0);
        }
        assertEquals(StageLines.MAX_ATTEMPTS, lines.size());
        lines.heard(0, 0, "1", moved(1, 0, 1));
        assertEquals(1, lines.sumsLost.getCount(), "the eldest has no line");
        for (int executor = 0; executor < 2 * StageLines.MAX_EXECUTORS; executor++) {
            lines.heard(49_999, 0, "e" + executor, moved(1, 0, 1));
            lines.ran(49_999, 0, "e" + executor);
        }
        lines.end(49_999, 0, null);
        IntStream.range(0, 2 * StageLines.MAX_EXECUTORS).forEach(executor -> lines.ends("e" + executor));
        lines.close();
        assertEquals(1, said.size(), "of those that are not over nothing is said");
        assertTrue(said.get(0).endsWith("20000 fetches waited 0.00 s in all for the driver's answers. Heard from 10000 of 10000 executors."));
    }

    @Test
    void the_end_waits_half_a_second_at_most_and_no_longer_than_for_the_last_executor() throws Exception {
        StageLines lines = lines(60_000);
        lines.begin(1, 0);
        lines.ran(1, 0, "1");
        lines.ran(1, 0, "driver");
        lines.end(1, 0, null);
        Thread executor = new Thread(() -> {
            try {
                Thread.sleep(50);
            } catch (InterruptedException e) {
                return;
            }
            lines.heard(1, 0, "1", moved(1, 0, 7));
            lines.heard(1, 0, "1", moved(1, 0, 8));
            lines.ends("1");
        });
        executor.start();
        lines.close();
        assertEquals(1, said.size());
        assertTrue(said.get(0).contains(" 15 B by Weir"));
        executor.join();
        // One that never tells that it ends, as one that was killed.
        lines.begin(2, 0);
        lines.ran(2, 0, "2");
        lines.end(2, 0, null);
        clock.shutdownNow();
        lines.begin(3, 0);
        lines.end(3, 0, null);
        lines.close();
        lines.close();
        assertEquals(3, said.size());
        assertEquals(1, said.stream().filter(line -> line.startsWith("Stage 2.0")).collect(Collectors.toList()).size());
    }
}

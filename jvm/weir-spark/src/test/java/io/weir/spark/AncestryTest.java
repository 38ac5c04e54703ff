package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Which coflows follow on which. Stage s writes shuffle 100 + s, and its first coflow is 1,000 + s, unless said. */
@Timeout(value = 30, unit = TimeUnit.SECONDS)
class AncestryTest {
    private final Ancestry ancestry = new Ancestry();

    private void stage(String job, int stage, int... waitsFor) {
        ancestry.add(stage, waitsFor, 100 + stage, job);
    }

    /** A stage that is not skipped, and has a coflow. */
    private void runs(int stage) {
        ancestry.ran(stage);
        ancestry.registered(stage, 1_000 + stage);
    }

    @Test
    void a_coflow_follows_on_those_of_the_stages_that_wrote_what_it_reads() {
        // 0 and 1 read files; 2 joins them; 3 reads 2; 4 reads 2 and 3.
        stage("a", 0);
        stage("a", 1);
        stage("a", 2, 0, 1);
        stage("a", 3, 2);
        stage("a", 4, 2, 3);
        ancestry.ran(0);
        ancestry.ran(1);
        assertEquals(List.of(), ancestry.parents(2));
        assertEquals(0, ancestry.job(2));
        runs(2);
        assertEquals(List.of(1_002L), ancestry.parents(3));
        assertEquals(1_002, ancestry.job(3));
        runs(3);
        assertEquals(List.of(1_002L, 1_003L), ancestry.parents(4));
        assertEquals(1_002, ancestry.job(4));
    }

    @Test
    void a_stage_without_a_coflow_is_looked_through() {
        // 2 ran while the coordinator was away; 3 reads it and 5, which reads a file.
        stage("a", 1, 0);
        stage("a", 2, 1);
        stage("a", 5);
        stage("a", 3, 2, 5);
        runs(1);
        ancestry.ran(2);
        ancestry.ran(5);
        assertEquals(List.of(1_001L), ancestry.parents(3));
    }

    @Test
    void all_attempts_that_may_have_written_a_part_are_parents_the_latest_first() {
        stage("a", 1, 0);
        stage("a", 2, 1);
        ancestry.ran(1);
        ancestry.registered(1, 7);
        ancestry.ran(2);
        ancestry.registered(2, 8);
        // The second stage lost a block; the first is tried again, and then the second.
        ancestry.ran(1);
        ancestry.registered(1, 9);
        assertEquals(List.of(9L, 7L), ancestry.parents(2));
        assertEquals(7, ancestry.job(2));
        for (long coflow = 10; coflow < 1_000; coflow++) {
            ancestry.registered(1, coflow);
        }
        List<Long> latest = LongStream.range(0, 16).mapToObj(back -> 999 - back).collect(Collectors.toList());
        assertEquals(latest, ancestry.parents(2));
    }

    @Test
    void a_shuffle_that_an_earlier_job_left_has_no_parents_here() {
        stage("a", 1, 0);
        stage("a", 2, 1);
        runs(1);
        runs(2);
        ancestry.ended("a");
        // A later job reads the shuffle that stage 1 wrote: Spark calls the stage 11 then, and skips it.
        ancestry.add(11, new int[] {0}, 101, "b");
        stage("b", 12, 11);
        assertEquals(List.of(), ancestry.parents(12));
        assertEquals(0, ancestry.job(12));
        runs(12);
        assertEquals(1_012, ancestry.job(12));
    }

    @Test
    void actions_of_one_query_are_one_job() {
        // With adaptive execution each shuffle is an action of its own, and the one before is skipped.
        ancestry.add(0, new int[0], 100, "query 1");
        ancestry.ran(0);
        ancestry.add(1, new int[0], 100, "query 1");
        ancestry.add(2, new int[] {1}, 101, "query 1");
        assertEquals(List.of(), ancestry.parents(2));
        runs(2);
        ancestry.add(3, new int[0], 100, "query 1");
        ancestry.add(4, new int[] {3}, 101, "query 1");
        ancestry.add(5, new int[] {4}, -1, "query 1");
        assertEquals(List.of(1_002L), ancestry.parents(5));
        assertEquals(1_002, ancestry.job(5));
    }

    @Test
    void a_stage_that_two_jobs_share_is_the_first_s_until_that_has_ended() {
        stage("a", 1, 0);
        stage("b", 1, 0);
        stage("a", 2, 1);
        stage("b", 3, 1);
        runs(1);
        assertEquals(List.of(1_001L), ancestry.parents(2));
        assertEquals(List.of(), ancestry.parents(3));
        assertEquals(0, ancestry.job(3));
        ancestry.ended("a");
        assertEquals(List.of(1_001L), ancestry.parents(3));
    }

    @Test
    void what_is_not_known_has_no_parents_and_no_job() {
        assertEquals(List.of(), ancestry.parents(1));
        assertEquals(0, ancestry.job(1));
        ancestry.ran(1);
        ancestry.ended("never");
        ancestry.registered(1, 5);
        ancestry.add(2, new int[] {1, 9, -4}, -1, null);
        assertEquals(List.of(), ancestry.parents(2));
        stage("a", 3, 1, 2, 77);
        assertEquals(List.of(), ancestry.parents(3));
        // An executor asked before the driver's own listener heard of the stage.
        stage("a", 1, 0);
        assertEquals(List.of(5L), ancestry.parents(3));
        assertEquals(5, ancestry.job(3));
    }

    @Test
    void stages_that_wait_for_themselves_end_the_search() {
        stage("a", 1, 2, 1);
        stage("a", 2, 1, 3);
        stage("a", 3, 2, 4);
        stage("a", 4);
        IntStream.of(1, 2, 3).forEach(ancestry::ran);
        runs(4);
        assertEquals(List.of(1_004L), ancestry.parents(1));
    }

    @Test
    void a_coflow_has_a_hundred_parents_at_most() {
        stage("a", 5_000, IntStream.range(0, 5_000).toArray());
        for (int stage = 0; stage < 5_000; stage++) {
            stage("a", stage, 9_000);
            runs(stage);
        }
        assertEquals(Ancestry.MAX_PARENTS, ancestry.parents(5_000).size());
    }

    @Test
    void memory_is_bounded_and_deep_lines_of_stages_are_no_recursion() {
        for (int stage = 1; stage <= 200_000; stage++) {
            String job = "job " + stage / 10;
            stage(job, stage, stage - 1);
            if (stage % 3 == 0) {
                runs(stage);
            } else {
                ancestry.ran(stage);
            }
            if (stage % 10 == 9) {
                ancestry.ended(job);
            }
        }
        assertEquals(Ancestry.MAX_STAGES, ancestry.size());
        stage("deep", 300_000);
        runs(300_000);
        for (int stage = 300_001; stage < 309_000; stage++) {
            stage("deep", stage, stage - 1);
            ancestry.ran(stage);
        }
        assertEquals(List.of(301_000L), ancestry.parents(308_999));
        assertTrue(ancestry.size() <= Ancestry.MAX_STAGES);
    }
}

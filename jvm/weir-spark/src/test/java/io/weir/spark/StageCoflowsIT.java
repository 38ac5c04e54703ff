package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.Admission;
import io.weir.client.Cluster;
import io.weir.client.WeirClient;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Coflows of stages at a real coordinator. See {@link Cluster} for which binary. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StageCoflowsIT {
    @TempDir
    Path folder;

    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private Cluster cluster;

    @BeforeEach
    void start() throws Exception {
        Cluster.assumeBinary();
        cluster = new Cluster(folder);
    }

    @AfterEach
    void stop() throws Exception {
        clock.shutdownNow();
        if (cluster != null) {
            cluster.close();
        }
    }

    private StageCoflows coflows(WeirClient client, Ancestry ancestry) {
        return new StageCoflows(() -> "app-1", client, ancestry, clock, 1_000);
    }

    private static long known(StageCoflows coflows, int stage, int attempt) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (System.nanoTime() < end) {
            long answer = coflows.of(stage, attempt);
            if (answer != Messages.NOT_YET && answer != Messages.NONE) {
                return answer;
            }
            Thread.sleep(5);
        }
        throw new AssertionError("no coflow for stage " + stage);
    }

    private static void assertEnds(WeirClient client, long coflow) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
        while (!client.status(coflow).hasEnded() && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        assertTrue(client.status(coflow).hasEnded());
    }

    @Test
    void each_attempt_of_a_stage_has_a_coflow_until_it_is_over() throws Exception {
        try (WeirClient other = cluster.client(1)) {
            StageCoflows coflows = coflows(cluster.client(0), new Ancestry());
            assertEquals(Messages.NOT_YET, coflows.known(3, 0));
            coflows.begin(3, 0, Terms.PLAIN, false, Map.of());
            assertEquals(Messages.NOT_YET, coflows.of(4, 0));
            long first = known(coflows, 3, 0);
            assertEquals(first, coflows.of(3, 0));
            assertEquals(first, coflows.known(3, 0));
            long again = known(coflows, 3, 1);
            assertNotEquals(first, again);
            long asked = known(coflows, 4, 0);
            assertFalse(other.status(first).hasEnded());
            coflows.end(3, 0);
            assertEquals(Messages.NONE, coflows.known(3, 0));
            assertEnds(other, first);
            assertEquals(Messages.NONE, coflows.of(3, 0));
            Thread.sleep(50);
            assertEquals(Messages.NONE, coflows.of(3, 0), "no new one is registered for it");
            assertEquals(again, coflows.of(3, 1));
            assertFalse(other.status(again).hasEnded());
            // One that is over before it is registered.
            coflows.begin(5, 0, Terms.PLAIN, false, Map.of());
            coflows.end(5, 0);
            assertEquals(Messages.NONE, coflows.of(5, 0));
            assertEquals(Messages.NOT_YET, coflows.known(9, 0), "of one that is asked for like this none is registered");
            coflows.close();
            assertEnds(other, again);
            assertEnds(other, asked);
            assertEquals(0, other.status().coflows().size());
        }
    }

    @Test
    void coflows_are_registered_again_once_the_coordinator_is_back() throws Exception {
        try (StageCoflows coflows = coflows(cluster.client(0), new Ancestry())) {
            long before = known(coflows, 1, 0);
            cluster.killCoordinator();
            assertEquals(Messages.NOT_YET, coflows.of(2, 0));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (coflows.of(2, 0) == Messages.NOT_YET && System.nanoTime() < end) {
                Thread.sleep(10);
            }
            assertEquals(Messages.NONE, coflows.of(2, 0));
            assertEquals(before, coflows.of(1, 0), "what is known stays");
            cluster.startCoordinator();
            known(coflows, 2, 0);
        }
    }

    @Test
    void a_coflow_that_others_follow_on_is_there_until_they_have_theirs() throws Exception {
        Ancestry ancestry = new Ancestry();
        ancestry.add(1, new int[] {0}, 11, "a");
        ancestry.add(2, new int[] {1}, -1, "a");
        try (WeirClient other = cluster.client(1); StageCoflows coflows = coflows(cluster.client(0), ancestry)) {
            coflows.begin(1, 0, Terms.PLAIN, true, Map.of());
            long parent = known(coflows, 1, 0);
            StageCoflows.Life first = coflows.end(1, 0);
            assertEquals(Messages.NONE, coflows.of(1, 0), "to executors it is over");
            coflows.begin(2, 0, new Terms("gold", 2.5, null), false, Map.of());
            long child = known(coflows, 2, 0);
            assertFalse(other.status(parent).hasEnded());
            StageCoflows.Life second = coflows.end(2, 0);
            assertEquals(parent, first.coflow);
            assertEquals(0, first.job);
            assertEquals(child, second.coflow);
            assertEquals(parent, second.job);
            assertEquals(List.of(parent), second.parents);
            assertEnds(other, child);
            assertEnds(other, parent);
        }
    }

    @Test
    void what_became_of_a_deadline_is_known_when_its_coflow_has_ended() throws Exception {
        try (StageCoflows coflows = coflows(cluster.client(0), new Ancestry())) {
            coflows.begin(1, 0, new Terms("", 1, Duration.ofSeconds(30)), true, Map.of());
            known(coflows, 1, 0);
            StageCoflows.Life life = coflows.end(1, 0);
            assertTrue(life.hasDeadline);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
            while (life.admission == null && System.nanoTime() < end) {
                Thread.sleep(5);
            }
            // Nothing moved, so nothing was judged.
            assertEquals(Admission.UNDECIDED, life.admission);
            assertEquals(0, coflows.endings.deadlinesRefused.getCount());
        }
    }
}

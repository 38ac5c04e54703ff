package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.Cluster;
import io.weir.client.WeirClient;
import java.nio.file.Path;
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

    private Cluster cluster;

    @BeforeEach
    void start() throws Exception {
        Cluster.assumeBinary();
        cluster = new Cluster(folder);
    }

    @AfterEach
    void stop() throws Exception {
        if (cluster != null) {
            cluster.close();
        }
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
            StageCoflows coflows = new StageCoflows(() -> "app-1", cluster.client(0));
            coflows.begin(3, 0);
            assertEquals(Messages.NOT_YET, coflows.of(4, 0));
            long first = known(coflows, 3, 0);
            assertEquals(first, coflows.of(3, 0));
            long again = known(coflows, 3, 1);
            assertNotEquals(first, again);
            long asked = known(coflows, 4, 0);
            assertFalse(other.status(first).hasEnded());
            coflows.end(3, 0);
            assertEnds(other, first);
            assertEquals(Messages.NONE, coflows.of(3, 0));
            Thread.sleep(50);
            assertEquals(Messages.NONE, coflows.of(3, 0), "no new one is registered for it");
            assertEquals(again, coflows.of(3, 1));
            assertFalse(other.status(again).hasEnded());
            // One that is over before it is registered.
            coflows.begin(5, 0);
            coflows.end(5, 0);
            assertEquals(Messages.NONE, coflows.of(5, 0));
            coflows.close();
            assertEnds(other, again);
            assertEnds(other, asked);
            assertEquals(0, other.status().coflows().size());
        }
    }

    @Test
    void coflows_are_registered_again_once_the_coordinator_is_back() throws Exception {
        try (StageCoflows coflows = new StageCoflows(() -> "app-1", cluster.client(0))) {
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
}

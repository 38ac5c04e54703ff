package io.weir.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.weir.client.WeirClient;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.spark.SparkConf;
import org.apache.spark.Success$;
import org.apache.spark.TaskState;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.JobSucceeded$;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.scheduler.TaskLocality;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import scala.Option;
import scala.collection.JavaConverters;
import weir.v1.Control;

/** What the coordinator hears of what Spark says of jobs and stages. */
@Timeout(value = 60, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class StageListenerTest {
    private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
    private final SparkConf conf = new SparkConf(false);
    private FakeCoordinator coordinator;
    private StageCoflows coflows;
    private StageListener listener;
    private final Agents agents = new Agents();
    private final List<String> said = new CopyOnWriteArrayList<>();
    private final StageLines lines = new StageLines(clock, 50, said::add);

    @BeforeEach
    void start() throws Exception {
        coordinator = new FakeCoordinator();
        Ancestry ancestry = new Ancestry();
        WeirClient client = WeirClient.builder().coordinator(coordinator.address()).callLimit(Duration.ofSeconds(5)).build();
        coflows = new StageCoflows(() -> "app-1", client, ancestry, clock, 2_000);
        listener = new StageListener(coflows, ancestry, new Terms.Reader(conf, pool -> OptionalInt.empty()), lines, agents);
    }

    @AfterEach
    void stop() throws Exception {
        coflows.close();
        coordinator.close();
        clock.shutdownNow();
    }

    private static <T> scala.collection.immutable.List<T> seq(List<T> all) {
        return JavaConverters.asScalaBuffer(all).toList();
    }

    /** A stage that writes shuffle 100 + its number, or none if it is negative: then its number is without the sign. */
    private static StageInfo stage(int signed, int attempt, Integer... waitsFor) {
        int number = Math.abs(signed);
        Option<Object> shuffle = signed < 0 ? Option.empty() : Option.apply(100 + number);
        List<Object> parents = new ArrayList<>(List.of(waitsFor));
        return new StageInfo(number, attempt, "stage", 1, seq(List.of()), seq(parents), "", null, seq(List.of()), shuffle, 0, false, 0);
    }

    private static Properties properties(String... pairs) {
        Properties properties = new Properties();
        for (int at = 0; at < pairs.length; at += 2) {
            properties.setProperty(pairs[at], pairs[at + 1]);
        }
        return properties;
    }

    private void job(int job, Properties properties, StageInfo... stages) {
        listener.onJobStart(new SparkListenerJobStart(job, 0, seq(List.of(stages)), properties));
    }

    private void begins(StageInfo stage, Properties properties) {
        listener.onStageSubmitted(new SparkListenerStageSubmitted(stage, properties));
    }

    private void ends(StageInfo stage) {
        listener.onStageCompleted(new SparkListenerStageCompleted(stage));
    }

    @Test
    void the_end_of_an_application_is_waited_for_and_not_for_ever() {
        long start = System.nanoTime();
        listener.awaitEnd(50);
        assertTrue(System.nanoTime() - start >= 50_000_000);
        listener.onApplicationEnd(new SparkListenerApplicationEnd(0));
        listener.awaitEnd(60_000);
        assertTrue(System.nanoTime() - start < 20_000_000_000L);
    }

    @Test
    void a_chain_of_stages_is_one_job_and_each_coflow_follows_on_the_one_before() throws Exception {
        StageInfo[] stages = {stage(0, 0), stage(1, 0, 0), stage(2, 0, 1), stage(-3, 0, 2)};
        Properties properties = properties("spark.scheduler.pool", "gold", "spark.weir.deadline", "5s");
        job(0, properties, stages);
        for (StageInfo stage : stages) {
            begins(stage, properties);
            coordinator.await(stage.stageId());
            ends(stage);
        }
        List<Control.CoflowOptions> all = coordinator.await(3);
        assertEquals(3, all.size(), "the first stage reads no shuffle");
        assertEquals("app-1/1.0", all.get(0).getName());
        assertEquals(List.of(), all.get(0).getParentsList());
        assertEquals(0, all.get(0).getJob());
        assertEquals(List.of(1L), all.get(1).getParentsList());
        assertEquals(List.of(2L), all.get(2).getParentsList());
        for (int at = 0; at < 3; at++) {
            assertEquals(at == 0 ? 0 : 1, all.get(at).getJob());
            assertEquals("gold", all.get(at).getTenant());
            assertEquals(5_000, all.get(at).getDeadlineMs());
        }
        while (said.size() < 3) {
            Thread.sleep(5);
        }
        assertTrue(said.get(2).startsWith("Stage 3.0: coflow 3 of the job of coflow 1, after 2. 0 B by Weir, 0 B by Spark. "), said.get(2));
    }

    @Test
    void what_another_stage_reads_is_kept_until_that_has_a_coflow_and_what_none_reads_is_not() throws Exception {
        StageInfo[] stages = {stage(1, 0, 0), stage(-2, 0, 1)};
        job(0, null, stages);
        begins(stages[0], null);
        coordinator.await(1);
        ends(stages[0]);
        begins(stages[1], null);
        assertEquals(List.of(1L), coordinator.await(2).get(1).getParentsList());
        assertEquals(List.of(), coordinator.ended, "the parent is there when the child is registered");
        ends(stages[1]);
        coordinator.awaitEnd(2);
        coordinator.awaitEnd(1);
        assertEquals(List.of(2L, 1L), coordinator.ended);
    }

    @Test
    void coflows_that_are_kept_are_bounded() throws Exception {
        for (int number = 1; number <= 250; number++) {
            StageInfo stage = stage(number, 0, 0);
            begins(stage, null);
            coordinator.await(number);
            ends(stage);
        }
        // Of 250 the first 50 are over at once.
        coordinator.awaitEnd(50);
        coordinator.awaitEnd(250);
        assertEquals(250, coordinator.ended.size());
    }

    @Test
    void a_retried_stage_follows_on_all_attempts_of_those_before() throws Exception {
        job(0, null, stage(1, 0, 0), stage(-2, 0, 1));
        begins(stage(1, 0, 0), null);
        begins(stage(-2, 0, 1), null);
        coordinator.await(2);
        ends(stage(-2, 0, 1));
        begins(stage(1, 1, 0), null);
        coordinator.await(3);
        begins(stage(-2, 1, 1), null);
        List<Control.CoflowOptions> all = coordinator.await(4);
        assertEquals(List.of(1L), all.get(1).getParentsList());
        assertEquals("app-1/2.1", all.get(3).getName());
        assertEquals(List.of(3L, 1L), all.get(3).getParentsList());
        assertEquals(1, all.get(3).getJob());
    }

    @Test
    void actions_of_one_query_are_one_job_and_of_two_are_two() throws Exception {
        Properties query = properties("spark.sql.execution.id", "7");
        Properties part = properties("spark.sql.execution.id", "8", "spark.sql.execution.root.id", "7");
        job(0, query, stage(0, 0), stage(1, 0, 0));
        begins(stage(1, 0, 0), query);
        coordinator.await(1);
        ends(stage(1, 0, 0));
        listener.onJobEnd(new SparkListenerJobEnd(0, 0, JobSucceeded$.MODULE$));
        // Stage 2 is skipped: stage 1 wrote its shuffle.
        StageInfo skipped = new StageInfo(2, 0, "stage", 1, seq(List.of()), seq(List.of()), "", null, seq(List.of()), Option.apply(101), 0,
                false, 0);
        job(1, part, skipped, stage(-3, 0, 2));
        begins(stage(-3, 0, 2), part);
        assertEquals(List.of(1L), coordinator.await(2).get(1).getParentsList());
        assertEquals(1, coordinator.await(2).get(1).getJob());
        job(2, null, skipped, stage(-4, 0, 2));
        begins(stage(-4, 0, 2), null);
        assertEquals(List.of(), coordinator.await(3).get(2).getParentsList());
        assertEquals(0, coordinator.await(3).get(2).getJob());
    }

    private void wrote(int stage, String executor, long bytes, boolean succeeded) {
        TaskInfo task = new TaskInfo(0, 0, 0, 0, 0, executor, "host", TaskLocality.ANY(), false);
        task.markFinished(succeeded ? TaskState.FINISHED() : TaskState.FAILED(), 1);
        TaskMetrics metrics = new TaskMetrics();
        metrics.shuffleWriteMetrics().incBytesWritten(bytes);
        listener.onTaskEnd(new SparkListenerTaskEnd(stage, 0, "ShuffleMapTask", Success$.MODULE$, task, null, metrics));
    }

    private Map<String, Long> awaitExpected(long coflow) throws InterruptedException {
        for (int tries = 0; tries < 4_000 && !coordinator.expected.containsKey(coflow); tries++) {
            Thread.sleep(5);
        }
        return coordinator.expected.get(coflow);
    }

    @Test
    void the_coordinator_hears_how_much_a_stage_is_to_read_from_which_agent() throws Exception {
        agents.add("1", "10.0.0.1:7071");
        agents.add("2", "10.0.0.2:7071");
        agents.add("3", "10.0.0.2:7071");
        agents.add("4", "10.0.0.4:7071");
        job(0, null, stage(0, 0), stage(5, 0), stage(-2, 0, 0, 5), stage(-3, 0, 0));
        wrote(0, "1", 1_000, true);
        wrote(0, "1", 3_000, true);
        wrote(0, "1", 99_999, false);
        wrote(0, "2", 400, true);
        wrote(5, "3", 800, true);
        wrote(5, "4", 7_777, true);
        wrote(5, "an executor without an agent", 55, true);
        wrote(9, "1", 123, true);
        listener.onExecutorRemoved(new SparkListenerExecutorRemoved(0, "4", "gone"));
        begins(stage(-2, 0, 0, 5), null);
        // Four executors read a quarter each, and a quarter of each one's own is its own.
        assertEquals(Map.of("10.0.0.1:7071", 3_000L, "10.0.0.2:7071", 900L), awaitExpected(1));
        begins(stage(-3, 0, 0), null);
        assertEquals(Map.of("10.0.0.1:7071", 3_000L, "10.0.0.2:7071", 300L), awaitExpected(2));
        // It counts once the coordinator has answered.
        coflows.close();
        assertEquals(2, coflows.expected.getCount());
    }

    @Test
    void an_older_coordinator_is_told_once_and_what_nobody_wrote_is_not_said() throws Exception {
        agents.add("1", "10.0.0.1:7071");
        agents.add("2", "10.0.0.2:7071");
        coordinator.isOld = true;
        job(0, null, stage(0, 0), stage(-2, 0, 0), stage(-3, 0, 0), stage(-4, 0, 7));
        begins(stage(-4, 0, 7), null);
        coordinator.await(1);
        wrote(0, "1", 1_000, true);
        begins(stage(-2, 0, 0), null);
        coordinator.await(2);
        begins(stage(-3, 0, 0), null);
        coordinator.await(3);
        ends(stage(-3, 0, 0));
        // The end of the last one was asked for by the thread that would have called.
        coflows.close();
        assertEquals(1, coordinator.expectCalls);
        assertEquals(0, coflows.expected.getCount());
    }

    @Test
    void a_coordinator_that_refuses_what_is_said_gets_a_plain_coflow() throws Exception {
        coordinator.refuses = options -> !options.getTenant().isEmpty() || options.getJob() != 0;
        job(0, null, stage(1, 0, 0), stage(-2, 0, 1));
        begins(stage(1, 0, 0), properties("spark.scheduler.pool", "gold"));
        coordinator.await(1);
        begins(stage(-2, 0, 1), null);
        List<Control.CoflowOptions> all = coordinator.await(2);
        assertEquals("app-1/1.0", all.get(0).getName());
        assertEquals("app-1/2.0", all.get(1).getName());
        assertEquals(0, all.get(1).getParentsCount());
        while (coflows.of(2, 0) == Messages.NOT_YET) {
            Thread.sleep(5);
        }
        assertEquals(2, coflows.of(2, 0));
        assertEquals(0, coflows.failed.getCount());
        assertEquals(2, coflows.registered.getCount());
    }

    @Test
    void what_was_said_of_a_stage_is_not_lost_while_the_coordinator_is_away() throws Exception {
        coordinator.refuses = options -> true;
        job(0, null, stage(1, 0, 0), stage(-2, 0, 1));
        begins(stage(1, 0, 0), properties("spark.scheduler.pool", "gold", "spark.weir.deadline", "9s"));
        while (coflows.failed.getCount() == 0) {
            Thread.sleep(5);
        }
        // Nobody asks for the second stage before the pause is over.
        begins(stage(-2, 0, 1), properties("spark.scheduler.pool", "silver"));
        coordinator.refuses = options -> false;
        while (coflows.of(1, 0) < 0 || coflows.of(2, 0) < 0) {
            Thread.sleep(5);
        }
        List<Control.CoflowOptions> all = coordinator.await(2);
        assertEquals("gold", all.get(0).getTenant());
        assertEquals(9_000, all.get(0).getDeadlineMs());
        assertEquals("silver", all.get(1).getTenant());
        assertEquals(List.of(1L), all.get(1).getParentsList());
    }

    @Test
    void a_coflow_that_cannot_be_sealed_ends_all_the_same() throws Exception {
        coordinator.sealsNone = true;
        begins(stage(1, 0, 0), properties("spark.weir.deadline", "9s"));
        coordinator.await(1);
        ends(stage(1, 0, 0));
        coordinator.awaitEnd(1);
    }

    @Test
    void the_coflow_of_the_next_stage_does_not_wait_for_the_end_of_others() throws Exception {
        coordinator.endsSlowlyMs = 1_000;
        for (int number = 1; number <= 5; number++) {
            begins(stage(-number, 0, 0), null);
            coordinator.await(number);
            ends(stage(-number, 0, 0));
        }
        begins(stage(-6, 0, 0), null);
        assertEquals(6, coordinator.await(6).size());
        assertTrue(coordinator.ended.size() < 5, "the others end one after the other, in five seconds");
        coordinator.endsSlowlyMs = 0;
    }

    @Test
    void nonsense_of_spark_does_not_reach_spark() throws Exception {
        begins(null, null);
        ends(null);
        job(0, null);
        StageInfo odd = new StageInfo(5, 0, null, 0, null, null, null, null, null, Option.apply("not a number"), 0, false, 0);
        begins(odd, null);
        ends(odd);
        Properties properties = properties("spark.weir.deadline", "\u0000", "spark.scheduler.pool", "\ud800 half a character");
        begins(stage(1, 0, 0), properties);
        assertTrue(coordinator.await(1).size() >= 1);
    }

    @Test
    void ten_thousand_stages_that_never_end_are_bounded() throws Exception {
        for (int number = 1; number <= 10_050; number++) {
            begins(stage(number, 0, 0), null);
        }
        coordinator.await(10_000);
        assertEquals(Messages.NONE, coflows.of(1, 0), "the eldest counts as over");
        assertTrue(coflows.of(10_050, 0) != Messages.NONE);
    }
}

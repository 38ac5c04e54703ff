package io.weir.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Hears of jobs and stages from Spark. Whatever goes wrong here, Spark goes on, and hears of it once. */
final class StageListener extends SparkListener {
    private static final Logger LOG = LoggerFactory.getLogger(StageListener.class);
    /** Local properties of the actions of one query; the root is the query that others are parts of. */
    private static final String QUERY = "spark.sql.execution.id";
    private static final String ROOT_QUERY = "spark.sql.execution.root.id";
    private static final int[] NONE = {};

    private final StageCoflows coflows;
    private final Ancestry ancestry;
    private final Terms.Reader terms;
    private final StageLines lines;
    private final Sizes sizes = new Sizes();
    private final Agents agents;
    private final CountDownLatch ended = new CountDownLatch(1);
    private boolean said;

    StageListener(StageCoflows coflows, Ancestry ancestry, Terms.Reader terms, StageLines lines, Agents agents) {
        this.agents = agents;
        this.coflows = coflows;
        this.ancestry = ancestry;
        this.terms = terms;
        this.lines = lines;
    }

    @Override
    public void onJobStart(SparkListenerJobStart started) {
        guarded(() -> {
            String query = query(started.properties());
            String job = query == null ? action(started.jobId()) : query;
            for (StageInfo stage : ScalaBridge.stages(started)) {
                add(stage, job);
            }
        });
    }

    @Override
    public void onJobEnd(SparkListenerJobEnd over) {
        // Where it was an action of a query, nothing has this name.
        guarded(() -> ancestry.ended(action(over.jobId())));
    }

    @Override
    public void onStageSubmitted(SparkListenerStageSubmitted submitted) {
        guarded(() -> {
            StageInfo stage = submitted.stageInfo();
            add(stage, query(submitted.properties()));
            ancestry.ran(stage.stageId());
            int[] parents = ScalaBridge.parents(stage);
            if (parents == null || parents.length > 0) {
                lines.begin(stage.stageId(), stage.attemptNumber());
                coflows.begin(stage.stageId(), stage.attemptNumber(), terms.of(submitted.properties()), ScalaBridge.shuffle(stage) >= 0,
                        toRead(stage.stageId()));
            }
        });
    }

    @Override
    public void onStageCompleted(SparkListenerStageCompleted completed) {
        guarded(() -> {
            StageInfo stage = completed.stageInfo();
            lines.end(stage.stageId(), stage.attemptNumber(), coflows.end(stage.stageId(), stage.attemptNumber()));
        });
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd over) {
        guarded(() -> {
            String executor = over.taskInfo().executorId();
            lines.ran(over.stageId(), over.stageAttemptId(), executor);
            // A task that failed before it began has none.
            if (over.taskInfo().successful() && over.taskMetrics() != null) {
                sizes.wrote(ancestry.shuffle(over.stageId()), executor, over.taskMetrics().shuffleWriteMetrics().bytesWritten());
            }
        });
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
        guarded(() -> sizes.lost(removed.executorId()));
    }

    @Override
    public void onApplicationEnd(SparkListenerApplicationEnd over) {
        ended.countDown();
    }

    /** Waits until this heard all there was of the application. Some versions of Spark end plugins before. */
    void awaitEnd(long ms) {
        try {
            ended.await(ms, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** What a stage will read from agents, by their addresses. */
    private Map<String, Long> toRead(int stage) {
        Map<String, Long> byAgent = new HashMap<>();
        sizes.toRead(ancestry.reads(stage), agents.size()).forEach((executor, bytes) -> {
            String agent = agents.of(executor);
            if (!agent.isEmpty()) {
                byAgent.merge(agent, bytes, Long::sum);
            }
        });
        return byAgent;
    }

    private void add(StageInfo stage, String job) {
        int[] parents = ScalaBridge.parents(stage);
        ancestry.add(stage.stageId(), parents == null ? NONE : parents, ScalaBridge.shuffle(stage), job);
    }

    private static String action(int job) {
        return "job " + job;
    }

    /** Null if it is none. */
    private static String query(Properties properties) {
        if (properties == null) {
            return null;
        }
        String query = properties.getProperty(ROOT_QUERY, properties.getProperty(QUERY));
        return query == null ? null : "query " + query;
    }

    /** Errors too: an application that does without a class of Spark's does not end for it. */
    private void guarded(Runnable heard) {
        try {
            heard.run();
        } catch (RuntimeException | Error e) {
            if (!said) {
                said = true;
                LOG.warn("Weir does not understand what Spark says of stages; their coflows may be missing", e);
            }
        }
    }
}

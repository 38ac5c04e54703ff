package io.weir.bench;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;

/** What happened in an application. */
final class Seen extends SparkListener {
    final AtomicInteger speculative = new AtomicInteger();
    final AtomicInteger retriedStages = new AtomicInteger();
    /** Those that tasks ended at. */
    final Set<String> executors = ConcurrentHashMap.newKeySet();
    final AtomicInteger executorsRemoved = new AtomicInteger();
    final AtomicInteger failedTasks = new AtomicInteger();
    final AtomicLong remoteBytes = new AtomicLong();
    final AtomicLong remoteBytesToDisk = new AtomicLong();
    final AtomicLong mostWritten = new AtomicLong();

    @Override
    public void onStageSubmitted(SparkListenerStageSubmitted event) {
        if (event.stageInfo().attemptNumber() > 0) {
            retriedStages.incrementAndGet();
        }
    }

    @Override
    public void onTaskStart(SparkListenerTaskStart event) {
        if (event.taskInfo().speculative()) {
            speculative.incrementAndGet();
        }
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd event) {
        executors.add(event.taskInfo().executorId());
        if (!event.taskInfo().successful()) {
            failedTasks.incrementAndGet();
        }
        TaskMetrics metrics = event.taskMetrics();
        if (metrics != null) {
            remoteBytes.addAndGet(metrics.shuffleReadMetrics().remoteBytesRead());
            remoteBytesToDisk.addAndGet(metrics.shuffleReadMetrics().remoteBytesReadToDisk());
            mostWritten.accumulateAndGet(metrics.shuffleWriteMetrics().bytesWritten(), Math::max);
        }
    }

    @Override
    public void onExecutorRemoved(SparkListenerExecutorRemoved event) {
        executorsRemoved.incrementAndGet();
    }
}

package io.weir.bench;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.StageInfo;

/** How long stages took, and how long their tasks waited for blocks of shuffles. */
final class Reads extends SparkListener {
    private static final long SETTLE_MS = 2_000;

    private final List<Long> waits = new ArrayList<>();
    private long mapMs;
    private long readMs;
    private int began;
    private int ended;

    @Override
    public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
        began++;
    }

    @Override
    public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
        TaskMetrics metrics = event.taskMetrics();
        if (metrics != null && metrics.shuffleReadMetrics().totalBytesRead() > 0) {
            waits.add(metrics.shuffleReadMetrics().fetchWaitTime());
        }
    }

    @Override
    public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
        StageInfo stage = event.stageInfo();
        ended++;
        notifyAll();
        if (stage.submissionTime().isEmpty() || stage.completionTime().isEmpty()) {
            return;
        }
        long took = (Long) stage.completionTime().get() - (Long) stage.submissionTime().get();
        if (stage.taskMetrics().shuffleReadMetrics().totalBytesRead() > 0) {
            readMs += took;
        } else {
            mapMs += took;
        }
    }

    /** Once what is on its way to listeners was heard. */
    synchronized String said() throws InterruptedException {
        long until = System.nanoTime() + SETTLE_MS * 1_000_000;
        while (ended < Math.max(began, 1) && System.nanoTime() < until) {
            wait(50);
        }
        Collections.sort(waits);
        long middle = waits.isEmpty() ? 0 : waits.get(waits.size() / 2);
        long most = waits.isEmpty() ? 0 : waits.get(waits.size() - 1);
        return String.format(Locale.ROOT, "map %.3f stages %.3f reads %.3f %.3f", mapMs / 1e3, readMs / 1e3, middle / 1e3, most / 1e3);
    }
}

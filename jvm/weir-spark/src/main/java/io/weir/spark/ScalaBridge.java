package io.weir.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.Schedulable;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.StageInfo;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.Seq;

/** What cannot be called in one way in Scala 2.12 and 2.13: methods whose signatures have a {@code Seq}. And what has an {@code Option}. */
final class ScalaBridge {
    private static final int[] NONE = {};

    private ScalaBridge() {}

    /** The stages that a stage waits for: those that write the shuffles it reads. Null where it cannot be told. */
    static int[] parents(StageInfo stage) {
        try {
            List<?> parents = list(StageInfo.class.getMethod("parentIds").invoke(stage));
            return parents.isEmpty() ? NONE : parents.stream().mapToInt(parent -> (Integer) parent).toArray();
        } catch (ReflectiveOperationException | RuntimeException e) {
            return null;
        }
    }

    /** The stages of a job, those that will be skipped too. None where it cannot be told. */
    static List<StageInfo> stages(SparkListenerJobStart started) {
        List<StageInfo> stages = new ArrayList<>();
        try {
            for (Object stage : list(SparkListenerJobStart.class.getMethod("stageInfos").invoke(started))) {
                stages.add((StageInfo) stage);
            }
        } catch (ReflectiveOperationException | RuntimeException e) {
            stages.clear();
        }
        return stages;
    }

    /** The number of the shuffle that a stage writes, or -1. */
    static int shuffle(StageInfo stage) {
        Option<Object> shuffle = stage.shuffleDepId();
        return shuffle.isDefined() ? (Integer) shuffle.get() : -1;
    }

    /** A pool of the scheduler, or null if there is none of that name. */
    static Schedulable pool(SparkContext context, String name) {
        Option<Schedulable> pool = context.getPoolForName(name);
        return pool.isDefined() ? pool.get() : null;
    }

    /** In both, a {@code Seq} that a method has is one of {@code scala.collection}. */
    private static List<?> list(Object seq) {
        List<Object> all = new ArrayList<>();
        for (Iterator<?> each = ((Seq<?>) seq).iterator(); each.hasNext();) {
            all.add(each.next());
        }
        return all;
    }
}

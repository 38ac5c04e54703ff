package io.weir.spark;

import org.apache.spark.scheduler.StageInfo;

/** What cannot be called in one way in Scala 2.12 and 2.13: methods whose signatures have a {@code Seq}. */
final class ScalaBridge {
    private ScalaBridge() {}

    /** Whether a stage waits for others, as one that reads a shuffle does. True where it cannot be told. */
    static boolean hasParents(StageInfo stage) {
        try {
            Object parents = StageInfo.class.getMethod("parentIds").invoke(stage);
            return !(boolean) parents.getClass().getMethod("isEmpty").invoke(parents);
        } catch (ReflectiveOperationException | RuntimeException e) {
            return true;
        }
    }
}

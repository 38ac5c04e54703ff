package io.weir.spark;

import io.weir.client.Admission;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;

/** What is said of an attempt of a stage that is over. */
final class StageLine {
    /** Parents that are named. */
    private static final int MOST_NAMED = 5;

    private StageLine() {}

    /**
     * One line.
     *
     * @param life of its coflow; null if it never had one
     * @param heard number of executors that told something
     * @param ran number of executors that ran tasks of it
     */
    static String of(int stage, int attempt, StageCoflows.Life life, Moved moved, int heard, int ran) {
        return "Stage " + stage + "." + attempt + ": " + coflow(life) + ". " + size(moved.weirBytes) + " by Weir, "
                + size(moved.spark()) + " by Spark" + reasons(moved) + ". " + number(moved.fetches, "fetch", "fetches") + " waited "
                + String.format(Locale.ROOT, "%.2f", moved.waitedNanos / 1e9) + " s in all for the driver's answers." + deadline(life)
                + " Heard from " + heard + " of " + number(Math.max(heard, ran), "executor", "executors") + ".";
    }

    private static String coflow(StageCoflows.Life life) {
        if (life == null || life.coflow == 0) {
            return "no coflow";
        }
        String text = "coflow " + name(life.coflow);
        if (life.job != 0) {
            text += " of the job of coflow " + name(life.job);
        }
        if (!life.parents.isEmpty()) {
            List<String> names = life.parents.stream().limit(MOST_NAMED).map(StageLine::name).collect(Collectors.toList());
            int more = life.parents.size() - names.size();
            text += ", after " + String.join(", ", names) + (more > 0 ? " and " + more + " more" : "");
        }
        return text;
    }

    private static String name(long coflow) {
        return Long.toUnsignedString(coflow);
    }

    private static String reasons(Moved moved) {
        List<String> reasons = new ArrayList<>();
        for (Why why : Why.values()) {
            if (moved.spark(why) > 0) {
                reasons.add(size(moved.spark(why)) + ": " + why.words);
            }
        }
        return reasons.isEmpty() ? "" : " (" + String.join("; ", reasons) + ")";
    }

    private static String deadline(StageCoflows.Life life) {
        if (life == null || !life.hasDeadline) {
            return "";
        }
        Admission admission = life.admission;
        if (admission == Admission.REFUSED) {
            return " Its deadline was refused, so it moved without one.";
        }
        if (admission == Admission.ADMITTED) {
            return life.metDeadline ? " Its deadline was met." : " Its deadline was admitted, and missed.";
        }
        return admission == Admission.NO_DEADLINE || admission == null ? " It is not known what became of its deadline."
                : " Nothing was decided on its deadline.";
    }

    private static String number(long number, String one, String more) {
        return number + " " + (number == 1 ? one : more);
    }

    /** Bytes as people read them. */
    static String size(long bytes) {
        String[] units = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
        double value = bytes;
        int unit = 0;
        // 999.95 would be written as 1000.0.
        while (value >= 999.95 && unit < units.length - 1) {
            value /= 1_000;
            unit++;
        }
        return unit == 0 ? bytes + " B" : String.format(Locale.ROOT, "%.1f %s", value, units[unit]);
    }
}

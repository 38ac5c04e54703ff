package io.weir.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * How much each executor has of a shuffle, as the tasks that wrote it said. A task that ran twice may count twice: this is for the order
 * of coflows, and for nothing else.
 */
final class Sizes {
    /** Shuffles that are remembered, the latest ones. */
    static final int MAX_SHUFFLES = 1_000;

    private final Map<Integer, Map<String, Long>> shuffles = new Bounded<>(MAX_SHUFFLES);

    /** A task of an executor has written a part of a shuffle. */
    synchronized void wrote(int shuffle, String executor, long bytes) {
        if (shuffle >= 0 && bytes > 0) {
            shuffles.computeIfAbsent(shuffle, number -> new HashMap<>()).merge(executor, bytes, Long::sum);
        }
    }

    /** The files of an executor are gone. */
    synchronized void lost(String executor) {
        shuffles.values().forEach(shuffle -> shuffle.remove(executor));
    }

    /** What executors have of shuffles together, less what each of so many readers has itself: by turns, each reads a part of all. */
    synchronized Map<String, Long> toRead(List<Integer> numbers, int readers) {
        Map<String, Long> sum = new HashMap<>();
        for (int number : numbers) {
            shuffles.getOrDefault(number, Map.of()).forEach((executor, bytes) -> sum.merge(executor, bytes, Long::sum));
        }
        sum.replaceAll((executor, bytes) -> readers < 1 ? bytes : bytes - bytes / readers);
        sum.values().removeIf(bytes -> bytes <= 0);
        return sum;
    }

    /** How much is remembered. */
    synchronized int size() {
        return shuffles.size();
    }
}

package io.weir.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Which coflows a stage's coflow follows on, and which job they are of. A job is an action of Spark, or a whole query: with adaptive
 * execution a query is many actions, one for each shuffle. Parents are of the same job; a shuffle that an earlier job left is
 * there already, and its writers are no parents.
 */
final class Ancestry {
    /** Parents of one coflow, latest first; a coordinator takes 1,000. */
    static final int MAX_PARENTS = 100;
    /** Stages, shuffles and jobs that are remembered, the latest ones. */
    static final int MAX_STAGES = 10_000;
    static final int MAX_JOBS = 1_000;
    /** Stages that one stage waits for, as far as they are remembered. */
    private static final int MAX_EDGES = 1_000;
    /** Of one stage: jobs that share it, and coflows of its attempts. */
    private static final int MAX_SHARING = 8;
    private static final int MAX_ATTEMPTS = 16;
    private static final int[] NONE = {};

    private final Map<Integer, Stage> stages = new Bounded<>(MAX_STAGES);
    /** The stage that wrote a shuffle last. */
    private final Map<Integer, Stage> writers = new Bounded<>(MAX_STAGES);
    /** The first coflow of each job. */
    private final Map<String, Long> first = new Bounded<>(MAX_JOBS);
    private final Map<String, Boolean> ended = new Bounded<>(MAX_JOBS);

    /** What is known of a stage. */
    private static final class Stage {
        final List<String> jobs = new ArrayList<>(1);
        final List<Long> coflows = new ArrayList<>(1);
        int[] waitsFor = NONE;
        int shuffle = -1;
        boolean ran;
    }

    /**
     * A stage is part of a job.
     *
     * @param waitsFor stages whose shuffles it reads
     * @param shuffle number of the shuffle that it writes, or -1
     * @param job any name, or null if that is not known
     */
    synchronized void add(int stage, int[] waitsFor, int shuffle, String job) {
        Stage known = stages.computeIfAbsent(stage, number -> new Stage());
        known.waitsFor = waitsFor.length <= MAX_EDGES ? waitsFor : Arrays.copyOf(waitsFor, MAX_EDGES);
        known.shuffle = shuffle;
        if (job != null && !known.jobs.contains(job) && known.jobs.size() < MAX_SHARING) {
            known.jobs.add(job);
        }
        standFor(known);
    }

    /** Number of the shuffle that a stage writes; -1 if it writes none, or is not known. */
    synchronized int shuffle(int stage) {
        Stage known = stages.get(stage);
        return known == null ? -1 : known.shuffle;
    }

    /** Numbers of the shuffles that a stage reads. */
    synchronized List<Integer> reads(int stage) {
        Stage known = stages.get(stage);
        List<Integer> shuffles = new ArrayList<>();
        for (int parent : known == null ? NONE : known.waitsFor) {
            int shuffle = shuffle(parent);
            if (shuffle >= 0) {
                shuffles.add(shuffle);
            }
        }
        return shuffles;
    }

    /** An attempt of a stage begins: it was not skipped. */
    synchronized void ran(int stage) {
        ran(stages.computeIfAbsent(stage, number -> new Stage()));
    }

    private void ran(Stage known) {
        known.ran = true;
        if (known.shuffle >= 0) {
            // The latest is not the eldest.
            writers.remove(known.shuffle);
            writers.put(known.shuffle, known);
        }
    }

    /** An attempt of a stage has a coflow. */
    synchronized void registered(int stage, long coflow) {
        Stage known = stages.computeIfAbsent(stage, number -> new Stage());
        if (known.coflows.size() == MAX_ATTEMPTS) {
            known.coflows.remove(0);
        }
        known.coflows.add(coflow);
        ran(known);
        standFor(known);
    }

    /** The first coflow of a job stands for it, also where an executor asked for it before the job was known. */
    private void standFor(Stage known) {
        String job = job(known);
        if (job != null && !known.coflows.isEmpty()) {
            first.putIfAbsent(job, known.coflows.get(0));
        }
    }

    /** Nothing more comes of a job. What it shares with others goes on for them. */
    synchronized void ended(String job) {
        ended.put(job, true);
    }

    /** Any one coflow of the stage's job, always the same; 0 if there is none yet. */
    synchronized long job(int stage) {
        Stage known = stages.get(stage);
        String job = known == null ? null : job(known);
        return job == null ? 0 : first.getOrDefault(job, 0L);
    }

    private String job(Stage stage) {
        for (String job : stage.jobs) {
            if (!ended.containsKey(job)) {
                return job;
            }
        }
        return stage.jobs.isEmpty() ? null : stage.jobs.get(stage.jobs.size() - 1);
    }

    /**
     * The coflows of the stages that wrote the shuffles a stage reads; where such a stage has none, those it would follow on.
     * Coflows of earlier attempts count too: they may have written a part.
     */
    synchronized List<Long> parents(int stage) {
        Stage child = stages.get(stage);
        String job = child == null ? null : job(child);
        if (job == null) {
            return List.of();
        }
        Set<Long> found = new LinkedHashSet<>();
        Set<Stage> seen = new HashSet<>();
        Deque<Stage> open = new ArrayDeque<>();
        seen.add(child);
        open.add(child);
        while (!open.isEmpty() && found.size() < MAX_PARENTS) {
            for (int number : open.remove().waitsFor) {
                Stage parent = writer(number);
                if (parent == null || !job.equals(job(parent)) || !seen.add(parent)) {
                    continue;
                }
                if (parent.coflows.isEmpty()) {
                    open.add(parent);
                }
                for (int at = parent.coflows.size() - 1; at >= 0 && found.size() < MAX_PARENTS; at--) {
                    found.add(parent.coflows.get(at));
                }
            }
        }
        return List.copyOf(found);
    }

    /** The stage itself, or, if it was skipped, the one that wrote its shuffle before. */
    private Stage writer(int stage) {
        Stage named = stages.get(stage);
        return named == null || named.ran ? named : writers.get(named.shuffle);
    }

    /** How much is remembered. */
    synchronized int size() {
        return Math.max(Math.max(stages.size(), writers.size()), Math.max(first.size(), ended.size()));
    }
}

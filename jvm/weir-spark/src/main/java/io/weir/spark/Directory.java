package io.weir.spark;

import io.weir.client.Store;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.api.plugin.PluginContext;

/**
 * What this executor knows from the driver: coflows of stages, and agents of executors. The driver is asked by threads of its own,
 * and a fetch waits for an answer for a moment at most.
 */
final class Directory {
    /** How long a fetch waits for an answer of the driver. */
    private static final long WAIT_MS = 100;
    private static final long ASK_AGAIN_MS = 5;
    private static final int ATTEMPTS = 100;
    /** What was not known is asked for again after this. */
    private static final long FORGET_NANOS = TimeUnit.SECONDS.toNanos(1);
    /** Stages that are remembered. */
    private static final int MAX_STAGES = 10_000;
    private static final int THREADS = 4;

    private final PluginContext plugin;
    private final String application;
    private final byte[] token;
    private final Map<Long, Answer<Long>> coflows = new ConcurrentHashMap<>();
    private final Map<String, Answer<InetSocketAddress>> agents = new ConcurrentHashMap<>();
    /** Attempts that were prepared for. */
    private final Set<Long> prepared = ConcurrentHashMap.newKeySet();
    /** Of what {@link #learn} hears of next. */
    private int place;
    private final ExecutorService asking = Executors.newFixedThreadPool(THREADS, task -> thread(task, "weir-asks-driver"));
    /** No fetch waits for it. */
    private final ScheduledExecutorService preparing =
            Executors.newSingleThreadScheduledExecutor(task -> thread(task, "weir-prepares"));

    /** An answer that is there, or on its way. */
    private static final class Answer<T> {
        final long asked = System.nanoTime();
        final CompletableFuture<T> future = new CompletableFuture<>();

        /** What was not known is not known for ever. */
        boolean isStale() {
            return future.isDone() && future.getNow(null) == null && System.nanoTime() - asked > FORGET_NANOS;
        }
    }

    Directory(PluginContext plugin, String application, byte[] token) {
        this.plugin = plugin;
        this.application = application;
        this.token = token;
    }

    private static Thread thread(Runnable task, String name) {
        Thread thread = new Thread(task, name);
        thread.setDaemon(true);
        return thread;
    }

    Store store(String executor) {
        return new Store(application, executor, token);
    }

    /** The coflow of a stage's attempt, or null if there is none by now. */
    Long coflow(int stage, int attempt) throws InterruptedException {
        if (coflows.size() > MAX_STAGES) {
            coflows.clear();
        }
        return await(coflows, key(stage, attempt), answer -> {
            for (int tries = 0; tries < ATTEMPTS; tries++) {
                Object said = plugin.ask(Messages.coflow(stage, attempt));
                long coflow = said instanceof Long ? (Long) said : Messages.NONE;
                if (coflow != Messages.NOT_YET) {
                    answer.complete(coflow == Messages.NONE ? null : coflow);
                    return;
                }
                Thread.sleep(ASK_AGAIN_MS);
            }
            answer.complete(null);
        });
    }

    /**
     * A task of an attempt begins: if the driver knows of a coflow for it, that is known here by the time that the task fetches. Most
     * stages read no shuffle, and have none; that is no answer to a fetch.
     */
    void prepare(int stage, int attempt) {
        if (prepared.size() > MAX_STAGES) {
            prepared.clear();
        }
        if (!prepared.add(key(stage, attempt))) {
            return;
        }
        prepare(stage, attempt, ASK_AGAIN_MS);
        try {
            preparing.execute(this::learn);
        } catch (RejectedExecutionException e) {
            // The executor ends.
        }
    }

    /** Hears of agents that are new. */
    private void learn() {
        try {
            for (int heard = Agents.MAX_AT_ONCE; heard == Agents.MAX_AT_ONCE;) {
                Object said = plugin.ask(Messages.agents(place));
                String[] lines = said instanceof String ? ((String) said).split("\n") : new String[] {"0"};
                heard = lines.length - 1;
                place = Integer.parseInt(lines[0]);
                for (int at = 1; at < lines.length; at++) {
                    String[] parts = lines[at].split(" ", 2);
                    InetSocketAddress address = parts.length == 2 ? parse(parts[0]) : null;
                    if (address != null) {
                        Answer<InetSocketAddress> answer = new Answer<>();
                        answer.future.complete(address);
                        agents.put(parts[1], answer);
                    }
                }
            }
        } catch (Exception | Error e) {
            // A fetch asks.
        }
    }

    private void prepare(int stage, int attempt, long pauseMs) {
        if (pauseMs > WAIT_MS || coflows.containsKey(key(stage, attempt))) {
            return;
        }
        try {
            preparing.execute(() -> {
                if (ask(stage, attempt) == Messages.NOT_YET) {
                    preparing.schedule(() -> prepare(stage, attempt, 2 * pauseMs), pauseMs, TimeUnit.MILLISECONDS);
                }
            });
        } catch (RejectedExecutionException e) {
            // The executor ends.
        }
    }

    /** Asks the driver, and keeps the coflow that it knows. */
    private long ask(int stage, int attempt) {
        try {
            Object said = plugin.ask(Messages.known(stage, attempt));
            long coflow = said instanceof Long ? (Long) said : Messages.NONE;
            if (coflow != Messages.NONE && coflow != Messages.NOT_YET) {
                Answer<Long> answer = new Answer<>();
                answer.future.complete(coflow);
                coflows.putIfAbsent(key(stage, attempt), answer);
            }
            return coflow;
        } catch (Exception | Error e) {
            // A fetch asks.
            return Messages.NONE;
        }
    }

    private static long key(int stage, int attempt) {
        return (long) stage << 32 | attempt;
    }

    /** The agent that serves the files of an executor, or null. */
    InetSocketAddress agent(String executor) throws InterruptedException {
        return await(agents, executor, answer -> {
            Object said = plugin.ask(Messages.where(executor));
            answer.complete(said instanceof String ? parse((String) said) : null);
        });
    }

    private static InetSocketAddress parse(String address) {
        int colon = address.lastIndexOf(':');
        if (colon <= 0) {
            return null;
        }
        String host = address.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        }
        try {
            InetSocketAddress found = new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1)));
            return found.isUnresolved() ? null : found;
        } catch (IllegalArgumentException e) {
            return null;
        }
    }

    /** A question to the driver. */
    private interface Question<T> {
        void ask(CompletableFuture<T> answer) throws Exception;
    }

    private <K, T> T await(Map<K, Answer<T>> known, K key, Question<T> question) throws InterruptedException {
        Answer<T> answer = known.compute(key, (of, before) -> {
            if (before != null && !before.isStale()) {
                return before;
            }
            Answer<T> made = new Answer<>();
            asking.execute(() -> {
                try {
                    question.ask(made.future);
                } catch (Exception | Error e) {
                    made.future.complete(null);
                }
            });
            return made;
        });
        try {
            return answer.future.get(WAIT_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException e) {
            return null;
        }
    }

    /** What was known of an executor's agent led nowhere: it is asked for anew. */
    void forget(String executor) {
        agents.remove(executor);
    }

    void close() {
        asking.shutdownNow();
        preparing.shutdownNow();
    }
}

package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import io.weir.client.GatherLimits;
import io.weir.client.HolderException;
import io.weir.client.HolderStatus;
import io.weir.client.StoreClient;
import io.weir.client.TimeLimitException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Fetches of shuffle blocks by Weir. Whatever a fetch does not bring, for whatever reason, Spark's own fetch brings. */
final class Fetches {
    private static final Logger LOG = LoggerFactory.getLogger(Fetches.class);
    /** Fetches under way; further ones are Spark's own. A paused coflow holds its threads. */
    private static final int MOST_THREADS = 512;
    private static final Duration CONNECT_LIMIT = Duration.ofSeconds(1);
    private static final Duration ANSWER_LIMIT = Duration.ofSeconds(2);
    private static final Duration SILENCE = Duration.ofSeconds(1);

    private final StoreClient client;
    private final Directory directory;
    private final Breaker<InetSocketAddress> breaker = new Breaker<>();
    /** Of executors whose files an agent does not serve. */
    private final Breaker<String> stores = new Breaker<>();
    private final GatherLimits limits;
    private final Counter gatheredBytes;
    private final Counter gatheredBlocks;
    private final Counter vanillaBlocks;
    private final Counter failures;
    private volatile boolean ready;
    private final ThreadPoolExecutor pool;

    Fetches(StoreClient client, Directory directory, Duration patience, MetricRegistry metrics) {
        this(client, directory, patience, metrics, MOST_THREADS);
    }

    Fetches(StoreClient client, Directory directory, Duration patience, MetricRegistry metrics, int mostThreads) {
        this.pool = new ThreadPoolExecutor(0, mostThreads, 30, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
            Thread thread = new Thread(task, "weir-fetch");
            thread.setDaemon(true);
            return thread;
        });
        this.client = client;
        this.directory = directory;
        this.limits = new GatherLimits(CONNECT_LIMIT, ANSWER_LIMIT, SILENCE, patience);
        this.gatheredBytes = metrics.counter("gatheredBytes");
        this.gatheredBlocks = metrics.counter("gatheredBlocks");
        this.vanillaBlocks = metrics.counter("vanillaBlocks");
        this.failures = metrics.counter("failures");
    }

    /** The agent of this host is known, so gathers can name it as their destination. */
    void begin() {
        ready = true;
    }

    /** Spark's own fetch of blocks. */
    interface Vanilla {
        void fetch(String[] blocks);
    }

    /**
     * Fetches the blocks of an executor for the task of this thread.
     *
     * @param listener hears of each block once, from any thread
     * @param vanilla fetches what this does not
     */
    void fetch(String executor, String[] names, BlockFetchingListener listener, Vanilla vanilla) {
        TaskContext task = TaskContext.get();
        ShuffleBlocks blocks = ready && task != null ? ShuffleBlocks.parse(names) : null;
        if (blocks == null) {
            vanillaBlocks.inc(names.length);
            vanilla.fetch(names);
            return;
        }
        One one = new One(executor, blocks, listener, vanilla, task);
        FutureTask<Void> running = new FutureTask<>(one, null);
        try {
            pool.execute(running);
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // The pool is full, or the system gives no more threads.
            one.rest();
            return;
        }
        task.addTaskCompletionListener(new Cancelling(one, running));
    }

    void close() {
        ready = false;
        pool.shutdownNow();
        directory.close();
    }

    /** A task that is over, or killed, wants nothing more. */
    private static final class Cancelling implements TaskCompletionListener {
        private final One one;
        private final Future<?> running;

        Cancelling(One one, Future<?> running) {
            this.one = one;
            this.running = running;
        }

        @Override
        public void onTaskCompletion(TaskContext context) {
            one.over = true;
            running.cancel(true);
        }
    }

    /** One fetch. */
    private final class One implements Runnable {
        private final String executor;
        private final ShuffleBlocks blocks;
        private final BlockFetchingListener listener;
        private final Vanilla vanilla;
        private final int stage;
        private final int attempt;
        private final int group;
        private int delivered;
        private volatile boolean over;

        One(String executor, ShuffleBlocks blocks, BlockFetchingListener listener, Vanilla vanilla, TaskContext task) {
            this.executor = executor;
            this.blocks = blocks;
            this.listener = listener;
            this.vanilla = vanilla;
            this.stage = task.stageId();
            this.attempt = task.stageAttemptNumber();
            this.group = task.partitionId();
        }

        @Override
        public void run() {
            try {
                gather();
            } catch (InterruptedException | InterruptedIOException e) {
                return;
            } catch (RuntimeException | Error e) {
                failures.inc();
                LOG.warn("a fetch by Weir failed; Spark's own goes on", e);
            }
            if (!over && delivered < blocks.size()) {
                try {
                    rest();
                } catch (RuntimeException | Error e) {
                    // On a thread of Spark the task would have heard of it.
                    for (int at = delivered; at < blocks.size(); at++) {
                        listener.onBlockFetchFailure(blocks.name(at), e);
                    }
                }
            }
        }

        /** What is not here yet is fetched by Spark. */
        void rest() {
            String[] rest = new String[blocks.size() - delivered];
            for (int at = 0; at < rest.length; at++) {
                rest[at] = blocks.name(delivered + at);
            }
            vanillaBlocks.inc(rest.length);
            vanilla.fetch(rest);
        }

        /** A block that its listener could not take has failed: nobody waits for it in vain. */
        private void hand(String block, ByteBuffer bytes) {
            try {
                listener.onBlockFetchSuccess(block, new NioManagedBuffer(bytes));
            } catch (RuntimeException | Error e) {
                listener.onBlockFetchFailure(block, e);
                throw e;
            }
        }

        /** Leaves alone for a while what is the reason: this executor's files, or all that the agent has. */
        private void rest(IOException reason, InetSocketAddress agent) {
            if (reason instanceof HolderException) {
                HolderStatus status = ((HolderException) reason).status();
                // The agent is well, and others are served there.
                if (status != HolderStatus.COFLOW_ENDED && status != HolderStatus.COFLOW_REFUSED) {
                    stores.failed(executor, System.nanoTime());
                    directory.forget(executor);
                }
            } else if (!(reason instanceof TimeLimitException)) {
                breaker.failed(agent, System.nanoTime());
                directory.forget(executor);
            }
        }

        private void gather() throws InterruptedException, InterruptedIOException {
            InetSocketAddress agent = directory.agent(executor);
            if (agent == null || !breaker.lets(agent, System.nanoTime()) || !stores.lets(executor, System.nanoTime())) {
                return;
            }
            Long coflow = directory.coflow(stage, attempt);
            if (coflow == null) {
                return;
            }
            try {
                for (ShuffleBlocks.Part part : blocks.gathers(directory.store(executor), coflow, group)) {
                    client.gather(agent, part.gather, limits, (index, bytes) -> {
                        gatheredBytes.inc(bytes.remaining());
                        gatheredBlocks.inc();
                        delivered = part.first + index + 1;
                        hand(blocks.name(part.first + index), bytes);
                    });
                }
                breaker.succeeded(agent);
                stores.succeeded(executor);
            } catch (InterruptedIOException e) {
                throw e;
            } catch (IOException e) {
                failures.inc();
                rest(e, agent);
                LOG.warn("blocks of executor {} for stage {}.{} come by Spark's own fetch: {}", executor, stage, attempt,
                        e.toString());
            }
        }
    }
}

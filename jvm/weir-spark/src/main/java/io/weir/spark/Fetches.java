package io.weir.spark;

import com.codahale.metrics.Counter;
import com.codahale.metrics.MetricRegistry;
import io.weir.client.BrokenOffException;
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
import org.apache.spark.network.buffer.ManagedBuffer;
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
    private final Tally tally;
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

    Fetches(StoreClient client, Directory directory, Tally tally, Duration patience, MetricRegistry metrics) {
        this(client, directory, tally, patience, metrics, MOST_THREADS);
    }

    Fetches(StoreClient client, Directory directory, Tally tally, Duration patience, MetricRegistry metrics, int mostThreads) {
        this.pool = new ThreadPoolExecutor(0, mostThreads, 30, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
            Thread thread = new Thread(task, "weir-fetch");
            thread.setDaemon(true);
            return thread;
        });
        this.client = client;
        this.directory = directory;
        this.tally = tally;
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

    /** The task of this thread begins. */
    void prepare() {
        TaskContext task = TaskContext.get();
        if (ready && task != null) {
            directory.prepare(task.stageId(), task.stageAttemptNumber());
        }
    }

    /** Spark's own fetch of blocks. */
    interface Vanilla {
        void fetch(String[] blocks, BlockFetchingListener listener);
    }

    /**
     * Fetches the blocks of an executor for the task of this thread.
     *
     * @param listener hears of each block once, from any thread
     * @param vanilla fetches what this does not, and tells the listener that it is given
     */
    void fetch(String executor, String[] names, BlockFetchingListener listener, Vanilla vanilla) {
        TaskContext task = TaskContext.get();
        ShuffleBlocks blocks = task == null ? null : ShuffleBlocks.parse(names);
        if (blocks == null || !ready) {
            vanillaBlocks.inc(names.length);
            vanilla.fetch(names, counted(names, listener, blocks == null ? Why.MERGED : Why.NOT_ATTACHED));
            return;
        }
        One one = new One(executor, blocks, listener, vanilla, task);
        FutureTask<Void> running = new FutureTask<>(one, null);
        try {
            pool.execute(running);
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            // The pool is full, or the system gives no more threads.
            one.why = Why.TOO_MANY;
            tally.fetched(one.stage, one.attempt, 0);
            one.rest();
            return;
        }
        task.addTaskCompletionListener(new Cancelling(one, running));
    }

    /** A listener that counts what it hears of for the task of this thread; the same one where there is nothing to count. */
    BlockFetchingListener counted(String[] names, BlockFetchingListener listener, Why why) {
        TaskContext task = TaskContext.get();
        if (task == null || names.length == 0 || !ShuffleBlocks.isOfShuffle(names[0])) {
            return listener;
        }
        tally.fetched(task.stageId(), task.stageAttemptNumber(), 0);
        return new Counted(listener, task.stageId(), task.stageAttemptNumber(), why);
    }

    /** Counts what Spark's own fetch brings. */
    private final class Counted implements BlockFetchingListener {
        private final BlockFetchingListener listener;
        private final int stage;
        private final int attempt;
        private final Why why;

        Counted(BlockFetchingListener listener, int stage, int attempt, Why why) {
            this.listener = listener;
            this.stage = stage;
            this.attempt = attempt;
            this.why = why;
        }

        /** Before the task hears of it: after its last block it may be over. */
        @Override
        public void onBlockFetchSuccess(String block, ManagedBuffer data) {
            try {
                tally.spark(stage, attempt, why, data.size());
            } catch (RuntimeException e) {
                LOG.debug("block {} is not counted", block, e);
            }
            listener.onBlockFetchSuccess(block, data);
        }

        @Override
        public void onBlockFetchFailure(String block, Throwable reason) {
            listener.onBlockFetchFailure(block, reason);
        }
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
        /** Spark fetches the rest. */
        private Why why = Why.FAILED;

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
            vanilla.fetch(rest, new Counted(listener, stage, attempt, why));
        }

        /** A block that its listener could not take has failed: no task waits for it in vain. */
        private void hand(String block, ByteBuffer bytes) {
            try {
                listener.onBlockFetchSuccess(block, new NioManagedBuffer(bytes));
            } catch (RuntimeException | Error e) {
                listener.onBlockFetchFailure(block, e);
                throw e;
            }
        }

        /** Leaves alone for a while what is the reason: this executor's files, or all that the agent has. */
        private Why rest(IOException reason, InetSocketAddress agent) {
            if (reason instanceof HolderException) {
                HolderStatus status = ((HolderException) reason).status();
                // The agent is well, and others are served there.
                if (status == HolderStatus.COFLOW_ENDED || status == HolderStatus.COFLOW_REFUSED) {
                    return Why.ENDED;
                }
                stores.failed(executor, System.nanoTime());
                directory.forget(executor);
            } else if (reason instanceof TimeLimitException) {
                return Why.PAUSED;
            } else {
                breaker.failed(agent, System.nanoTime());
                directory.forget(executor);
            }
            return Why.FAILED;
        }

        /** What has not come yet. */
        private void gather(InetSocketAddress agent, long coflow) throws IOException {
            for (ShuffleBlocks.Part part : blocks.gathers(directory.store(executor), coflow, group, delivered)) {
                client.gather(agent, part.gather, limits, (index, bytes) -> {
                    gatheredBytes.inc(bytes.remaining());
                    gatheredBlocks.inc();
                    tally.weir(stage, attempt, bytes.remaining());
                    delivered = part.first + index + 1;
                    hand(blocks.name(part.first + index), bytes);
                });
            }
        }

        private void gather() throws InterruptedException, InterruptedIOException {
            long begun = System.nanoTime();
            InetSocketAddress agent = directory.agent(executor);
            Long coflow = null;
            if (agent == null) {
                why = Why.NO_AGENT;
            } else if (!breaker.lets(agent, System.nanoTime()) || !stores.lets(executor, System.nanoTime())) {
                why = Why.RESTING;
            } else {
                coflow = directory.coflow(stage, attempt);
                why = coflow == null ? Why.NO_COFLOW : Why.FAILED;
            }
            tally.fetched(stage, attempt, System.nanoTime() - begun);
            if (coflow == null) {
                return;
            }
            try {
                try {
                    gather(agent, coflow);
                } catch (BrokenOffException e) {
                    // The agent says why, if it is there: most often the coflow has ended, as a job that is cancelled does.
                    gather(agent, coflow);
                }
                breaker.succeeded(agent);
                stores.succeeded(executor);
            } catch (InterruptedIOException e) {
                throw e;
            } catch (IOException e) {
                failures.inc();
                why = rest(e, agent);
                LOG.warn("blocks of executor {} for stage {}.{} come by Spark's own fetch: {}", executor, stage, attempt,
                        e.toString());
            }
        }
    }
}

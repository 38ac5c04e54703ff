package io.weir.spark;

import com.codahale.metrics.MetricSet;
import java.io.IOException;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.BlockPushingListener;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.network.shuffle.DownloadFileManager;
import org.apache.spark.network.shuffle.MergeFinalizerListener;
import org.apache.spark.network.shuffle.MergedBlocksMetaListener;
import org.apache.spark.network.shuffle.checksum.Cause;

/** Spark's client of shuffle blocks, with fetches by Weir before its own. */
final class WeirBlockStoreClient extends BlockStoreClient {
    private final BlockStoreClient vanilla;
    private final Fetches fetches;

    WeirBlockStoreClient(BlockStoreClient vanilla, Fetches fetches) throws ReflectiveOperationException {
        this.vanilla = vanilla;
        this.fetches = fetches;
        // Calls of later versions that are not named below work with these.
        for (String name : new String[] {"clientFactory", "appId", "transportConf"}) {
            Field field = BlockStoreClient.class.getDeclaredField(name);
            field.setAccessible(true);
            field.set(this, field.get(vanilla));
        }
    }

    @Override
    public void fetchBlocks(String host, int port, String execId, String[] blockIds, BlockFetchingListener listener,
            DownloadFileManager downloads) {
        if (downloads != null) {
            // Blocks that are too large for memory.
            vanilla.fetchBlocks(host, port, execId, blockIds, fetches.counted(blockIds, listener, Why.LARGE), downloads);
            return;
        }
        fetches.fetch(execId, blockIds, listener,
                (rest, to) -> vanilla.fetchBlocks(host, port, execId, rest, to, null));
    }

    @Override
    public Cause diagnoseCorruption(String host, int port, String execId, int shuffleId, long mapId, int reduceId,
            long checksum, String algorithm) {
        return vanilla.diagnoseCorruption(host, port, execId, shuffleId, mapId, reduceId, checksum, algorithm);
    }

    @Override
    public MetricSet shuffleMetrics() {
        return vanilla.shuffleMetrics();
    }

    @Override
    public void setAppAttemptId(String appAttemptId) {
        vanilla.setAppAttemptId(appAttemptId);
    }

    @Override
    public String getAppAttemptId() {
        return vanilla.getAppAttemptId();
    }

    @Override
    public void getHostLocalDirs(String host, int port, String[] execIds,
            CompletableFuture<Map<String, String[]>> hostLocalDirsCompletable) {
        vanilla.getHostLocalDirs(host, port, execIds, hostLocalDirsCompletable);
    }

    @Override
    public void pushBlocks(String host, int port, String[] blockIds, ManagedBuffer[] buffers,
            BlockPushingListener listener) {
        vanilla.pushBlocks(host, port, blockIds, buffers, listener);
    }

    @Override
    public void finalizeShuffleMerge(String host, int port, int shuffleId, int shuffleMergeId,
            MergeFinalizerListener listener) {
        vanilla.finalizeShuffleMerge(host, port, shuffleId, shuffleMergeId, listener);
    }

    @Override
    public void getMergedBlockMeta(String host, int port, int shuffleId, int shuffleMergeId, int reduceId,
            MergedBlocksMetaListener listener) {
        vanilla.getMergedBlockMeta(host, port, shuffleId, shuffleMergeId, reduceId, listener);
    }

    @Override
    public boolean removeShuffleMerge(String host, int port, int shuffleId, int shuffleMergeId) {
        return vanilla.removeShuffleMerge(host, port, shuffleId, shuffleMergeId);
    }

    @Override
    public void close() throws IOException {
        vanilla.close();
    }
}

package io.weir.spark;

import io.weir.client.Store;
import io.weir.client.StoreClient;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.network.shuffle.BlockStoreClient;
import org.apache.spark.storage.BlockManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** An executor's side: has its own shuffle files served, and fetches those of others. */
final class WeirExecutor implements ExecutorPlugin {
    private static final Logger LOG = LoggerFactory.getLogger(WeirExecutor.class);
    private static final Duration ATTACH_LIMIT = Duration.ofSeconds(5);
    private static final long FIRST_PAUSE_MS = 250;
    private static final long LONGEST_PAUSE_MS = 30_000;

    private StoreClient client;
    private Fetches fetches;
    private Tally tally;
    private Store store;
    private volatile boolean over;

    @Override
    public void init(PluginContext plugin, Map<String, String> told) {
        if (told.containsKey(WeirDriver.ASIDE) || !told.containsKey(WeirDriver.TOKEN)) {
            return;
        }
        try {
            begin(plugin, Hex.parse(told.get(WeirDriver.TOKEN)));
        } catch (ReflectiveOperationException | RuntimeException | LinkageError e) {
            // Another version of Spark than any that is known, or no Unix sockets here.
            LOG.warn("Weir stands aside at executor {}", plugin.executorID(), e);
        }
    }

    private void begin(PluginContext plugin, byte[] token) throws ReflectiveOperationException {
        Settings settings = new Settings(plugin.conf());
        String application = plugin.conf().getAppId();
        store = new Store(application, plugin.executorID(), token);
        client = new StoreClient(settings.agent());
        Directory directory = new Directory(plugin, application, token);
        BlockManager blocks = SparkEnv.get().blockManager();
        Field field = BlockManager.class.getDeclaredField("blockStoreClient");
        field.setAccessible(true);
        BlockStoreClient vanilla = (BlockStoreClient) field.get(blocks);
        tally = new Tally(plugin, plugin.metricRegistry());
        fetches = new Fetches(client, directory, tally, settings.patience(), plugin.metricRegistry());
        Thread attaching = new Thread(() -> attach(plugin, settings, blocks), "weir-attach");
        attaching.setDaemon(true);
        attaching.start();
        field.set(blocks, new WeirBlockStoreClient(vanilla, fetches));
    }

    /**
     * Has the agent of this host serve this executor's files, and tells the driver; until then they are fetched as Spark does. It
     * is said again now and then, to an agent that lost its spool, or has another address by now.
     */
    private void attach(PluginContext plugin, Settings settings, BlockManager blocks) {
        File[] directories = blocks.diskBlockManager().localDirs();
        List<Path> paths = Stream.of(directories).map(File::toPath).collect(Collectors.toList());
        String said = null;
        String told = null;
        long pause = FIRST_PAUSE_MS;
        while (!over) {
            try {
                String address = client.attach(store, paths, settings.subdirectories(), ATTACH_LIMIT);
                if (!address.equals(told)) {
                    fetches.begin();
                    plugin.send(Messages.attached(plugin.executorID(), address));
                    LOG.info("Weir's agent at {} serves the shuffle files of {}", address, store);
                    told = address;
                }
                said = null;
                pause = LONGEST_PAUSE_MS;
            } catch (IOException | RuntimeException e) {
                // The same reason again is no news.
                if (!e.toString().equals(said)) {
                    said = e.toString();
                    LOG.warn("Weir's agent does not serve the shuffle files of {}, which Spark fetches itself until it does: {}",
                            store, said);
                }
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException e) {
                return;
            }
            pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
        }
    }

    @Override
    public void onTaskStart() {
        if (fetches != null) {
            fetches.prepare();
        }
    }

    @Override
    public void shutdown() {
        over = true;
        if (fetches != null) {
            fetches.close();
        }
        if (tally != null) {
            tally.close();
        }
        if (client != null) {
            client.close();
        }
    }
}

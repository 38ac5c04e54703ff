package io.weir.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/** The plugin: {@code spark.plugins=io.weir.spark.WeirPlugin}. */
public final class WeirPlugin implements SparkPlugin {
    /** A plugin that was not started. */
    public WeirPlugin() {}

    @Override
    public DriverPlugin driverPlugin() {
        return new WeirDriver();
    }

    @Override
    public ExecutorPlugin executorPlugin() {
        return new WeirExecutor();
    }
}

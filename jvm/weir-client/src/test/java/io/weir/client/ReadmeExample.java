package io.weir.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;

/** The example of jvm/README.md, which {@link ReadmeTest} compares with it. */
final class ReadmeExample {
    private ReadmeExample() {}

    static byte[] run(String coordinator, Path agentSocket) throws IOException {
        // example
        try (WeirClient client = WeirClient.builder().coordinator(coordinator).agent(agentSocket).host(0).build();
                Coflow coflow = client.register(CoflowOptions.named("shuffle 7").flows(1).build())) {
            // A sender, on the host of the agent. Other processes put and get with coflow.id().
            client.put(coflow.id(), "map-0/reduce-0", ByteBuffer.wrap("some bytes".getBytes()));
            // A receiver, on any host, before or after the put.
            byte[] bytes = client.getBytes(coflow.id(), "map-0/reduce-0", GetOptions.DEFAULT, 1 << 20);
            // The driver, once no task of the stage will run again: the blocks go.
            coflow.unregister().ifPresent(System.out::println);
            return bytes;
        }
        // end
    }
}

package io.weir.client;

import java.io.IOException;
import java.net.InetSocketAddress;

/** Makes connections. */
interface Dialer {
    /**
     * Connects.
     *
     * @param limit when it gives up, on the clock of {@link System#nanoTime}
     * @throws WaitExpiredException if it did
     */
    Connection connect(InetSocketAddress address, long limit) throws IOException;
}

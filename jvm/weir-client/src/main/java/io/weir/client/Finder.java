package io.weir.client;

import java.net.InetSocketAddress;
import java.util.List;

/** Finds the holders of one block. */
interface Finder {
    /** Whether it knows holders better than the coordinator: those that the caller named. */
    boolean isFixed();

    /**
     * The holders, best first; none if no agent has the block until {@code waitNanos} passed.
     *
     * @param limit when it gives up, on the clock of {@link System#nanoTime}
     * @throws UnreachableException or {@link TimeLimitException} if it may be asked again
     */
    List<InetSocketAddress> find(long waitNanos, long limit) throws java.io.IOException;

    /** Why the coflow was refused, as far as that can be learned soon. */
    String refusal(long limit) throws java.io.IOException;
}

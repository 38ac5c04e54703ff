package io.weir.client;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * A connection to the data plane of an agent, for one thread at a time. Limits are times of {@link System#nanoTime}. A thread
 * that is interrupted while it waits gets an {@link java.io.InterruptedIOException}, and stays interrupted.
 */
interface Connection extends Closeable {
    /**
     * Reads at least one byte, unless the peer has closed.
     *
     * @return how many; -1 once the peer has closed
     * @throws WaitExpiredException if none came until the limit
     */
    int read(ByteBuffer into, long limit) throws IOException;

    /** Writes all of a buffer. */
    void write(ByteBuffer from, long limit) throws IOException;

    /** Whether it is still open and its peer has said nothing unasked. */
    boolean isFit();

    /** Ends it. May be called from any thread: one that waits for the connection gets an error then. */
    @Override
    void close();
}

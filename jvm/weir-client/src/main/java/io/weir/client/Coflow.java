package io.weir.client;

import java.io.IOException;
import java.util.Optional;

/**
 * A coflow that this client keeps alive: a daemon thread renews its lease while this is open. Closing it, or its client, stops
 * that and nothing else: the coflow goes on until {@link #unregister}, or until its lease has passed without a put, a get or a
 * moving flow. For any number of threads.
 */
public final class Coflow implements AutoCloseable {
    private final WeirClient client;
    private final long id;
    private boolean closed;

    Coflow(WeirClient client, long id) {
        this.client = client;
        this.id = id;
    }

    /**
     * Its id, for other tasks: they put and get with it.
     *
     * @return unsigned; {@link Long#toUnsignedString(long)} writes it
     */
    public long id() {
        return id;
    }

    /**
     * Says that no more flows will join it.
     *
     * @throws IOException as {@link WeirClient#seal}
     */
    public void seal() throws IOException {
        client.seal(id);
    }

    /**
     * Ends it: its blocks go, and what still moves is stopped. Closes this too.
     *
     * @return what became of it; empty if the coordinator did not know it
     * @throws IOException as {@link WeirClient#unregister}
     */
    public Optional<CoflowRecord> unregister() throws IOException {
        Optional<CoflowRecord> record = client.unregister(id);
        close();
        return record;
    }

    /**
     * Whether the coordinator said, in answer to a renewal, that it has ended.
     *
     * @return false too while that is not known
     */
    public boolean hasEnded() {
        synchronized (this) {
            return !closed && !client.leases().isKept(id);
        }
    }

    /** Renews its lease no more. Idempotent. */
    @Override
    public void close() {
        synchronized (this) {
            if (closed) {
                return;
            }
            closed = true;
        }
        client.leases().close(id);
    }
}

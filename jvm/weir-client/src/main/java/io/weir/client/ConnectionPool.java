package io.weir.client;

import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** What ended gets leave for later ones: connections, and buffers of a frame. Bounded; what is beyond is closed or dropped. */
final class ConnectionPool implements AutoCloseable {
    /** What ends with the pool. */
    interface Abortable {
        /** Has the thread that waits in it end with an error. From any thread. */
        void abort();
    }

    private final Map<InetSocketAddress, ArrayDeque<Connection>> idle = new HashMap<>();
    private final ArrayDeque<ByteBuffer> buffers = new ArrayDeque<>();
    private final Set<Abortable> readers = new HashSet<>();
    private int idleCount;
    private boolean closed;

    /** An idle connection that is still open, or null. */
    Connection take(InetSocketAddress holder) {
        while (true) {
            Connection connection = takeAny(holder);
            if (connection == null || connection.isFit()) {
                return connection;
            }
            connection.close();
        }
    }

    private synchronized Connection takeAny(InetSocketAddress holder) {
        ArrayDeque<Connection> connections = idle.get(holder);
        if (connections == null) {
            return null;
        }
        Connection connection = connections.pollLast();
        if (connections.isEmpty()) {
            idle.remove(holder);
        }
        idleCount--;
        return connection;
    }

    /** Keeps a connection on which everything was said, or closes it. */
    void give(InetSocketAddress holder, Connection connection) {
        if (!keep(holder, connection)) {
            connection.close();
        }
    }

    private synchronized boolean keep(InetSocketAddress holder, Connection connection) {
        if (closed || idleCount >= Limits.MAX_IDLE_CONNECTIONS) {
            return false;
        }
        ArrayDeque<Connection> connections = idle.computeIfAbsent(holder, at -> new ArrayDeque<>());
        if (connections.size() >= Limits.MAX_IDLE_PER_HOLDER) {
            return false;
        }
        connections.addLast(connection);
        idleCount++;
        return true;
    }

    /** A little-endian buffer for an answer and a frame. */
    ByteBuffer takeBuffer() {
        synchronized (this) {
            ByteBuffer buffer = buffers.pollLast();
            if (buffer != null) {
                return buffer;
            }
        }
        return ByteBuffer.allocateDirect(BlockReader.BUFFER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    }

    synchronized void giveBuffer(ByteBuffer buffer) {
        if (!closed && buffers.size() < Limits.MAX_IDLE_BUFFERS) {
            buffers.addLast(buffer);
        }
    }

    /** A get begins; it is ended with the pool. */
    synchronized void begin(Abortable reader) throws ClientClosedException {
        if (closed) {
            throw new ClientClosedException("the client");
        }
        readers.add(reader);
    }

    synchronized void end(Abortable reader) {
        readers.remove(reader);
    }

    synchronized boolean isClosed() {
        return closed;
    }

    /** Ends what is under way, and closes what is idle. */
    @Override
    public void close() {
        Set<Abortable> ended;
        Map<InetSocketAddress, ArrayDeque<Connection>> left;
        synchronized (this) {
            closed = true;
            ended = new HashSet<>(readers);
            left = new HashMap<>(idle);
            idle.clear();
            buffers.clear();
            idleCount = 0;
        }
        ended.forEach(Abortable::abort);
        left.values().forEach(connections -> connections.forEach(Connection::close));
    }
}

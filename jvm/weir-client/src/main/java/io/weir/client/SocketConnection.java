package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * A TCP connection. Reads and writes wait, each for a time of its own. A blocking channel of Java has no limit for that, so the
 * channel does not block, and its selector waits.
 */
final class SocketConnection implements Connection {
    /** DSCP CS6, as what a receiver says is marked. */
    private static final int CONTROL_TRAFFIC = 48 << 2;

    private final SocketChannel channel;
    private final Selector selector;
    private final SelectionKey key;
    private final Lull lull = new Lull();
    private volatile boolean closed;

    private SocketConnection(SocketChannel channel, Selector selector) throws IOException {
        this.channel = channel;
        this.selector = selector;
        channel.configureBlocking(false);
        this.key = channel.register(selector, 0);
    }

    /** See {@link Dialer#connect}. */
    static SocketConnection connect(InetSocketAddress address, long limit) throws IOException {
        SocketChannel channel = SocketChannel.open();
        Selector selector = null;
        SocketConnection made = null;
        try {
            selector = Selector.open();
            SocketConnection connection = new SocketConnection(channel, selector);
            connection.tune();
            if (!channel.connect(address)) {
                do {
                    connection.await(SelectionKey.OP_CONNECT, limit, "connecting took too long");
                } while (!channel.finishConnect());
            }
            made = connection;
            return connection;
        } finally {
            if (made == null) {
                closeQuietly(channel, selector);
            }
        }
    }

    private void tune() throws IOException {
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        try {
            channel.setOption(StandardSocketOptions.IP_TOS, CONTROL_TRAFFIC);
        } catch (IOException | UnsupportedOperationException e) {
            // A mark that cannot be set costs priority in switches, and nothing else.
        }
    }

    /** Waits until the channel is ready for something. */
    private void await(int what, long limit, String expired) throws IOException {
        try {
            select(what, limit, expired);
        } catch (ClosedSelectorException | CancelledKeyException e) {
            throw new IOException("the connection was closed here", e);
        }
    }

    private void select(int what, long limit, String expired) throws IOException {
        key.interestOps(what);
        while (true) {
            if (closed) {
                throw new IOException("the connection was closed here");
            }
            if (Thread.currentThread().isInterrupted()) {
                throw new InterruptedIOException("interrupted while waiting for a holder");
            }
            long left = limit - System.nanoTime();
            if (left <= 0) {
                throw new WaitExpiredException(expired);
            }
            // Rounded up: select(0) would wait for ever.
            int ready = selector.select(TimeUnit.NANOSECONDS.toMillis(left) + 1);
            selector.selectedKeys().clear();
            if (ready > 0) {
                return;
            }
        }
    }

    @Override
    public int read(ByteBuffer into, long limit) throws IOException {
        leaveAlone(into.remaining(), limit);
        while (true) {
            int asked = into.remaining();
            int count = channel.read(into);
            if (count != 0) {
                lull.read(count, asked, System.nanoTime());
                return count;
            }
            await(SelectionKey.OP_READ, limit, "nothing came for too long");
        }
    }

    /** Lets more come before a read. An interrupt ends it, and a limit. */
    private void leaveAlone(int asked, long limit) {
        long now = System.nanoTime();
        long nanos = Math.min(lull.nanos(asked, now), limit - now);
        if (nanos > 0) {
            LockSupport.parkNanos(this, nanos);
        }
    }

    @Override
    public void write(ByteBuffer from, long limit) throws IOException {
        lull.forget();
        while (from.hasRemaining()) {
            if (channel.write(from) == 0) {
                await(SelectionKey.OP_WRITE, limit, "the peer takes nothing for too long");
            }
        }
    }

    @Override
    public boolean isFit() {
        try {
            return !closed && channel.read(ByteBuffer.allocate(1)) == 0;
        } catch (IOException e) {
            return false;
        }
    }

    @Override
    public void close() {
        closed = true;
        // A thread that waits in the selector is woken by its close, and then finds it closed.
        closeQuietly(channel, selector);
    }

    private static void closeQuietly(SocketChannel channel, Selector selector) {
        try {
            channel.close();
        } catch (IOException e) {
            // Nothing is left to be done with it.
        }
        if (selector != null) {
            try {
                selector.close();
            } catch (IOException e) {
                // The same.
            }
        }
    }
}

package io.weir.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A relay on 127.0.0.1 that says to a receiver what a test has it say. */
final class FakeRelay implements AutoCloseable {
    /** What it does on one connection, once the receiver has subscribed. */
    interface Behaviour {
        void serve(byte[] key, InputStream in, OutputStream out) throws Exception;
    }

    /** What receivers said first: Hello and Subscribe. */
    final List<byte[]> subscriptions = new CopyOnWriteArrayList<>();
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Behaviour behaviour;

    FakeRelay(Behaviour behaviour) throws IOException {
        this.behaviour = behaviour;
        Channels.daemons("fake-relay").newThread(this::accept).start();
    }

    InetSocketAddress address() {
        return (InetSocketAddress) server.getLocalSocketAddress();
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                Channels.daemons("fake-relayed").newThread(() -> serve(socket)).start();
            } catch (IOException e) {
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            byte[] said = socket.getInputStream().readNBytes(80);
            if (said.length == 80) {
                subscriptions.add(said);
                behaviour.serve(Arrays.copyOfRange(said, 56, 72), socket.getInputStream(), socket.getOutputStream());
            }
        } catch (Exception e) {
            // The receiver left, which is its right.
        }
    }

    /** A message of a kind about a flow. */
    static byte[] message(int kind, byte[] key, long number, byte[] body) {
        ByteBuffer bytes = ByteBuffer.allocate(32 + body.length).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.put((byte) 1).put((byte) kind).put((byte) 5).put((byte) 0).putInt(body.length).put(key).putLong(number)
                .put(body).array();
    }

    /** The frames of a block as messages of at most so many bytes. */
    static byte[] relayed(byte[] key, byte[] block, int most) {
        byte[] frames = FakeAgent.frames(block);
        byte[] all = {};
        for (int at = 0; at < frames.length; at += most) {
            byte[] part = Arrays.copyOfRange(frames, at, Math.min(frames.length, at + most));
            all = FakeAgent.join(all, message(2, key, at, part));
        }
        return all;
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}

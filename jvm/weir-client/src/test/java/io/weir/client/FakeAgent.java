package io.weir.client;

import java.io.ByteArrayOutputStream;
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
import java.util.zip.CRC32C;

/** A peer on 127.0.0.1 that says what a test has it say, protocol or not. */
public final class FakeAgent implements AutoCloseable {
    /** What it does on one connection, once the request is there. */
    public interface Behaviour {
        void serve(Request request, InputStream in, OutputStream out) throws Exception;
    }

    /** A request as it came. */
    public static final class Request {
        final long offset;
        final Identity identity;
        final String block;
        /** All bytes of a gather; null if it is a request for a block. */
        public final byte[] gather;
        /** The way by relays that came before it; null if none did. */
        byte[] way;

        Request(byte[] gather) {
            ByteBuffer bytes = ByteBuffer.wrap(gather).order(ByteOrder.LITTLE_ENDIAN);
            offset = bytes.getLong(16);
            identity = Identity.read(bytes, 32);
            block = null;
            this.gather = gather;
        }

        Request(byte[] head, byte[] name) {
            ByteBuffer bytes = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN);
            offset = bytes.getLong(18);
            identity = Identity.read(bytes, 34);
            block = new String(name, java.nio.charset.StandardCharsets.UTF_8);
            gather = null;
        }
    }

    public final List<Request> requests = new CopyOnWriteArrayList<>();
    private final ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final Behaviour behaviour;
    /** Takes questions whether it is there, and does not answer them. */
    public volatile boolean mute;

    /** One that behaves so on each connection. */
    public FakeAgent(Behaviour behaviour) throws IOException {
        this.behaviour = behaviour;
        Channels.daemons("fake-agent").newThread(this::accept).start();
    }

    /** Where it is. */
    public InetSocketAddress address() {
        return (InetSocketAddress) server.getLocalSocketAddress();
    }

    private void accept() {
        while (!server.isClosed()) {
            try {
                Socket socket = server.accept();
                Channels.daemons("fake-connection").newThread(() -> serve(socket)).start();
            } catch (IOException e) {
                return;
            }
        }
    }

    private void serve(Socket socket) {
        try (socket) {
            InputStream in = socket.getInputStream();
            while (true) {
                byte[] head = in.readNBytes(Wire.REQUEST_HEAD_BYTES);
                if (head.length < Wire.REQUEST_HEAD_BYTES) {
                    return;
                }
                byte[] way = null;
                if (head[1] == 'R') {
                    way = Arrays.copyOf(head, Way.BYTES);
                    head = join(Arrays.copyOfRange(head, Way.BYTES, head.length), in.readNBytes(Way.BYTES));
                }
                Request request = head[1] == 'G' ? gather(head, in) : new Request(head, in.readNBytes(head[5] & 0xff));
                if (request.gather == null && request.block.isEmpty()) {
                    // A question whether it is there.
                    if (mute) {
                        in.read();
                        return;
                    }
                    socket.getOutputStream().write(answer(HolderStatus.NO_SUCH_BLOCK, 0, Identity.UNKNOWN));
                    return;
                }
                request.way = way;
                requests.add(request);
                behaviour.serve(request, in, socket.getOutputStream());
            }
        } catch (Exception e) {
            // The receiver left, which is its right.
        }
    }

    private static Request gather(byte[] begin, InputStream in) throws IOException {
        byte[] rest = in.readNBytes(72 - begin.length);
        int count = ByteBuffer.wrap(rest).order(ByteOrder.LITTLE_ENDIAN).getInt(rest.length - 4);
        byte[] lists = in.readNBytes((begin[5] & 0xff) + (begin[6] & 0xff) + 16 * count);
        return new Request(join(begin, rest, lists));
    }

    /** One after the other. */
    public static byte[] join(byte[]... parts) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            all.writeBytes(part);
        }
        return all.toByteArray();
    }

    /** The block that is made of ranges. */
    public static byte[] block(byte[]... ranges) {
        ByteBuffer table = ByteBuffer.allocate(8 * ranges.length).order(ByteOrder.LITTLE_ENDIAN);
        for (byte[] range : ranges) {
            table.putLong(range.length);
        }
        return join(table.array(), join(ranges));
    }

    /** A block as an agent that keeps to the protocol sends it: its answer, and all frames. */
    public static byte[] sent(byte[] block) {
        return join(answer(HolderStatus.ACCEPTED, block.length, Identity.drawn()), frames(block));
    }

    /** All frames of a block. */
    static byte[] frames(byte[] block) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (int at = 0; at < block.length; at += Wire.FRAME_BYTES) {
            all.writeBytes(frame(Arrays.copyOfRange(block, at, Math.min(block.length, at + Wire.FRAME_BYTES))));
        }
        return all.toByteArray();
    }

    /** An answer without frames. */
    public static byte[] answer(HolderStatus status) {
        return answer(status, 0, Identity.UNKNOWN);
    }

    static byte[] answer(HolderStatus status, long size, Identity identity) {
        ByteBuffer bytes = ByteBuffer.allocate(Wire.RESPONSE_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(Wire.MAGIC).put(Wire.VERSION).put((byte) status.ordinal()).putShort((short) 0).putLong(size);
        return bytes.put(identity.toWire()).array();
    }

    static byte[] frame(byte[] payload) {
        CRC32C crc = new CRC32C();
        crc.update(payload);
        return frame(payload.length, (int) crc.getValue(), payload);
    }

    static byte[] frame(int length, int checksum, byte[] payload) {
        ByteBuffer bytes = ByteBuffer.allocate(8 + payload.length).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.putInt(length).putInt(checksum).put(payload).array();
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}

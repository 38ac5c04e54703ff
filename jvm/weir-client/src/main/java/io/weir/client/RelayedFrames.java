package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

/**
 * The frames of one flow as they come by a relay: the bytes of its messages, without their headers. What is wrong with the relay, or
 * with what it says, is a {@link RelayException}.
 */
final class RelayedFrames implements Connection {
    /** A relay says of every flow that it goes on, once a second. One that is silent for so long is done without. */
    private static final long SILENCE_NANOS = TimeUnit.SECONDS.toNanos(5);
    /** How often it is looked whether the agent is still there. */
    private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    /** The header of a frame, and the frame. */
    private static final int MOST_BYTES = Wire.FRAME_HEADER_BYTES + Wire.FRAME_BYTES;

    /** The relay failed, or does not keep to the protocol. */
    static final class RelayException extends IOException {
        private static final long serialVersionUID = 1L;

        RelayException(String message, Throwable cause) {
            super(message, cause);
        }
    }

    private final Connection relay;
    /** To the agent that sends. It says nothing more, and closes where it gives the flow up. */
    private final Connection agent;
    private final byte[] key;
    private final ByteBuffer header = ByteBuffer.allocate(Way.HEADER_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    /** Bytes of the message at hand that are still to come. */
    private int left;
    /** Bytes of the flow before the next message. */
    private long offset;
    private long heard = System.nanoTime();

    RelayedFrames(Connection relay, Connection agent, byte[] key) {
        this.relay = relay;
        this.agent = agent;
        this.key = key;
    }

    @Override
    public int read(ByteBuffer into, long limit) throws IOException {
        while (left == 0) {
            if (next(header, limit) && !header.hasRemaining()) {
                understand();
                header.clear();
                checkLimit(limit);
            }
        }
        int end = into.limit();
        into.limit(into.position() + Math.min(left, into.remaining()));
        try {
            int before = into.position();
            while (!next(into, limit)) {
                // The agent is still there.
            }
            left -= into.position() - before;
            return into.position() - before;
        } finally {
            into.limit(end);
        }
    }

    /** Reads what there is; false if nothing came for a moment. */
    private boolean next(ByteBuffer into, long limit) throws IOException {
        long now = System.nanoTime();
        long silent = heard + SILENCE_NANOS;
        long look = now + LOOK_NANOS;
        long end = look - limit < 0 ? look : limit;
        try {
            if (relay.read(into, end) < 0) {
                throw new RelayException("the relay closed the connection", null);
            }
            heard = System.nanoTime();
            return true;
        } catch (WaitExpiredException e) {
            now = System.nanoTime();
            if (!agent.isFit()) {
                throw new IOException("it closed the connection");
            }
            if (now - silent >= 0) {
                throw new RelayException("the relay is silent", e);
            }
            if (now - limit >= 0) {
                throw e;
            }
            return false;
        } catch (InterruptedIOException | RelayException e) {
            throw e;
        } catch (IOException e) {
            throw new RelayException("the relay: " + e.getMessage(), e);
        }
    }

    /** Where a relay says again and again that the flow goes on, no wait ends. */
    private void checkLimit(long limit) throws IOException {
        if (left > 0) {
            return;
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("interrupted while waiting for a relay");
        }
        if (System.nanoTime() - limit >= 0) {
            throw new WaitExpiredException("nothing came of the flow for too long");
        }
    }

    private void understand() throws RelayException {
        int length = header.getInt(4);
        byte kind = header.get(1);
        boolean isOfFlow = Arrays.equals(header.array(), 8, 24, key, 0, key.length);
        if (header.get(0) != Way.VERSION) {
            throw new RelayException("the relay speaks version " + (header.get(0) & 0xff), null);
        }
        if (isOfFlow && kind == Way.RESET && length == 0) {
            throw new RelayException("the relays gave the flow up", null);
        }
        if (kind == Way.ALIVE && length == 0) {
            return;
        }
        if (!isOfFlow || kind != Way.DATA || header.getLong(24) != offset || length < 1 || length > MOST_BYTES) {
            throw new RelayException("the relay sent something else than the next bytes", null);
        }
        left = length;
        offset += length;
    }

    @Override
    public void write(ByteBuffer from, long limit) {
        throw new UnsupportedOperationException("what a receiver has to say goes to the agent");
    }

    @Override
    public boolean isFit() {
        return false;
    }

    @Override
    public void close() {
        relay.close();
    }
}

package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/**
 * Gets one block, frame by frame: what {@link Asking} has a holder send is verified here, handed out, and acknowledged at the
 * end. For one thread; {@link #abort} for any.
 *
 * <p>A frame is verified where it was read, and lent to the caller from there. A flow that a plan has paused is silent for as
 * long as the plan says, so silence alone is no error: the holder is asked something on another connection that it answers at
 * once, and only one that does not answer is left. Time in which the caller wants nothing is no silence.
 */
final class BlockReader implements ConnectionPool.Abortable, AutoCloseable {
    /** Where a frame begins in the buffer: behind the answer of the holder, which may come with it. */
    private static final int FRAME_AT = Wire.RESPONSE_BYTES;
    private static final int PAYLOAD_AT = FRAME_AT + Wire.FRAME_HEADER_BYTES;
    static final int BUFFER_BYTES = PAYLOAD_AT + Wire.FRAME_BYTES;

    private final BlockName block;
    /** A larger block is an error. */
    private final long room;
    private final ConnectionPool pool;
    private final Dialer dialer;
    private final GetOptions options;
    private final Taken taken;
    private final Asking asking;
    private final ByteBuffer buffer;
    /** The same memory, for callers. */
    private final ByteBuffer lent;
    private final CRC32C crc = new CRC32C();
    private final long end;
    private long silence;
    /** Bytes of the current frame that are there, its header included. */
    private int filled;
    private boolean over;
    /** The buffer is the pool's again. */
    private boolean returned;
    private IOException failure;

    BlockReader(BlockName block, GetOptions options, Finder finder, Dialer dialer, ConnectionPool pool,
            long room) throws ClientClosedException {
        this.block = block;
        this.room = room;
        this.pool = pool;
        this.dialer = dialer;
        this.options = options;
        this.end = System.nanoTime() + options.timeLimitNanos();
        this.silence = options.silenceNanos();
        this.taken = new Taken(block.toString(), options.verifyWhole());
        this.buffer = pool.takeBuffer();
        this.lent = buffer.asReadOnlyBuffer();
        this.asking = new Asking(block, options, taken, finder, dialer, pool, end);
        pool.begin(this);
    }

    /** Size of the block in bytes; -1 until a holder has said it. */
    long size() {
        return taken.size();
    }

    /** Waits until a holder has said the size. */
    long awaitSize() throws IOException {
        while (taken.size() < 0 && !over) {
            try {
                ensureHolder();
            } catch (IOException e) {
                throw fail(e);
            }
        }
        return taken.size();
    }

    /** Whether all bytes were handed out. */
    boolean isAllRead() {
        return taken.isComplete();
    }

    /**
     * The next verified bytes, in order, until the next call; null once all were handed out, and acknowledged. After an error
     * every call ends with it.
     */
    ByteBuffer next() throws IOException {
        if (failure != null) {
            throw failure;
        }
        try {
            while (!over) {
                ensureHolder();
                if (taken.isComplete()) {
                    acknowledge();
                } else if (readFrame()) {
                    return lent;
                }
            }
            return null;
        } catch (IOException e) {
            throw fail(e);
        }
    }

    private IOException fail(IOException e) {
        failure = e;
        finish();
        return e;
    }

    private void ensureHolder() throws IOException {
        if (!asking.isConnected()) {
            filled = asking.connect(buffer);
            // Each time: before its first byte is here, a block may be another one at the next holder.
            if (taken.size() > room) {
                throw new BlockTooLargeException(block.toString(), taken.size(), room);
            }
        }
    }

    /** Reads one frame; false if it is not to be handed out, or did not arrive. */
    private boolean readFrame() throws IOException {
        int payload = taken.nextPayload();
        int whole = Wire.FRAME_HEADER_BYTES + payload;
        if (filled > whole) {
            // A holder that sends more than the block has: what is beyond is dropped, and so is the connection at the end.
            filled = whole;
            asking.spoil();
        }
        try {
            fill(Wire.FRAME_HEADER_BYTES);
            int length = buffer.getInt(FRAME_AT);
            if (length != payload) {
                throw new ProtocolException("it sent a frame of " + Integer.toUnsignedString(length)
                        + " bytes where one of " + payload + " belongs");
            }
            fill(whole);
        } catch (InterruptedIOException | TimeLimitException | ClientClosedException e) {
            throw e;
        } catch (SilentException e) {
            asking.avoid();
            // There is no use in asking it what became of the block.
            asking.obstacle(e, false);
            return false;
        } catch (ProtocolException e) {
            // It would say the same again: others are asked first.
            asking.avoid();
            asking.obstacle(e, true);
            return false;
        } catch (IOException e) {
            asking.obstacle(e, true);
            return false;
        }
        filled = 0;
        buffer.limit(FRAME_AT + whole).position(PAYLOAD_AT);
        crc.reset();
        crc.update(buffer);
        int checksum = buffer.getInt(FRAME_AT + 4);
        if ((int) crc.getValue() != checksum) {
            asking.doubt(taken.nextFrame());
            return false;
        }
        lent.limit(FRAME_AT + whole).position(PAYLOAD_AT);
        boolean isNew;
        try {
            isNew = taken.take(checksum, lent);
        } catch (WrongHashException e) {
            asking.avoid();
            throw e;
        }
        if (isNew) {
            asking.forgetObstacles();
            silence = options.silenceNanos();
            lent.limit(FRAME_AT + whole).position(PAYLOAD_AT);
        }
        return isNew;
    }

    /** Reads until so many bytes of the frame are there, and no more than the frame has. */
    private void fill(int wanted) throws IOException {
        int whole = Wire.FRAME_HEADER_BYTES + taken.nextPayload();
        while (filled < wanted) {
            buffer.limit(FRAME_AT + whole).position(FRAME_AT + filled);
            long now = System.nanoTime();
            try {
                readSome(earlier(now + silence, end));
            } catch (WaitExpiredException e) {
                asking.checkTime();
                if (!isThere()) {
                    takeWhatCame();
                }
                silence = Math.min(silence * 2, Limits.LONGEST_SILENCE_NANOS);
            }
            asking.checkTime();
        }
    }

    private void readSome(long limit) throws IOException {
        int count = asking.link().read(buffer, limit);
        if (count < 0) {
            throw new IOException("the holder closed the connection");
        }
        filled += count;
    }

    /** Where a path loses packets, a new connection may take longer than the flow does to go on. */
    private void takeWhatCame() throws IOException {
        try {
            readSome(System.nanoTime());
        } catch (WaitExpiredException e) {
            throw new SilentException();
        }
    }

    /** Asks for a block without a name, which is refused at once. */
    private boolean isThere() throws IOException {
        long limit = earlier(System.nanoTime() + Limits.ALIVE_LIMIT_NANOS, end);
        try (Connection probe = dialer.connect(asking.holder(), limit)) {
            probe.write(asking.emptyRequest(), limit);
            return probe.read(ByteBuffer.allocate(1), limit) >= 0;
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            asking.checkTime();
            return false;
        }
    }

    private void acknowledge() throws IOException {
        asking.acknowledge();
        finish();
    }

    private void finish() {
        if (!over) {
            over = true;
            asking.close();
            pool.end(this);
            // Not given back to the pool while the caller may still read from it: see close.
        }
    }

    /** Ends a get that no caller waits for any more. Idempotent. What was lent must not be read after it. */
    @Override
    public void close() {
        if (failure == null && !over) {
            failure = new ClientClosedException("the get");
        }
        finish();
        if (!returned) {
            returned = true;
            pool.giveBuffer(buffer);
        }
    }

    @Override
    public void abort() {
        asking.abort();
    }

    private static long earlier(long one, long other) {
        return one - other < 0 ? one : other;
    }

    /** A holder did not show that it is there. */
    private static final class SilentException extends IOException {
        private static final long serialVersionUID = 1L;

        SilentException() {
            super("it does not answer any more; sent nothing, and did not answer on another connection within "
                    + TimeUnit.NANOSECONDS.toSeconds(Limits.ALIVE_LIMIT_NANOS) + " s");
        }
    }
}

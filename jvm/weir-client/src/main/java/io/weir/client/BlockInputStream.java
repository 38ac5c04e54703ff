package io.weir.client;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Objects;

/**
 * A block as a stream. Every byte has passed the checksum of its frame when it is handed out, and a broken transfer goes on at
 * the first byte that was not. No more than one frame (256 KiB) is held here: a reader that is slow, or stops, slows or stops
 * its sender. The time limit of the get counts on meanwhile.
 *
 * <p>The holder hears that all arrived when the last byte is read; a stream that is closed before counts as not read. For one
 * thread at a time; {@link WeirClient#close} ends it from any thread.
 */
public final class BlockInputStream extends InputStream {
    private final BlockReader reader;
    private ByteBuffer frame;
    private boolean closed;

    BlockInputStream(BlockReader reader) {
        this.reader = reader;
    }

    /**
     * Size of the block. Waits for the put, and for a holder to answer.
     *
     * @return a number of bytes
     * @throws IOException as the reads
     */
    public long size() throws IOException {
        checkOpen();
        return reader.awaitSize();
    }

    private void checkOpen() throws ClientClosedException {
        if (closed) {
            throw new ClientClosedException("the stream");
        }
    }

    /** Makes sure that there are bytes to hand out; false at the end. */
    private boolean fill() throws IOException {
        checkOpen();
        if (frame == null || !frame.hasRemaining()) {
            advance();
        }
        return frame != null;
    }

    /** The frame is forgotten first: its memory is used for the next one, and after an error nothing of that is to be read. */
    private void advance() throws IOException {
        frame = null;
        frame = reader.next();
    }

    /** The last byte was handed out: the holder is told now, since not every caller reads on to the end of a stream. */
    private void afterRead() throws IOException {
        if (!frame.hasRemaining() && reader.isAllRead()) {
            advance();
        }
    }

    @Override
    public int read() throws IOException {
        if (!fill()) {
            return -1;
        }
        int next = frame.get() & 0xff;
        afterRead();
        return next;
    }

    @Override
    public int read(byte[] into, int from, int count) throws IOException {
        Objects.checkFromIndexSize(from, count, into.length);
        if (count == 0) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int part = Math.min(count, frame.remaining());
        frame.get(into, from, part);
        afterRead();
        return part;
    }

    @Override
    public int available() {
        return closed || frame == null ? 0 : frame.remaining();
    }

    /** Ends the get. Idempotent. */
    @Override
    public void close() {
        if (!closed) {
            closed = true;
            frame = null;
            reader.close();
        }
    }
}

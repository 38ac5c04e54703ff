package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.zip.CRC32C;

/**
 * One gather at one agent: frames are verified, and cut into ranges. There is one attempt; what arrived before an error was handed
 * out. Memory grows with what has come, not with what the agent says will come.
 */
final class GatherReader implements ConnectionPool.Abortable {
    /** What a range may take before more of it has come. */
    private static final int FIRST_ROOM = 1 << 20;

    private final Gather gather;
    private final InetSocketAddress agent;
    private final int host;
    private final GatherLimits limits;
    /** Null: this host has no relays. */
    private final Ways ways;
    private final ConnectionPool pool;
    private final Dialer dialer;
    private final GatherSink sink;
    private final long end;
    private volatile Connection link;
    /** Where frames come from: the same, or a relay. */
    private volatile Connection frames;
    /** The way that is offered to the agent. */
    private Way way;
    /** Errors are the sink's own. */
    /** The agent said that it sends. */
    private boolean taken;
    /** Nor does it answer on another connection. */
    private boolean silent;
    private boolean inSink;
    private ByteBuffer buffer;
    private long silence;
    /** Bytes of the made block, and of its table. */
    private long size;
    private final ByteBuffer table;
    /** The range at hand: which one, its length, and what of it is there. */
    private int range = -1;
    private long length;
    private byte[] bytes;
    private int filled;

    GatherReader(Gather gather, InetSocketAddress agent, int host, GatherLimits limits, Ways ways, ConnectionPool pool,
            Dialer dialer, GatherSink sink) {
        this.gather = gather;
        this.agent = agent;
        this.host = host;
        this.limits = limits;
        this.ways = ways;
        this.pool = pool;
        this.dialer = dialer;
        this.sink = sink;
        this.end = System.nanoTime() + limits.wholeNanos();
        this.silence = limits.silenceNanos();
        this.table = ByteBuffer.allocate(8 * gather.size()).order(ByteOrder.LITTLE_ENDIAN);
    }

    void run() throws IOException {
        pool.begin(this);
        buffer = pool.takeBuffer();
        boolean sound = false;
        try {
            ask();
            for (long at = 0; at < size;) {
                at += frame(at);
            }
            sound = acknowledge();
        } catch (IOException e) {
            throw inSink || e instanceof InterruptedIOException ? e : named(e);
        } finally {
            pool.end(this);
            pool.giveBuffer(buffer);
            if (frames != null && frames != link) {
                frames.close();
            }
            if (link != null && sound) {
                pool.give(agent, link);
            } else if (link != null) {
                link.close();
            }
        }
    }

    @Override
    public void abort() {
        for (Connection used : new Connection[] {link, frames}) {
            if (used != null) {
                used.close();
            }
        }
    }

    /** An error as callers see it. */
    private IOException named(IOException e) {
        if (pool.isClosed()) {
            return new ClientClosedException("the client");
        }
        if (e instanceof RelayedFrames.RelayException) {
            ways.avoid(way.relay());
            return new BrokenOffException("the agent at " + agent + " by the relay at " + way.relay() + ": " + e.getMessage(), e);
        }
        if (e instanceof ProtocolException) {
            return new ProtocolException("the agent at " + agent + ": " + e.getMessage());
        }
        if (e instanceof WeirException) {
            return e;
        }
        if (e instanceof WaitExpiredException && System.nanoTime() - end >= 0) {
            return tooLate(e);
        }
        String message = "the agent at " + agent + ": " + e.getMessage();
        return taken && !silent ? new BrokenOffException(message, e) : new UnreachableException(message, e);
    }

    private IOException tooLate(IOException cause) {
        return new TimeLimitException("a gather from " + gather.store() + " took longer than "
                + TimeUnit.NANOSECONDS.toMillis(limits.wholeNanos()) + " ms", cause);
    }

    /** Where bytes never have to be waited for, no wait ends. */
    private void checkTime() throws IOException {
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("interrupted in a gather from " + gather.store());
        }
        if (System.nanoTime() - end >= 0) {
            throw tooLate(null);
        }
    }

    /** Asks, by an idle connection if there is one; one that turns out to be closed is no error. */
    private void ask() throws IOException {
        reachRelay();
        link = pool.take(agent);
        boolean idle = link != null;
        while (true) {
            if (link == null) {
                link = dialer.connect(agent, earlier(System.nanoTime() + limits.connectNanos()));
            }
            if (pool.isClosed()) {
                throw new ClientClosedException("the client");
            }
            try {
                link.write(request(), earlier(System.nanoTime() + Limits.WRITE_LIMIT_NANOS));
                readAnswer();
                break;
            } catch (InterruptedIOException | WaitExpiredException e) {
                throw e;
            } catch (IOException e) {
                link.close();
                link = null;
                if (!idle) {
                    throw e;
                }
                idle = false;
            }
        }
        HolderStatus status = Wire.status(buffer);
        if (status == HolderStatus.RELAYED && way != null) {
            subscribe();
        } else if (status == HolderStatus.ACCEPTED) {
            leaveRelay();
        } else {
            throw new HolderException(agent.toString(), status);
        }
        taken = true;
        size = Wire.size(buffer);
        if (size < table.capacity()) {
            throw new ProtocolException("it says that " + gather.size() + " ranges have " + size
                    + " bytes, and their table alone has more");
        }
    }

    /** Connects to a relay of this site. One that cannot be reached is done without. */
    private void reachRelay() throws IOException {
        way = ways == null ? null : ways.draw();
        if (way == null) {
            return;
        }
        try {
            frames = pool.take(way.relay());
            if (frames == null) {
                frames = dialer.connect(way.relay(), earlier(System.nanoTime() + limits.connectNanos()));
            }
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            ways.avoid(way.relay());
            way = null;
        }
    }

    private ByteBuffer request() {
        ByteBuffer request = gather.encode(host);
        if (way == null) {
            return request;
        }
        ByteBuffer led = ByteBuffer.allocate(Way.BYTES + request.remaining());
        led.put(way.encode()).put(request).flip();
        return led;
    }

    /** Tells the relay to hand the flow's messages on. */
    private void subscribe() throws IOException {
        try {
            frames.write(way.subscribe(gather.coflow(), host, gather.group()), earlier(System.nanoTime() + Limits.WRITE_LIMIT_NANOS));
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            throw new RelayedFrames.RelayException(e.getMessage(), e);
        }
        frames = new RelayedFrames(frames, link, way.key(gather.coflow(), host, gather.group()));
    }

    /** The agent sends itself. */
    private void leaveRelay() {
        if (frames != null) {
            // Nothing was said on it.
            pool.give(way.relay(), frames);
        }
        way = null;
        frames = link;
    }

    private void readAnswer() throws IOException {
        long limit = earlier(System.nanoTime() + limits.answerNanos());
        buffer.limit(Wire.RESPONSE_BYTES).position(0);
        while (buffer.hasRemaining()) {
            read(link, limit);
        }
    }

    private void read(Connection from, long limit) throws IOException {
        if (from.read(buffer, limit) < 0) {
            throw new IOException("it closed the connection");
        }
    }

    /** Reads so many bytes of a frame to a place in the buffer; it may be paused for as long as its agent shows that it is there. */
    private void readPatiently(int at, int count) throws IOException {
        buffer.limit(at + count).position(at);
        while (buffer.hasRemaining()) {
            checkTime();
            try {
                read(frames, earlier(System.nanoTime() + silence));
                silence = limits.silenceNanos();
            } catch (WaitExpiredException e) {
                checkTime();
                askWhetherThere();
                silence = Math.min(2 * silence, Limits.LONGEST_SILENCE_NANOS);
            }
        }
    }

    /** Asks for a block without a name, which is refused at once. */
    private void askWhetherThere() throws IOException {
        long limit = earlier(System.nanoTime() + Limits.ALIVE_LIMIT_NANOS);
        try (Connection probe = dialer.connect(agent, limit)) {
            probe.write(Wire.request(0, 0, host, 0, Identity.UNKNOWN, new byte[0]), limit);
            if (probe.read(ByteBuffer.allocate(1), limit) < 0) {
                throw new IOException("it closed the connection");
            }
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            checkTime();
            if (!cameMeanwhile()) {
                silent = true;
                throw new IOException("it does not answer any more", e);
            }
        }
    }

    /** Where a path loses packets, a new connection may take longer than the flow does to go on. */
    private boolean cameMeanwhile() throws IOException {
        try {
            read(frames, System.nanoTime());
            return true;
        } catch (WaitExpiredException e) {
            return false;
        }
    }

    /** Says that all bytes are here; whether the connection may be used again. An agent that died after its last byte needs no word. */
    private boolean acknowledge() throws IOException {
        try {
            link.write(Wire.ack(), System.nanoTime() + Limits.WRITE_LIMIT_NANOS);
            return true;
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            return false;
        }
    }

    /** Reads the frame at an offset of the made block; returns its length. */
    private int frame(long offset) throws IOException {
        int payload = Wire.frameLength(size, offset);
        readPatiently(0, Wire.FRAME_HEADER_BYTES);
        int said = buffer.getInt(0);
        int checksum = buffer.getInt(4);
        if (said != payload) {
            throw new ProtocolException("it sent a frame of " + Integer.toUnsignedString(said) + " bytes where one of "
                    + payload + " belongs");
        }
        readPatiently(Wire.FRAME_HEADER_BYTES, payload);
        buffer.position(Wire.FRAME_HEADER_BYTES);
        CRC32C crc = new CRC32C();
        crc.update(buffer);
        if ((int) crc.getValue() != checksum) {
            try {
                link.write(Wire.nak(offset / Wire.FRAME_BYTES), System.nanoTime() + Limits.WRITE_LIMIT_NANOS);
            } catch (InterruptedIOException e) {
                throw e;
            } catch (IOException e) {
                // It is left anyway.
            }
            throw new ProtocolException("frame " + offset / Wire.FRAME_BYTES + " does not have its checksum");
        }
        buffer.position(Wire.FRAME_HEADER_BYTES);
        cut();
        return payload;
    }

    /** Cuts what is in the buffer into ranges. */
    private void cut() throws IOException {
        if (range < 0) {
            // The table is in the first frame: it is never longer than one.
            ByteBuffer lead = buffer.duplicate();
            lead.limit(lead.position() + table.capacity());
            table.put(lead).flip();
            buffer.position(buffer.position() + table.capacity());
            checkTable();
            next();
        }
        while (range < gather.size() && (buffer.hasRemaining() || length == filled)) {
            int count = (int) Math.min(buffer.remaining(), length - filled);
            if (filled + count > bytes.length) {
                bytes = Arrays.copyOf(bytes, (int) Math.min(length, Math.max(filled + count, 2L * bytes.length)));
            }
            buffer.get(bytes, filled, count);
            filled += count;
            if (filled == length) {
                inSink = true;
                sink.range(range, ByteBuffer.wrap(bytes, 0, filled));
                inSink = false;
                next();
            }
        }
        if (buffer.hasRemaining()) {
            throw new ProtocolException("it sent more bytes than its table says");
        }
    }

    private void checkTable() throws ProtocolException {
        long sum = table.capacity();
        for (int at = 0; at < gather.size(); at++) {
            long said = table.getLong(8 * at);
            if (said < 0 || said > size - sum) {
                throw new ProtocolException("it says that range " + at + " has " + Long.toUnsignedString(said)
                        + " bytes, of " + size + " in all");
            }
            sum += said;
        }
        if (sum != size) {
            throw new ProtocolException("its table says " + sum + " bytes, and it sends " + size);
        }
    }

    private void next() throws ProtocolException {
        range++;
        filled = 0;
        if (range == gather.size()) {
            return;
        }
        length = table.getLong(8 * range);
        if (length > Integer.MAX_VALUE - 8) {
            throw new ProtocolException("range " + range + " has " + length + " bytes, more than an array of Java");
        }
        bytes = new byte[(int) Math.min(length, FIRST_ROOM)];
    }

    private long earlier(long limit) {
        return limit - end < 0 ? limit : end;
    }
}

package io.weir.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.time.Duration;
import java.util.Arrays;
import weir.v1.CoordinatorGrpc.CoordinatorBlockingStub;

/** Gets of whole blocks: into channels, buffers and arrays. */
final class Gets {
    /** Bytes of an array that are reserved before any byte has come. */
    private static final int FIRST_ROOM = 1 << 20;
    /** How often a block that changed is got anew by calls that have handed nothing out. */
    private static final int ANEW = 3;

    private final Calls<CoordinatorBlockingStub> coordinator;
    private final int host;
    private final Dialer dialer;
    private final ConnectionPool pool;

    /** {@code coordinator} may be null: then every get has to say who holds its block. */
    Gets(Calls<CoordinatorBlockingStub> coordinator, int host, Dialer dialer, ConnectionPool pool) {
        this.coordinator = coordinator;
        this.host = host;
        this.dialer = dialer;
        this.pool = pool;
    }

    /** Begins to get a block; one of more than {@code room} bytes is an error. */
    BlockReader reader(long coflow, String block, GetOptions options, long room) throws IOException {
        if (coordinator == null && options.holders().isEmpty()) {
            throw new IllegalStateException("this client has no coordinator; say WeirClient.Builder.coordinator, or who "
                    + "holds the block with GetOptions.withHolders");
        }
        BlockName name = new BlockName(coflow, block, host);
        return new BlockReader(name, options, new Located(coordinator, name, options.holders()), dialer, pool, room);
    }

    long toChannel(long coflow, String block, GetOptions options, WritableByteChannel sink) throws IOException {
        long total = 0;
        try (BlockReader reader = reader(coflow, block, options, Long.MAX_VALUE)) {
            for (ByteBuffer frame = reader.next(); frame != null; frame = reader.next()) {
                total += frame.remaining();
                while (frame.hasRemaining()) {
                    if (sink.write(frame) == 0) {
                        throw new IllegalArgumentException("the channel takes nothing; it must be in blocking mode");
                    }
                }
            }
        }
        return total;
    }

    int toBuffer(long coflow, String block, GetOptions options, ByteBuffer into) throws IOException {
        int start = into.position();
        return anew(options, left -> {
            boolean done = false;
            try (BlockReader reader = reader(coflow, block, left, into.remaining())) {
                for (ByteBuffer frame = reader.next(); frame != null; frame = reader.next()) {
                    into.put(frame);
                }
                done = true;
                return into.position() - start;
            } finally {
                if (!done) {
                    into.position(start);
                }
            }
        });
    }

    byte[] toArray(long coflow, String block, GetOptions options, int mostBytes) throws IOException {
        return anew(options, left -> {
            try (BlockReader reader = reader(coflow, block, left, mostBytes)) {
                byte[] bytes = new byte[(int) Math.min(reader.awaitSize(), FIRST_ROOM)];
                int count = 0;
                for (ByteBuffer frame = reader.next(); frame != null; frame = reader.next()) {
                    int part = frame.remaining();
                    if (part > bytes.length - count) {
                        // The reader holds what comes to its size, and the size to the room, so this stays within an int.
                        long doubled = Math.max(2L * bytes.length, (long) count + part);
                        bytes = Arrays.copyOf(bytes, (int) Math.min(doubled, reader.size()));
                    }
                    frame.get(bytes, count, part);
                    count += part;
                }
                return count == bytes.length ? bytes : Arrays.copyOf(bytes, count);
            }
        });
    }

    private interface Attempt<T> {
        T make(GetOptions left) throws IOException;
    }

    private static <T> T anew(GetOptions options, Attempt<T> attempt) throws IOException {
        long end = System.nanoTime() + options.timeLimitNanos();
        for (int count = 1;; count++) {
            try {
                long left = Math.max(1, end - System.nanoTime());
                return attempt.make(options.withTimeLimit(Duration.ofNanos(left)));
            } catch (BlockChangedException | WrongHashException e) {
                if (count == ANEW) {
                    throw e;
                }
            }
        }
    }
}

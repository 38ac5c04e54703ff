package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Asks holders for what is missing of a block, one after the other and round after round, until one sends it.
 *
 * <p>A resumed request says which bytes it began with, and only an agent that has the same goes on. Where no agent has, the
 * block is asked for from its start, and what was handed out already is compared. Pauses between rounds double from 5 to
 * 250 ms. As weir-core's {@code receiver/asking.rs} decides it.
 */
final class Asking implements AutoCloseable {
    /** So much of the first frame is read with an answer, if it comes with it: a small block takes one read. */
    private static final int AHEAD_BYTES = 16 << 10;

    private final BlockName block;
    private final GetOptions options;
    private final Taken taken;
    private final Finder finder;
    private final Dialer dialer;
    private final ConnectionPool pool;
    private final long end;
    private final Tried tried = new Tried();
    /** Holders that are asked after all others, and until when. */
    private final Map<InetSocketAddress, Long> avoided = new HashMap<>();
    /** Holders that said that the file of the block changed. */
    private final Set<InetSocketAddress> changedAt = new HashSet<>();
    private final Object pauseLock = new Object();
    private InetSocketAddress holder;
    /** The holder that broke the flow off: it is asked once more though the coordinator does not name it. */
    private InetSocketAddress broke;
    private volatile Connection link;
    /** The holder said something unasked: the connection is not left for a later get. */
    private boolean spoiled;
    private boolean lookedAgain;
    private long pause = Limits.FIRST_RETRY_NANOS;
    /** Before the next round; 0: none. */
    private long pauseDue;
    private volatile boolean aborted;

    Asking(BlockName block, GetOptions options, Taken taken, Finder finder, Dialer dialer, ConnectionPool pool,
            long end) {
        this.block = block;
        this.options = options;
        this.taken = taken;
        this.finder = finder;
        this.dialer = dialer;
        this.pool = pool;
        this.end = end;
    }

    boolean isConnected() {
        return link != null;
    }

    Connection link() {
        return link;
    }

    InetSocketAddress holder() {
        return holder;
    }

    void spoil() {
        spoiled = true;
    }

    void forgetObstacles() {
        pause = Limits.FIRST_RETRY_NANOS;
    }

    /** Asks until a holder sends; returns how many bytes of the first frame came with its answer. */
    int connect(ByteBuffer buffer) throws IOException {
        while (true) {
            waitOut();
            checkTime();
            List<InetSocketAddress> holders;
            try {
                holders = find();
            } catch (UnreachableException | TimeLimitException e) {
                checkTime();
                obstacle(e, false);
                continue;
            }
            int ahead = askAll(holders, buffer);
            if (ahead >= 0) {
                return ahead;
            }
        }
    }

    private List<InetSocketAddress> find() throws IOException {
        long wait = Math.min(end - System.nanoTime(), Limits.LOCATE_WAIT_NANOS);
        if (broke != null || !changedAt.isEmpty()) {
            // There is a holder to ask, or to believe.
            wait = 0;
        }
        lookedAgain = !changedAt.isEmpty();
        List<InetSocketAddress> found = new ArrayList<>(finder.find(Math.max(0, wait), end));
        if (found.size() > Limits.MAX_HOLDERS_ASKED) {
            found.subList(Limits.MAX_HOLDERS_ASKED, found.size()).clear();
        }
        long now = System.nanoTime();
        avoided.values().removeIf(until -> until - now <= 0);
        // Stable: the order of the coordinator stays otherwise.
        found.sort((one, other) -> Boolean.compare(avoided.containsKey(one), avoided.containsKey(other)));
        return found;
    }

    /** Asks each once; -1 if none sends the block. */
    private int askAll(List<InetSocketAddress> holders, ByteBuffer buffer) throws IOException {
        InetSocketAddress extra = broke != null && !holders.contains(broke) ? broke : null;
        broke = null;
        if (extra != null) {
            holders.add(extra);
        }
        for (InetSocketAddress asked : holders) {
            checkTime();
            int ahead = ask(asked, buffer);
            if (ahead >= 0) {
                return ahead;
            }
        }
        holders.removeIf(asked -> changedAt.contains(asked) || asked.equals(extra));
        if (!holders.isEmpty()) {
            pauseLater();
        } else if (changedAt.isEmpty()) {
            tried.note("", "no agent has put it yet");
            pauseLater();
        } else if (lookedAgain || finder.isFixed()) {
            throw new BlockGoneException(block.toString(), tried.last());
        } else {
            pauseLater();
        }
        return -1;
    }

    /** Asks one holder; -1 if it does not send the block. */
    private int ask(InetSocketAddress asked, ByteBuffer buffer) throws IOException {
        Connection pooled = pool.take(asked);
        while (true) {
            Connection used = pooled;
            try {
                if (used == null) {
                    used = dialer.connect(asked, within(options.connectLimitNanos()));
                }
                hold(asked, used);
                return request(buffer);
            } catch (InterruptedIOException | ClientClosedException | BlockChangedException e) {
                closeLink();
                throw e;
            } catch (IOException e) {
                boolean answered = link != null;
                closeLink();
                if (aborted) {
                    throw new ClientClosedException("the client");
                }
                if (e instanceof WaitExpiredException && end - System.nanoTime() <= 0) {
                    // The get's own time is over: what went wrong before says more.
                    tried.noteFirst(text(asked), e);
                    checkTime();
                }
                if (pooled != null && !(e instanceof WaitExpiredException)) {
                    // It may have died since: what it said, or did not, is believed of a new connection alone.
                    pooled = null;
                    continue;
                }
                if (e instanceof WaitExpiredException && answered) {
                    avoid(asked);
                }
                refused(asked, e);
                return -1;
            }
        }
    }

    private void hold(InetSocketAddress asked, Connection connection) throws ClientClosedException {
        holder = asked;
        spoiled = false;
        link = connection;
        // After the assignment: an abort before it did not see the connection.
        if (aborted) {
            throw new ClientClosedException("the client");
        }
    }

    private int request(ByteBuffer buffer) throws IOException {
        long offset = taken.missingFrom();
        int ahead = exchange(offset, taken.missingOf(), buffer);
        HolderStatus status = Wire.status(buffer);
        if (status == HolderStatus.OTHER_BYTES && offset > 0) {
            if (ahead > 0) {
                throw new ProtocolException("it sent bytes after a refusal");
            }
            // For all of them then, to be compared with what was handed out.
            offset = 0;
            ahead = exchange(0, Identity.UNKNOWN, buffer);
            status = Wire.status(buffer);
        }
        if (status != HolderStatus.ACCEPTED) {
            throw new HolderException(text(holder), status);
        }
        taken.accept(Wire.size(buffer), offset, Wire.identity(buffer));
        changedAt.clear();
        tried.forget(text(holder));
        if (taken.nextPayload() == 0 && ahead > 0) {
            spoil();
            return 0;
        }
        return ahead;
    }

    /** Sends a request, and reads its answer to the start of the buffer; returns how many bytes came beyond it. */
    private int exchange(long offset, Identity identity, ByteBuffer buffer) throws IOException {
        long limit = within(options.answerLimitNanos());
        ByteBuffer request =
                Wire.request(block.coflow, offset, block.host, options.group(), identity, block.bytes);
        link.write(request, limit);
        buffer.clear().limit(Wire.RESPONSE_BYTES + AHEAD_BYTES);
        while (buffer.position() < Wire.RESPONSE_BYTES) {
            if (link.read(buffer, limit) < 0) {
                throw new IOException("it closed the connection before its answer");
            }
        }
        return buffer.position() - Wire.RESPONSE_BYTES;
    }

    /** A request that every agent refuses at once. */
    ByteBuffer emptyRequest() {
        return Wire.request(block.coflow, 0, block.host, options.group(), Identity.UNKNOWN, new byte[0]);
    }

    /** Ends the get for what a holder said for good, or notes what it said. */
    private void refused(InetSocketAddress asked, IOException why) throws IOException {
        HolderStatus status = why instanceof HolderException ? ((HolderException) why).status() : null;
        if (status == HolderStatus.COFLOW_ENDED) {
            throw new CoflowEndedException(block.coflow, why);
        } else if (status == HolderStatus.COFLOW_REFUSED) {
            throw new CoflowRefusedException(block.coflow, finder.refusal(end), why);
        } else if (status == HolderStatus.BAD_REQUEST) {
            throw why;
        } else if (status == HolderStatus.CHANGED) {
            changedAt.add(asked);
        }
        tried.note(text(asked), status == null ? why.getMessage() : status.meaning(), why);
    }

    /** Something that may be otherwise after a pause; what is under way ends. */
    void obstacle(IOException why, boolean askAgain) throws ClientClosedException {
        InetSocketAddress with = link == null ? null : holder;
        closeLink();
        if (aborted) {
            throw new ClientClosedException("the client");
        }
        if (with != null) {
            broke = askAgain ? with : null;
        }
        tried.note(with == null ? "" : text(with), why);
        pauseLater();
    }

    /** A frame does not have its checksum. The holder is told, so that it looks at its copy, and others are asked first. */
    void doubt(long frame) throws IOException {
        avoid();
        try {
            link.write(Wire.nak(frame), within(Limits.WRITE_LIMIT_NANOS));
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            // It is left anyway.
        }
        obstacle(new ProtocolException("frame " + frame + " does not have its checksum"), true);
    }

    /** Says that all bytes are here. A holder that died after its last byte needs no acknowledgement. */
    void acknowledge() throws IOException {
        Connection used = link;
        try {
            used.write(Wire.ack(), within(Limits.WRITE_LIMIT_NANOS));
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            return;
        }
        if (!spoiled) {
            link = null;
            pool.give(holder, used);
        }
    }

    /** Asks the present holder after all others for a while. */
    void avoid() {
        avoid(holder);
    }

    private void avoid(InetSocketAddress asked) {
        if (avoided.size() < Limits.MAX_AVOIDED) {
            avoided.put(asked, System.nanoTime() + Limits.AVOID_NANOS);
        }
    }

    private void pauseLater() {
        pauseDue = pause;
        pause = Math.min(pause * 2, Limits.LONGEST_RETRY_NANOS);
    }

    private void waitOut() throws IOException {
        long until = System.nanoTime() + Math.min(pauseDue, end - System.nanoTime());
        pauseDue = 0;
        synchronized (pauseLock) {
            for (long left = until - System.nanoTime(); left > 0 && !aborted; left = until - System.nanoTime()) {
                try {
                    pauseLock.wait(left / 1_000_000, (int) (left % 1_000_000));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                    throw new InterruptedIOException("interrupted while waiting for " + block);
                }
            }
        }
    }

    /** Ends the get if its time is over, its client was closed, or its thread was interrupted. */
    void checkTime() throws IOException {
        if (aborted) {
            throw new ClientClosedException("the client");
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("interrupted while waiting for " + block);
        }
        if (end - System.nanoTime() <= 0) {
            String text = tried.toString();
            if (link != null && taken.size() >= 0) {
                text += (text.isEmpty() ? "" : "; ") + text(holder) + " accepted the request and sent "
                        + taken.verified() + " of " + taken.size() + " bytes so far";
            }
            throw new TimeLimitException(block + " did not arrive within " + options.timeLimitNanos() / 1_000_000
                    + " ms: " + (text.isEmpty() ? "no agent answered yet" : text), tried.last());
        }
    }

    private long within(long nanos) {
        long limit = System.nanoTime() + nanos;
        return limit - end < 0 ? limit : end;
    }

    private static String text(InetSocketAddress address) {
        return address.getAddress() == null ? address.toString()
                : address.getAddress().getHostAddress() + ":" + address.getPort();
    }

    private void closeLink() {
        Connection used = link;
        link = null;
        if (used != null) {
            used.close();
        }
    }

    /** Has the thread that waits end with an error. From any thread. */
    void abort() {
        aborted = true;
        Connection used = link;
        if (used != null) {
            used.close();
        }
        synchronized (pauseLock) {
            pauseLock.notifyAll();
        }
    }

    @Override
    public void close() {
        closeLink();
    }
}

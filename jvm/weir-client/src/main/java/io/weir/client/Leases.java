package io.weir.client;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import weir.v1.Control;

/**
 * Renews the leases of coflows from one daemon thread, which lives while there is something to renew. Renewals are a third of
 * the shortest lease apart, 1 to 60 s; one that failed is repeated a second later.
 */
final class Leases implements AutoCloseable {
    private static final long SHORTEST_PAUSE_MS = 1_000;
    private static final long LONGEST_PAUSE_MS = 60_000;
    private static final long CALL_LIMIT_MS = 10_000;

    /** One call of {@code Renew}. */
    interface Renewal {
        Control.RenewReply renew(List<Long> coflows, long limitNanos) throws Exception;
    }

    private static final class Kept {
        long leaseMs;
        int handles;
    }

    private final Renewal renewal;
    private final Map<Long, Kept> kept = new HashMap<>();
    private Thread thread;
    private boolean closed;

    Leases(Renewal renewal) {
        this.renewal = renewal;
    }

    /** One more handle of a coflow is open. {@code leaseMs}: as the coordinator said; 0: it did not. */
    synchronized void add(long coflow, long leaseMs) throws WeirException {
        if (closed) {
            throw new ClientClosedException("the client");
        }
        if (kept.size() >= Limits.MAX_KEPT_COFLOWS && !kept.containsKey(coflow)) {
            throw new RefusedException("RESOURCE_EXHAUSTED", "this client keeps " + Limits.MAX_KEPT_COFLOWS
                    + " coflows alive already; close handles that are not needed", null);
        }
        Kept entry = kept.computeIfAbsent(coflow, id -> new Kept());
        entry.handles++;
        entry.leaseMs = leaseMs;
        if (thread == null) {
            thread = Channels.daemons("weir-leases").newThread(this::run);
            thread.start();
        }
        notifyAll();
    }

    /** One handle of a coflow was closed. */
    synchronized void close(long coflow) {
        Kept entry = kept.get(coflow);
        if (entry != null && --entry.handles == 0) {
            kept.remove(coflow);
        }
        notifyAll();
    }

    /** A coflow has ended. */
    synchronized void remove(long coflow) {
        kept.remove(coflow);
        notifyAll();
    }

    /** Whether a coflow is renewed: no more once it is known to have ended. */
    synchronized boolean isKept(long coflow) {
        return kept.containsKey(coflow);
    }

    /** Renewals are at most this far apart. */
    synchronized long pauseMs() {
        long shortest = kept.values().stream().mapToLong(entry -> entry.leaseMs).filter(lease -> lease > 0).min()
                .orElse(3 * LONGEST_PAUSE_MS);
        return Math.max(SHORTEST_PAUSE_MS, Math.min(shortest / 3, LONGEST_PAUSE_MS));
    }

    private void run() {
        long last = System.nanoTime();
        while (true) {
            synchronized (this) {
                // In short steps: a coflow with a shorter lease may come meanwhile.
                try {
                    wait(SHORTEST_PAUSE_MS);
                } catch (InterruptedException e) {
                    // This thread is the client's alone, and ends with it.
                }
                if (closed || kept.isEmpty()) {
                    thread = null;
                    return;
                }
            }
            long began = System.nanoTime();
            long pause = pauseMs();
            // What is due within the next step would be late after it.
            boolean due = TimeUnit.NANOSECONDS.toMillis(began - last) + SHORTEST_PAUSE_MS / 2 >= pause;
            if (due && renewAll(pause)) {
                last = began;
            }
        }
    }

    /** One renewal of all; false if some could not be renewed. */
    boolean renewAll(long limitMs) {
        List<Long> coflows;
        synchronized (this) {
            coflows = new ArrayList<>(kept.keySet());
        }
        for (int from = 0; from < coflows.size(); from += Limits.MAX_COFLOWS_PER_CALL) {
            List<Long> part = coflows.subList(from, Math.min(coflows.size(), from + Limits.MAX_COFLOWS_PER_CALL));
            try {
                long limit = TimeUnit.MILLISECONDS.toNanos(Math.min(limitMs, CALL_LIMIT_MS));
                renewed(part, renewal.renew(part, limit));
            } catch (Exception e) {
                return false;
            }
        }
        return true;
    }

    private synchronized void renewed(List<Long> coflows, Control.RenewReply reply) {
        reply.getEndedList().forEach(kept::remove);
        if (reply.getLeaseMs() > 0) {
            // A coordinator that began anew may keep coflows for a shorter time than the one that registered them.
            coflows.forEach(coflow -> kept.computeIfPresent(coflow, (id, entry) -> {
                entry.leaseMs = reply.getLeaseMs();
                return entry;
            }));
        }
    }

    @Override
    public synchronized void close() {
        closed = true;
        kept.clear();
        notifyAll();
    }
}

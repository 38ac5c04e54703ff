package io.weir.client;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.AbstractStub;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Function;

/** Control calls to one peer: each has a time limit, and is repeated within it while the peer is away. */
final class Calls<S extends AbstractStub<S>> {
    /** First and longest pause between attempts. */
    private static final long FIRST_PAUSE_MS = 50;
    private static final long LONGEST_PAUSE_MS = 500;

    private final String peer;
    private final ManagedChannel channel;
    private final S stub;
    private final BooleanSupplier isClosed;

    Calls(String peer, ManagedChannel channel, S stub, BooleanSupplier isClosed) {
        this.peer = peer;
        this.channel = channel;
        this.stub = stub;
        this.isClosed = isClosed;
    }

    /** Repeats a call that may be repeated until it is answered or the time is over. */
    <T> T repeat(String name, long limitNanos, Function<S, T> call) throws IOException {
        long end = System.nanoTime() + limitNanos;
        WeirException obstacle = null;
        for (long pause = FIRST_PAUSE_MS;; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
            long left = end - System.nanoTime();
            if (left <= 0) {
                throw obstacle != null ? obstacle : tooLate(name, limitNanos, null);
            }
            try {
                return once(name, left, call);
            } catch (TimeLimitException e) {
                throw obstacle != null ? obstacle : tooLate(name, limitNanos, e.getCause());
            } catch (UnreachableException e) {
                if (!isTransient(e)) {
                    throw e;
                }
                obstacle = e;
            }
            sleep(Math.min(pause, Math.max(1, TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime()))));
            // Else gRPC itself waits, up to two minutes, before it connects again.
            channel.resetConnectBackoff();
        }
    }

    /** One attempt. */
    <T> T once(String name, long limitNanos, Function<S, T> call) throws IOException {
        checkOpen();
        try {
            return call.apply(stub.withDeadlineAfter(limitNanos, TimeUnit.NANOSECONDS));
        } catch (StatusRuntimeException e) {
            checkOpen();
            if (Thread.currentThread().isInterrupted()) {
                InterruptedIOException interrupted = new InterruptedIOException("interrupted in " + name + " of " + peer);
                interrupted.initCause(e);
                throw interrupted;
            }
            throw error(name, limitNanos, e);
        }
    }

    private void checkOpen() throws ClientClosedException {
        if (isClosed.getAsBoolean()) {
            throw new ClientClosedException("the client");
        }
    }

    private WeirException error(String name, long limitNanos, StatusRuntimeException e) {
        Status status = e.getStatus();
        if (status.getCode() == Status.Code.DEADLINE_EXCEEDED) {
            return tooLate(name, limitNanos, e);
        }
        String text = Limits.text(said(e));
        // Aborted: the peer of the peer is not there, and whether to wait for it is the caller's to say.
        if (isTransient(status.getCode()) || status.getCode() == Status.Code.ABORTED) {
            return new UnreachableException(name + ": " + peer + " cannot be reached (" + text
                    + "); is it running, and is its address right?", e);
        }
        return new RefusedException(status.getCode().name(), name + ": " + peer + " refused: " + text, e);
    }

    private TimeLimitException tooLate(String name, long limitNanos, Throwable cause) {
        return new TimeLimitException(name + ": " + peer + " did not answer within "
                + TimeUnit.NANOSECONDS.toMillis(limitNanos) + " ms", cause);
    }

    private static boolean isTransient(UnreachableException e) {
        Throwable cause = e.getCause();
        return cause instanceof StatusRuntimeException
                && isTransient(((StatusRuntimeException) cause).getStatus().getCode());
    }

    private static boolean isTransient(Status.Code code) {
        return code == Status.Code.UNAVAILABLE || code == Status.Code.CANCELLED || code == Status.Code.UNKNOWN
                || code == Status.Code.INTERNAL;
    }

    /** What the system says of a connection that could not be made, else what the peer says. */
    private static String said(StatusRuntimeException e) {
        String deepest = null;
        int depth = 0;
        for (Throwable cause = e.getStatus().getCause(); cause != null && depth < 16; cause = cause.getCause()) {
            if (cause.getMessage() != null) {
                deepest = cause.getMessage();
            } else if (deepest == null) {
                // As of a Unix socket that is not there.
                deepest = cause instanceof FileNotFoundException ? "no such file" : cause.getClass().getSimpleName();
            }
            depth++;
        }
        if (deepest != null) {
            return deepest;
        }
        String description = e.getStatus().getDescription();
        return description != null ? description : e.getStatus().getCode().name();
    }

    private static void sleep(long millis) throws InterruptedIOException {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while waiting to repeat a call");
        }
    }
}

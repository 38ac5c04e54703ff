package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Pattern;

/** An address as people write it: an IP address or a name, with the port. IPv6 stands in brackets. */
final class HostPort {
    /** Digits and points, or anything with a colon: no resolver has to be asked. */
    private static final Pattern LITERAL = Pattern.compile("[0-9.]+|.*:.*");
    private static final long RESOLVE_LIMIT_NANOS = TimeUnit.SECONDS.toNanos(5);
    /** Threads that ask resolvers, and questions that wait for them. */
    private static final int RESOLVERS = 4;
    private static final int MAX_QUESTIONS = 256;

    private final String host;
    private final int port;

    private HostPort(String host, int port) {
        this.host = host;
        this.port = port;
    }

    String host() {
        return host;
    }

    int port() {
        return port;
    }

    static HostPort parse(String text) {
        int colon = text.lastIndexOf(':');
        String host = colon < 0 ? "" : text.substring(0, colon);
        if (host.startsWith("[") && host.endsWith("]")) {
            host = host.substring(1, host.length() - 1);
        } else if (host.indexOf(':') >= 0) {
            host = "";
        }
        int port;
        try {
            port = Integer.parseInt(text.substring(colon + 1));
        } catch (NumberFormatException e) {
            port = 0;
        }
        if (host.isEmpty() || port < 1 || port > 65_535) {
            throw new IllegalArgumentException("`" + Limits.text(text)
                    + "` is no address; write it as 10.0.0.1:7070, [::1]:7070 or name:7070");
        }
        return new HostPort(host, port);
    }

    /** Resolves the name, within a limit: the system's resolver has none. */
    InetSocketAddress resolve(long limit) throws IOException {
        if (LITERAL.matcher(host).matches()) {
            return new InetSocketAddress(InetAddress.getByName(host), port);
        }
        long wait = Math.min(limit - System.nanoTime(), RESOLVE_LIMIT_NANOS);
        Future<InetAddress> answer;
        try {
            answer = Resolvers.POOL.submit(() -> InetAddress.getByName(host));
        } catch (RejectedExecutionException e) {
            throw new UnreachableException("too many names wait to be resolved; `" + host + "` is one more", e);
        }
        try {
            return new InetSocketAddress(answer.get(Math.max(0, wait), TimeUnit.NANOSECONDS), port);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while resolving `" + host + "`");
        } catch (TimeoutException e) {
            throw new UnreachableException("the name `" + host + "` was not resolved in time", e);
        } catch (ExecutionException e) {
            throw new UnreachableException("the name `" + host + "` cannot be resolved", e.getCause());
        } finally {
            answer.cancel(true);
        }
    }

    @Override
    public String toString() {
        return (host.indexOf(':') >= 0 ? "[" + host + "]" : host) + ":" + port;
    }

    /** Made when the first name is resolved. */
    private static final class Resolvers {
        static final ThreadPoolExecutor POOL = new ThreadPoolExecutor(RESOLVERS, RESOLVERS, 10, TimeUnit.SECONDS,
                new LinkedBlockingQueue<>(MAX_QUESTIONS), Channels.daemons("weir-resolver"));

        static {
            POOL.allowCoreThreadTimeOut(true);
        }
    }
}

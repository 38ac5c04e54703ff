package io.weir.spark;

import io.grpc.Server;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import weir.v1.Control;
import weir.v1.CoordinatorGrpc;

/** A coordinator that remembers what coflows were registered with. Its first one is 1. */
final class FakeCoordinator extends CoordinatorGrpc.CoordinatorImplBase implements AutoCloseable {
    final Map<Long, Control.CoflowOptions> registered = new ConcurrentSkipListMap<>();
    /** Coflows in the order in which they ended. */
    final List<Long> ended = new CopyOnWriteArrayList<>();
    volatile Predicate<Control.CoflowOptions> refuses = options -> false;
    volatile boolean sealsNone;
    /** What was said last of how much coflows are to read, by coflow and agent. */
    final Map<Long, Map<String, Long>> expected = new ConcurrentSkipListMap<>();
    volatile int expectCalls;
    volatile boolean isOld;
    /** How long agents take to settle. */
    volatile long endsSlowlyMs;
    private final Server server;

    FakeCoordinator() throws IOException {
        server = NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0)).addService(this)
                .build().start();
    }

    String address() {
        return "127.0.0.1:" + server.getPort();
    }

    @Override
    public synchronized void register(Control.RegisterRequest request, StreamObserver<Control.RegisterReply> to) {
        if (refuses.test(request.getOptions())) {
            to.onError(Status.INVALID_ARGUMENT.withDescription("too much of it").asRuntimeException());
            return;
        }
        long coflow = registered.size() + 1;
        registered.put(coflow, request.getOptions());
        to.onNext(Control.RegisterReply.newBuilder().setCoflow(coflow).build());
        to.onCompleted();
    }

    @Override
    public void unregister(Control.UnregisterRequest request, StreamObserver<Control.UnregisterReply> to) {
        try {
            Thread.sleep(endsSlowlyMs);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        ended.add(request.getCoflow());
        to.onNext(Control.UnregisterReply.getDefaultInstance());
        to.onCompleted();
    }

    @Override
    public void seal(Control.SealRequest request, StreamObserver<Control.SealReply> to) {
        if (sealsNone) {
            to.onError(Status.NOT_FOUND.asRuntimeException());
            return;
        }
        to.onNext(Control.SealReply.getDefaultInstance());
        to.onCompleted();
    }

    @Override
    public synchronized void expect(Control.ExpectRequest request, StreamObserver<Control.ExpectReply> to) {
        expectCalls++;
        if (isOld) {
            to.onError(Status.UNIMPLEMENTED.asRuntimeException());
            return;
        }
        Map<String, Long> byAgent = new ConcurrentSkipListMap<>();
        request.getSourcesList().forEach(from -> byAgent.merge(from.getDataAddress(), from.getBytes(), Long::sum));
        expected.put(request.getCoflow(), byAgent);
        to.onNext(Control.ExpectReply.getDefaultInstance());
        to.onCompleted();
    }

    @Override
    public void renew(Control.RenewRequest request, StreamObserver<Control.RenewReply> to) {
        to.onNext(Control.RenewReply.getDefaultInstance());
        to.onCompleted();
    }

    /** What so many coflows were registered with, once they were. */
    List<Control.CoflowOptions> await(int count) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (registered.size() < count && System.nanoTime() < end) {
            Thread.sleep(5);
        }
        return new ArrayList<>(registered.values());
    }

    /** That a coflow ends. */
    void awaitEnd(long coflow) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!ended.contains(coflow)) {
            if (System.nanoTime() > end) {
                throw new AssertionError("coflow " + coflow + " does not end");
            }
            Thread.sleep(5);
        }
    }

    @Override
    public void close() throws InterruptedException {
        server.shutdownNow();
        server.awaitTermination();
    }
}

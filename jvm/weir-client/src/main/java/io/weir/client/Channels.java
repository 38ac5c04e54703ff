package io.weir.client;

import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioSocketChannel;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Channels of gRPC and the threads behind them, all of them daemons. */
final class Channels implements AutoCloseable {
    /** DSCP CS6, as control traffic is marked. */
    private static final int CONTROL_TRAFFIC = 48 << 2;
    private static final int CONNECT_LIMIT_MS = 2_000;
    /** A connection with calls under way is probed this often, and given up 5 s later. */
    private static final long KEEPALIVE_SECONDS = 10;

    private final List<ManagedChannel> channels = new ArrayList<>();
    private final List<EventLoopGroup> loops = new ArrayList<>();

    /** A channel to a coordinator. Nothing is connected yet. */
    ManagedChannel coordinator(HostPort address) {
        EventLoopGroup loop = new NioEventLoopGroup(1, daemons("weir-coordinator"));
        loops.add(loop);
        return add(NettyChannelBuilder.forAddress(address.host(), address.port())
                .eventLoopGroup(loop)
                .channelType(NioSocketChannel.class, InetSocketAddress.class)
                .withOption(ChannelOption.IP_TOS, CONTROL_TRAFFIC)
                // A coordinator is inside the own network, never behind a proxy of the JVM.
                .proxyDetector(target -> null));
    }

    /** A channel to the agent of this host. */
    ManagedChannel agent(Path socket) {
        EventLoopGroup loop = UnixSocket.loop(daemons("weir-agent"));
        loops.add(loop);
        return add(UnixSocket.channel(socket, loop));
    }

    private ManagedChannel add(NettyChannelBuilder builder) {
        ManagedChannel channel = builder
                .usePlaintext()
                .withOption(ChannelOption.CONNECT_TIMEOUT_MILLIS, CONNECT_LIMIT_MS)
                .keepAliveTime(KEEPALIVE_SECONDS, TimeUnit.SECONDS)
                .keepAliveTimeout(KEEPALIVE_SECONDS / 2, TimeUnit.SECONDS)
                .maxInboundMessageSize(Limits.MAX_CONTROL_MESSAGE_BYTES)
                .disableRetry()
                .build();
        channels.add(channel);
        return channel;
    }

    static ThreadFactory daemons(String name) {
        AtomicInteger count = new AtomicInteger();
        return task -> {
            Thread thread = new Thread(task, name + "-" + count.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        };
    }

    @Override
    public void close() {
        channels.forEach(ManagedChannel::shutdownNow);
        loops.forEach(loop -> loop.shutdownGracefully(0, 1, TimeUnit.SECONDS));
    }
}

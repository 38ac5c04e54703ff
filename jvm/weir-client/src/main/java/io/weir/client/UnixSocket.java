package io.weir.client;

import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import java.nio.file.Path;
import java.util.concurrent.ThreadFactory;

/**
 * Channels over Unix sockets. They need the native part of Netty (Linux, x86_64 or aarch64), so this class is loaded by clients
 * that have an agent alone: those that only talk to a coordinator work everywhere.
 */
final class UnixSocket {
    private UnixSocket() {}

    static EventLoopGroup loop(ThreadFactory threads) {
        if (!Epoll.isAvailable()) {
            throw new UnsupportedOperationException(
                    "Unix sockets need Linux on x86_64 or aarch64, and the native library of Netty did not load; "
                            + "set up the client without an agent, it can get then but not put",
                    Epoll.unavailabilityCause());
        }
        return new EpollEventLoopGroup(1, threads);
    }

    static NettyChannelBuilder channel(Path socket, EventLoopGroup loop) {
        return NettyChannelBuilder.forAddress(new DomainSocketAddress(socket.toFile()))
                .eventLoopGroup(loop)
                .channelType(EpollDomainSocketChannel.class, DomainSocketAddress.class)
                // gRPC asks for it, a Unix socket has no such option, and Netty warns of that: null takes it back.
                .withOption(ChannelOption.SO_KEEPALIVE, null)
                .overrideAuthority("agent");
    }
}

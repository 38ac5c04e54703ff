package io.weir.client;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import weir.v1.AgentGrpc;
import weir.v1.AgentGrpc.AgentBlockingStub;
import weir.v1.Control;

/**
 * Shuffle files of executors: has the agent of this host serve those of an executor here, and gathers ranges of those elsewhere.
 * Serves any number of threads; its own threads are daemons. Errors are as in {@link WeirClient}.
 */
public final class StoreClient implements AutoCloseable {
    private final Channels channels = new Channels();
    private final ConnectionPool pool = new ConnectionPool();
    private final Calls<AgentBlockingStub> agent;
    private volatile int host;
    private volatile Ways ways;

    /**
     * A client of the agent of this host. Nothing is connected yet.
     *
     * @param socket its Unix socket, {@code agent.sock} in its spool
     */
    public StoreClient(Path socket) {
        ManagedChannel channel = channels.agent(socket);
        agent = new Calls<>("the agent at " + socket, channel, AgentGrpc.newBlockingStub(channel), pool::isClosed);
    }

    /**
     * Has the files of a store served. The same again does no harm.
     *
     * @param store what receivers call it
     * @param directories absolute, in the order in which the executor numbers them; of this process's user, and below what the
     *     agent may serve
     * @param subdirectories of each
     * @param limit how long it may take
     * @return where receivers reach the agent, host:port
     * @throws IOException see {@link WeirClient}; {@link RefusedException} with the code that docs/protocol.md has for
     *     {@code AttachStore}
     */
    public String attach(Store store, List<Path> directories, int subdirectories, Duration limit) throws IOException {
        var request = attachment(store, directories, subdirectories);
        var reply = agent.repeat("attach of " + store, Limits.nanos(limit), stub -> stub.attachStore(request));
        host = reply.getHost();
        learn(reply.getRelays());
        return reply.getDataAddress();
    }

    static Control.AttachStoreRequest attachment(Store store, List<Path> directories, int subdirectories) {
        var request = Control.AttachStoreRequest.newBuilder().setApplication(store.application())
                .setExecutor(store.executor()).setToken(ByteString.copyFrom(store.token()))
                .setSubdirectories(subdirectories);
        directories.forEach(directory -> request.addDirectories(directory.toString()));
        return request.build();
    }

    static Control.DetachStoreRequest detachment(Store store) {
        return Control.DetachStoreRequest.newBuilder().setApplication(store.application())
                .setExecutor(store.executor()).setToken(ByteString.copyFrom(store.token())).build();
    }

    /** Relays that failed are avoided as before where they are the same. */
    private void learn(Control.RelaysOfHost relays) throws ProtocolException {
        List<InetSocketAddress> addresses = new ArrayList<>();
        for (String address : relays.getAddressesList()) {
            try {
                HostPort relay = HostPort.parse(address);
                addresses.add(new InetSocketAddress(relay.host(), relay.port()));
            } catch (IllegalArgumentException e) {
                throw new ProtocolException("the agent names a relay that has no address: " + e.getMessage());
            }
        }
        Ways known = ways;
        if (addresses.isEmpty()) {
            ways = null;
        } else if (known == null || !known.isOf(relays.getSite(), addresses)) {
            ways = new Ways(relays.getSite(), addresses);
        }
    }

    /**
     * Has them served no longer.
     *
     * @param store the store
     * @param limit how long it may take
     * @throws IOException see {@link WeirClient}
     */
    public void detach(Store store, Duration limit) throws IOException {
        var request = detachment(store);
        agent.repeat("detach of " + store, Limits.nanos(limit), stub -> stub.detachStore(request));
    }

    /**
     * Gets ranges, as the destination that {@link #attach} told of, by relays of this host's site if the agent and the store's agent
     * have some. There is one attempt.
     *
     * @param address the agent that serves the store
     * @param gather one range at least
     * @param limits how long it may take
     * @param sink takes ranges as they are complete
     * @throws IOException see {@link WeirClient}; {@link HolderException} if the agent refuses, {@link UnreachableException} if it
     *     is not there (any more), {@link BrokenOffException}, {@link ProtocolException} if it does not keep to the protocol, {@link TimeLimitException}, and what
     *     the sink throws. What the sink was given is sound
     */
    public void gather(InetSocketAddress address, Gather gather, GatherLimits limits, GatherSink sink)
            throws IOException {
        if (gather.size() == 0) {
            throw new IllegalArgumentException("a gather has one range at least");
        }
        new GatherReader(gather, address, host, limits, ways, pool, SocketConnection::connect, sink).run();
    }

    /** Ends it: gathers that are under way end with a {@link ClientClosedException}. Idempotent. */
    @Override
    public void close() {
        pool.close();
        channels.close();
    }
}

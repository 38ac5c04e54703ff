package io.weir.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.nio.file.Path;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import weir.v1.AgentGrpc;
import weir.v1.AgentGrpc.AgentBlockingStub;
import weir.v1.Control;
import weir.v1.CoordinatorGrpc;
import weir.v1.CoordinatorGrpc.CoordinatorBlockingStub;

/**
 * A client of Weir. A driver registers a coflow; senders put blocks at the agent of their host; receivers get them by name.
 * Bytes go straight from the agent of the sender to the receiver.
 *
 * <p><b>Threads.</b> A client serves any number of threads. It connects when first used, and again after failures, so it may be
 * made while its peers are still starting. Its own threads are daemons.
 *
 * <p><b>Time limits.</b> Every call to the coordinator or the agent ends within the call limit ({@link Builder#callLimit}, 10 s
 * unless said), and is repeated within it while the peer is away; repeating never does anything twice. Gets have their own
 * ({@link GetOptions}).
 *
 * <p><b>Errors.</b> Calls throw subclasses of {@link WeirException}, other {@link IOException}s for local files and channels of
 * the caller, and {@link java.io.InterruptedIOException} if their thread is interrupted, which it then still is.
 *
 * <p>Ids of coflows are unsigned.
 */
public final class WeirClient implements AutoCloseable {
    private static final SecureRandom RANDOM = new SecureRandom();

    private final int host;
    private final long callLimit;
    private final Channels channels = new Channels();
    private final Leases leases = new Leases(this::renew);
    private final ConnectionPool pool = new ConnectionPool();
    private final Calls<CoordinatorBlockingStub> coordinator;
    private final Puts puts;
    private final Gets gets;

    private WeirClient(Builder builder) {
        host = builder.host;
        callLimit = builder.callLimit;
        // The agent first: where there are no Unix sockets, nothing else was begun.
        puts = builder.agent == null ? null : new Puts(agentAt(builder.agent), callLimit);
        coordinator = builder.coordinator == null ? null : coordinatorAt(builder.coordinator);
        gets = new Gets(coordinator, host, SocketConnection::connect, pool);
    }

    private Calls<CoordinatorBlockingStub> coordinatorAt(HostPort address) {
        var channel = channels.coordinator(address);
        return new Calls<>("the coordinator at " + address, channel, CoordinatorGrpc.newBlockingStub(channel),
                pool::isClosed);
    }

    private Calls<AgentBlockingStub> agentAt(Path socket) {
        var channel = channels.agent(socket);
        return new Calls<>("the agent at " + socket, channel, AgentGrpc.newBlockingStub(channel), pool::isClosed);
    }

    /**
     * Says where peers are.
     *
     * @return a builder in which nothing is said
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Declares a coflow.
     *
     * @param options how
     * @return a handle that keeps it alive
     * @throws IOException see the class; {@link RefusedException} if an option is out of its bounds
     */
    public Coflow register(CoflowOptions options) throws IOException {
        long key;
        do {
            key = RANDOM.nextLong();
        } while (key == 0);
        var request = Control.RegisterRequest.newBuilder().setOptions(options.wire()).setRequestKey(key).build();
        var reply = coordinator().repeat("register", callLimit, stub -> stub.register(request));
        // A coordinator of before it told the lease in force keeps what was asked for.
        leases.add(reply.getCoflow(), reply.getLeaseMs() > 0 ? reply.getLeaseMs() : options.wire().getLeaseMs());
        return new Coflow(this, reply.getCoflow());
    }

    /**
     * Keeps a coflow alive that another process registered: work that is long before its put or get then does not outlast it.
     *
     * @param coflow its id
     * @return a handle
     * @throws IOException see the class; {@link CoflowEndedException} if it has ended
     */
    public Coflow keep(long coflow) throws IOException {
        var reply = coordinator().repeat("renew", callLimit, stub -> stub.renew(renewal(List.of(coflow))));
        if (reply.getEndedCount() > 0) {
            throw new CoflowEndedException(coflow, null);
        }
        leases.add(coflow, reply.getLeaseMs());
        return new Coflow(this, coflow);
    }

    private Control.RenewReply renew(List<Long> coflows, long limit) throws IOException {
        return coordinator().once("renew", limit, stub -> stub.renew(renewal(coflows)));
    }

    private static Control.RenewRequest renewal(List<Long> coflows) {
        return Control.RenewRequest.newBuilder().addAllCoflows(coflows).build();
    }

    /**
     * Says that no more flows will join a coflow.
     *
     * @param coflow its id
     * @throws IOException see the class; {@link RefusedException} of code {@code NOT_FOUND} if it has ended
     */
    public void seal(long coflow) throws IOException {
        var request = Control.SealRequest.newBuilder().setCoflow(coflow).build();
        coordinator().repeat("seal", callLimit, stub -> stub.seal(request));
    }

    /**
     * Says how many bytes of a coflow are still to come, by the agents that have them, before a receiver asks for them. It counts for the
     * coflow's order among others, where the policy looks at sizes, and for nothing else. In place of what was said before.
     *
     * @param coflow its id
     * @param bytesByAgent by the data address of the agent, host:port as {@code Describe} has it; 10,000 at most. Agents that the
     *     coordinator does not know count for nothing
     * @throws IOException see the class; {@link RefusedException} of code {@code UNIMPLEMENTED} from a coordinator of an older version,
     *     {@code NOT_FOUND} if the coflow has ended
     */
    public void expect(long coflow, Map<String, Long> bytesByAgent) throws IOException {
        var request = Control.ExpectRequest.newBuilder().setCoflow(coflow);
        bytesByAgent.forEach((address, bytes) -> request.addSources(
                Control.ExpectedFrom.newBuilder().setDataAddress(address).setBytes(bytes)));
        coordinator().repeat("expect", callLimit, stub -> stub.expect(request.build()));
    }

    /**
     * Ends a coflow: its blocks go, and what still moves is stopped.
     *
     * @param coflow its id
     * @return what became of it; empty if the coordinator did not know it
     * @throws IOException see the class
     */
    public Optional<CoflowRecord> unregister(long coflow) throws IOException {
        var request = Control.UnregisterRequest.newBuilder().setCoflow(coflow).build();
        var reply = coordinator().repeat("unregister", callLimit, stub -> stub.unregister(request));
        leases.remove(coflow);
        return reply.hasRecord() ? Optional.of(new CoflowRecord(reply.getRecord())) : Optional.empty();
    }

    /**
     * What moves now.
     *
     * @return of all coflows
     * @throws IOException see the class
     */
    public ClusterStatus status() throws IOException {
        return status(0);
    }

    /**
     * The same of one coflow: it is among the live ones, or it is complete and its record is there, or
     * {@link ClusterStatus#hasEnded} says so.
     *
     * @param coflow its id
     * @return of this coflow alone
     * @throws IOException see the class
     */
    public ClusterStatus status(long coflow) throws IOException {
        var request = weir.v1.Status.StatusRequest.newBuilder().setCoflow(coflow).build();
        return new ClusterStatus(coordinator().repeat("status", callLimit, stub -> stub.status(request)));
    }

    /**
     * The agents that hold a block, the best one for this host first.
     *
     * @param coflow its coflow
     * @param block its name
     * @param wait how long to wait for a put; 600 s at most count
     * @return none if it was not put in that time
     * @throws IOException see the class; {@link CoflowEndedException}, {@link CoflowRefusedException}
     */
    public List<Holder> locate(long coflow, String block, Duration wait) throws IOException {
        long waitNanos = Math.max(0, Math.min(Limits.nanos(wait), Limits.LONGEST_LOCATE_NANOS));
        var name = new BlockName(coflow, block, host);
        return new Located(coordinator(), name, List.of()).ask(waitNanos, waitNanos + callLimit);
    }

    /**
     * Puts a range of a file as a block. The file stays where it is, and must not change until the coflow has ended; it must be
     * below a folder that the agent may serve ({@code weir agent --allow}).
     *
     * @param coflow its coflow
     * @param block its name, 255 bytes of UTF-8 at most
     * @param file the file
     * @param offset where the block begins in it, in bytes
     * @param size bytes of the block
     * @throws IOException see the class; {@link RefusedException} with the code that docs/protocol.md has for {@code Put}
     */
    public void putFile(long coflow, String block, Path file, long offset, long size) throws IOException {
        puts().file(coflow, block, file, offset, size);
    }

    /**
     * Puts a block from memory: its bytes are copied into the spool of the agent, with checksums and a hash, so that receivers
     * may go on at any holder that was given the same bytes. The memory is free for other use when this returns.
     *
     * @param coflow its coflow
     * @param block its name, 255 bytes of UTF-8 at most
     * @param bytes what the buffer has left; its position is not moved
     * @throws IOException see the class; other errors if the spool cannot be written
     */
    public void put(long coflow, String block, ByteBuffer bytes) throws IOException {
        puts().memory(coflow, block, bytes);
    }

    /**
     * A block as a stream. Nothing is asked before the first read.
     *
     * @param coflow its coflow
     * @param block its name
     * @param options how
     * @return to be closed by the caller; its reads throw what {@link #get(long, String, GetOptions, WritableByteChannel)} does
     * @throws IOException if the client is closed
     */
    public BlockInputStream open(long coflow, String block, GetOptions options) throws IOException {
        return new BlockInputStream(gets.reader(coflow, block, options, Long.MAX_VALUE));
    }

    /**
     * Writes a block to a channel, from its start. A channel that is slow slows the sender; the time limit counts on, but a
     * write that does not return is the caller's to end.
     *
     * @param coflow its coflow
     * @param block its name
     * @param options how
     * @param sink a channel in blocking mode; it stays open
     * @return bytes written, which is the size of the block
     * @throws IOException see the class; {@link TimeLimitException}, {@link CoflowEndedException}, {@link CoflowRefusedException},
     *     {@link BlockGoneException}, {@link BlockChangedException}, {@link HolderException}, {@link WrongHashException}; what was
     *     written until then are the first bytes of the block
     */
    public long get(long coflow, String block, GetOptions options, WritableByteChannel sink) throws IOException {
        return gets.toChannel(coflow, block, options, sink);
    }

    /**
     * Gets a block into a buffer. If the block changes on the way, it is got anew.
     *
     * @param coflow its coflow
     * @param block its name
     * @param options how
     * @param into its position moves behind the block; after an error its content is undefined, and its position as before
     * @return size of the block in bytes
     * @throws IOException as {@link #get(long, String, GetOptions, WritableByteChannel)}, and {@link BlockTooLargeException}
     */
    public int get(long coflow, String block, GetOptions options, ByteBuffer into) throws IOException {
        return gets.toBuffer(coflow, block, options, into);
    }

    /**
     * Gets a block into memory. If the block changes on the way, it is got anew. Memory grows with what has come, not with what
     * the holder says will come.
     *
     * @param coflow its coflow
     * @param block its name
     * @param options how
     * @param mostBytes a larger block is an error
     * @return its bytes
     * @throws IOException as {@link #get(long, String, GetOptions, ByteBuffer)}
     */
    public byte[] getBytes(long coflow, String block, GetOptions options, int mostBytes) throws IOException {
        return gets.toArray(coflow, block, options, mostBytes);
    }

    Leases leases() {
        return leases;
    }

    private Calls<CoordinatorBlockingStub> coordinator() {
        if (coordinator == null) {
            throw new IllegalStateException("this client has no coordinator; say WeirClient.Builder.coordinator");
        }
        return coordinator;
    }

    private Puts puts() {
        if (puts == null) {
            throw new IllegalStateException("this client has no agent; say WeirClient.Builder.agent with the socket of the "
                    + "agent of this host");
        }
        return puts;
    }

    /**
     * Ends it: gets that are under way end with a {@link ClientClosedException}, and leases are renewed no more. Coflows and
     * blocks stay. Idempotent.
     */
    @Override
    public void close() {
        leases.close();
        pool.close();
        channels.close();
    }

    /** Says where peers are. Not for several threads. */
    public static final class Builder {
        private HostPort coordinator;
        private Path agent;
        private int host;
        private long callLimit = TimeUnit.SECONDS.toNanos(10);

        private Builder() {}

        /**
         * The coordinator. Without one nothing can be registered, and gets need {@link GetOptions#withHolders}.
         *
         * @param address host:port, where host is a name or an IP address (IPv6 in brackets)
         * @return this
         */
        public Builder coordinator(String address) {
            coordinator = HostPort.parse(address);
            return this;
        }

        /**
         * The agent of this host; without it nothing can be put. Unix sockets need Linux on x86_64 or aarch64.
         *
         * @param socket its Unix socket, {@code agent.sock} in its spool
         * @return this
         */
        public Builder agent(Path socket) {
            agent = socket;
            return this;
        }

        /**
         * This host, as the destination of what it gets.
         *
         * @param number unsigned; 0 unless said
         * @return this
         */
        public Builder host(int number) {
            host = number;
            return this;
        }

        /**
         * Longest time of a call to the coordinator or the agent, repetitions included.
         *
         * @param limit more than 0; 10 s unless said
         * @return this
         */
        public Builder callLimit(Duration limit) {
            if (limit.isZero() || limit.isNegative()) {
                throw new IllegalArgumentException("a time limit is more than 0, this one is " + limit);
            }
            callLimit = Limits.nanos(limit);
            return this;
        }

        /**
         * The client. Nothing is connected yet.
         *
         * @return to be closed by the caller
         * @throws UnsupportedOperationException if it has an agent, and this machine cannot reach Unix sockets
         */
        public WeirClient build() {
            return new WeirClient(this);
        }
    }
}

package io.weir.client;

import com.google.protobuf.ByteString;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import weir.v1.AgentGrpc.AgentBlockingStub;
import weir.v1.Control;

/** Puts of blocks at the agent of this host. */
final class Puts {
    private final Calls<AgentBlockingStub> agent;
    private final long limitNanos;
    private volatile Path spool;

    Puts(Calls<AgentBlockingStub> agent, long limitNanos) {
        this.agent = agent;
        this.limitNanos = limitNanos;
    }

    void file(long coflow, String block, Path file, long offset, long size) throws IOException {
        call(Control.PutRequest.newBuilder().setPath(file.toAbsolutePath().toString()).setOffset(offset).setSize(size)
                .setIdentity(ByteString.copyFrom(Identity.drawn().toWire())), coflow, block);
    }

    void memory(long coflow, String block, ByteBuffer bytes) throws IOException {
        Wire.name(block);
        try (Spool file = Spool.create(spool())) {
            file.write(bytes.duplicate());
            file.finish();
            spooled(coflow, block, file);
        }
    }

    private void spooled(long coflow, String block, Spool file) throws IOException {
        var request = Control.PutRequest.newBuilder().setPath(file.name()).setSize(file.size()).setSpooled(true)
                .setIdentity(ByteString.copyFrom(file.identity().toWire()));
        for (int frame = 0; frame < file.frames(); frame++) {
            request.addFrameChecksums(file.checksum(frame));
        }
        boolean refused = false;
        try {
            call(request, coflow, block);
        } catch (RefusedException e) {
            refused = true;
            throw e;
        } finally {
            // A put that was refused is over; one that was not answered may still be on its way.
            if (!refused) {
                file.handOver();
            }
        }
    }

    private void call(Control.PutRequest.Builder put, long coflow, String block) throws IOException {
        Wire.name(block);
        var request = put.setCoflow(coflow).setBlock(block).build();
        agent.repeat("put of `" + block + "`", limitNanos, stub -> stub.put(request));
    }

    private Path spool() throws IOException {
        Path known = spool;
        if (known == null) {
            var request = Control.DescribeRequest.getDefaultInstance();
            known = Path.of(agent.repeat("describe", limitNanos, stub -> stub.describe(request)).getSpool());
            spool = known;
        }
        return known;
    }
}

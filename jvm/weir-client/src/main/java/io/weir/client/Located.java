package io.weir.client;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import weir.v1.Control;
import weir.v1.CoordinatorGrpc.CoordinatorBlockingStub;

/** Asks the coordinator who holds a block, unless the caller has said it. */
final class Located implements Finder {
    private static final long REFUSAL_LIMIT_NANOS = TimeUnit.SECONDS.toNanos(10);
    private static final String REFUSED = "its deadline cannot be met";

    private final Calls<CoordinatorBlockingStub> coordinator;
    private final BlockName block;
    private final List<InetSocketAddress> fixed;

    /** {@code coordinator} may be null where there are {@code fixed} holders. */
    Located(Calls<CoordinatorBlockingStub> coordinator, BlockName block, List<InetSocketAddress> fixed) {
        this.coordinator = coordinator;
        this.block = block;
        this.fixed = fixed;
    }

    @Override
    public boolean isFixed() {
        return !fixed.isEmpty();
    }

    @Override
    public List<InetSocketAddress> find(long waitNanos, long limit) throws IOException {
        if (isFixed()) {
            return fixed;
        }
        long answer = Math.min(waitNanos + Limits.LOCATE_LIMIT_NANOS, limit - System.nanoTime());
        List<InetSocketAddress> found = new ArrayList<>();
        IOException bad = null;
        for (Holder holder : ask(waitNanos, answer)) {
            if (found.size() == Limits.MAX_HOLDERS_ASKED) {
                break;
            }
            try {
                found.add(HostPort.parse(holder.dataAddress()).resolve(limit));
            } catch (InterruptedIOException e) {
                throw e;
            } catch (IOException | IllegalArgumentException e) {
                bad = new UnreachableException("the coordinator says that an agent that holds " + block + " listens at `"
                        + Limits.text(holder.dataAddress()) + "`: " + e.getMessage(), e);
            }
        }
        if (found.isEmpty() && bad != null) {
            throw bad;
        }
        return found;
    }

    /** One call: the holders, none if there is none within {@code waitNanos}. */
    List<Holder> ask(long waitNanos, long limitNanos) throws IOException {
        var request = Control.LocateRequest.newBuilder().setCoflow(block.coflow).setBlock(block.block)
                .setWaitMs(TimeUnit.NANOSECONDS.toMillis(waitNanos)).setHost(block.host).build();
        var reply = coordinator.once("locate " + block, limitNanos, stub -> stub.locate(request));
        if (reply.getEnded()) {
            throw new CoflowEndedException(block.coflow, null);
        }
        if (!reply.getRefused().isEmpty()) {
            throw new CoflowRefusedException(block.coflow, Limits.text(reply.getRefused()), null);
        }
        List<Holder> holders = new ArrayList<>(reply.getHoldersCount());
        reply.getHoldersList().forEach(holder -> holders.add(new Holder(holder)));
        return holders;
    }

    @Override
    public String refusal(long limit) throws InterruptedIOException {
        if (coordinator == null) {
            return REFUSED;
        }
        var request = Control.AdmissionRequest.newBuilder().setCoflow(block.coflow).build();
        try {
            long left = Math.min(REFUSAL_LIMIT_NANOS, limit - System.nanoTime());
            String reason = coordinator.once("await admission", left, stub -> stub.awaitAdmission(request)).getReason();
            return reason.isEmpty() ? REFUSED : Limits.text(reason);
        } catch (InterruptedIOException e) {
            throw e;
        } catch (IOException e) {
            return REFUSED;
        }
    }
}

package io.weir.client;

/** A live coflow, as the coordinator sees it. */
public final class CoflowStatus {
    private final weir.v1.Status.CoflowStatus wire;

    CoflowStatus(weir.v1.Status.CoflowStatus wire) {
        this.wire = wire;
    }

    /**
     * The coflow.
     *
     * @return its id, unsigned
     */
    public long coflow() {
        return wire.getCoflow();
    }

    /**
     * Its name.
     *
     * @return as it was registered
     */
    public String name() {
        return wire.getName();
    }

    /**
     * Flows that move or wait to.
     *
     * @return a number of flows
     */
    public long liveFlows() {
        return wire.getLiveFlows();
    }

    /**
     * Flows that were acknowledged.
     *
     * @return a number of flows
     */
    public long doneFlows() {
        return wire.getDoneFlows();
    }

    /**
     * What live flows have left.
     *
     * @return a number of bytes
     */
    public long bytesLeft() {
        return wire.getBytesLeft();
    }

    /**
     * The rate that it is planned with.
     *
     * @return bytes per second
     */
    public double bytesPerSecond() {
        return wire.getRateBytesPerS();
    }

    /**
     * Why it does not move faster.
     *
     * @return words for people
     */
    public String waitsFor() {
        return wire.getWaitsFor();
    }

    /**
     * Whether no more flows join it.
     *
     * @return true once it was sealed, or all announced flows are there
     */
    public boolean isSealed() {
        return wire.getSealed();
    }

    /**
     * What was decided on its deadline.
     *
     * @return {@link Admission#NO_DEADLINE} if it has none
     */
    public Admission admission() {
        return Admission.of(wire.getAdmission());
    }

    @Override
    public String toString() {
        return "coflow " + Long.toUnsignedString(coflow()) + ": " + liveFlows() + " flows, " + bytesLeft()
                + " bytes left, " + bytesPerSecond() + " B/s";
    }
}

package io.weir.client;

/** What became of a coflow. */
public final class CoflowRecord {
    private final weir.v1.Status.CoflowRecord wire;

    CoflowRecord(weir.v1.Status.CoflowRecord wire) {
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
     * Flows that were acknowledged.
     *
     * @return a number of flows
     */
    public long flows() {
        return wire.getFlows();
    }

    /**
     * What they moved.
     *
     * @return a number of bytes
     */
    public long bytes() {
        return wire.getBytes();
    }

    /**
     * Time from its first get to its last acknowledged byte.
     *
     * @return seconds
     */
    public double completionSeconds() {
        return wire.getCctS();
    }

    /**
     * What was decided on its deadline.
     *
     * @return {@link Admission#NO_DEADLINE} if it had none
     */
    public Admission admission() {
        return Admission.of(wire.getAdmission());
    }

    /**
     * Whether all was moved before its deadline.
     *
     * @return false without a deadline
     */
    public boolean metDeadline() {
        return wire.getMet();
    }

    @Override
    public String toString() {
        return "coflow " + Long.toUnsignedString(coflow()) + ": " + flows() + " flows, " + bytes() + " bytes, "
                + completionSeconds() + " s";
    }
}

package io.weir.client;

/** The coflow was unregistered, or its lease ended: its blocks will not come any more. */
public final class CoflowEndedException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** Its id. */
    private final long coflow;

    CoflowEndedException(long coflow, Throwable cause) {
        super("coflow " + Long.toUnsignedString(coflow) + " has ended; register a new one", cause);
        this.coflow = coflow;
    }

    /**
     * The coflow.
     *
     * @return its id, unsigned
     */
    public long coflow() {
        return coflow;
    }
}

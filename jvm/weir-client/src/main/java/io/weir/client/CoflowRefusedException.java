package io.weir.client;

/** The deadline of the coflow cannot be met, and it was registered to stop then. */
public final class CoflowRefusedException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** Which link lacks how much. */
    private final String reason;

    CoflowRefusedException(long coflow, String reason, Throwable cause) {
        super("coflow " + Long.toUnsignedString(coflow) + " was refused: " + reason
                + "; register it again with a later deadline", cause);
        this.reason = reason;
    }

    /**
     * Which link lacks how much, as the coordinator says it.
     *
     * @return words for people
     */
    public String reason() {
        return reason;
    }
}

package io.weir.client;

/**
 * The agent that holds a block answered with a status other than accepted. Those that may change are asked again until the
 * time limit of the get: then this is the cause of the {@link TimeLimitException}.
 */
public final class HolderException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** The answer. */
    private final HolderStatus status;

    HolderException(String holder, HolderStatus status) {
        super("the agent at " + holder + ": " + status.meaning(), null);
        this.status = status;
    }

    /**
     * What the agent answered.
     *
     * @return never {@link HolderStatus#ACCEPTED}
     */
    public HolderStatus status() {
        return status;
    }

    @Override
    public boolean mayComeLater() {
        return status != HolderStatus.BAD_REQUEST && status != HolderStatus.FORBIDDEN && status != HolderStatus.COFLOW_ENDED
                && status != HolderStatus.COFLOW_REFUSED;
    }
}

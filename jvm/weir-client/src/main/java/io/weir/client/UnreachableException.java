package io.weir.client;

/** The coordinator or the agent could not be reached within the time limit. */
public final class UnreachableException extends WeirException {
    private static final long serialVersionUID = 1L;

    UnreachableException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public boolean mayComeLater() {
        return true;
    }
}

package io.weir.client;

/**
 * The agent took a gather, and its connection ended before all had come. The agent may be well: it ends flows so whose coflow has
 * ended. Asked again for the rest, it says why, if it is still there.
 */
public final class BrokenOffException extends WeirException {
    private static final long serialVersionUID = 1L;

    BrokenOffException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public boolean mayComeLater() {
        return true;
    }
}

package io.weir.client;

/**
 * A time limit passed. Of a get the message says what went wrong last with each holder that was asked, and
 * {@link #getCause()} is the latest of these errors, if there was one.
 */
public final class TimeLimitException extends WeirException {
    private static final long serialVersionUID = 1L;

    TimeLimitException(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    public boolean mayComeLater() {
        return true;
    }
}

package io.weir.client;

import java.io.IOException;

/** Why something could not be done. The subclasses say what a caller can tell apart. */
public class WeirException extends IOException {
    private static final long serialVersionUID = 1L;

    /**
     * An error with a message and, if there is one, its cause.
     *
     * @param message what failed, where, and what to do
     * @param cause what led to it, or null
     */
    public WeirException(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Whether the same call may succeed later without anything being changed.
     *
     * @return true if it is worth repeating
     */
    public boolean mayComeLater() {
        return false;
    }
}

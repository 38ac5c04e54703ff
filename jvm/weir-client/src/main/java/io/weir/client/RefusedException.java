package io.weir.client;

/** The coordinator or the agent refused a call. The same call will be refused again. */
public final class RefusedException extends WeirException {
    private static final long serialVersionUID = 1L;

    /** Name of the status. */
    private final String code;

    RefusedException(String code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /**
     * The status of gRPC that the call ended with, as docs/protocol.md names it.
     *
     * @return for example {@code ALREADY_EXISTS}
     */
    public String code() {
        return code;
    }
}

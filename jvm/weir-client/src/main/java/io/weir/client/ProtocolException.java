package io.weir.client;

/**
 * A peer sent what docs/protocol.md does not allow there: another magic or version, a length out of its range, a frame
 * without its checksum. Another holder is asked then, so callers see this as the cause of a {@link TimeLimitException}.
 */
public final class ProtocolException extends WeirException {
    private static final long serialVersionUID = 1L;

    ProtocolException(String message) {
        super(message, null);
    }
}

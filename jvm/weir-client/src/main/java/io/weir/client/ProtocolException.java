package io.weir.client;

/**
 * A peer sent what docs/protocol.md does not allow there: another magic or version, a length out of its range, a frame
 * without its checksum. A get asks another holder then, so its callers see this as the cause of a {@link TimeLimitException}; a
 * gather ends with it.
 */
public final class ProtocolException extends WeirException {
    private static final long serialVersionUID = 1L;

    ProtocolException(String message) {
        super(message, null);
    }
}

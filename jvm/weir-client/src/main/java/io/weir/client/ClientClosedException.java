package io.weir.client;

/** The client, or the stream, was closed before or during the call. */
public final class ClientClosedException extends WeirException {
    private static final long serialVersionUID = 1L;

    ClientClosedException(String what) {
        super(what + " is closed", null);
    }
}

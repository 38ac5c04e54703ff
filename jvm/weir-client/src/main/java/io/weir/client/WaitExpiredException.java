package io.weir.client;

import java.io.IOException;

/** One wait on a connection took longer than its limit. */
final class WaitExpiredException extends IOException {
    private static final long serialVersionUID = 1L;

    WaitExpiredException(String what) {
        super(what);
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}

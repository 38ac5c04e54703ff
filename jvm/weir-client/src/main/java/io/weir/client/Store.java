package io.weir.client;

import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;

/** The shuffle files of an executor, as receivers name them: an application, an executor of it, and a token. */
public final class Store {
    /** Bytes of a token. */
    public static final int TOKEN_BYTES = 16;

    private final String application;
    private final String executor;
    private final byte[] token;

    /**
     * A store.
     *
     * @param application name of the application, 1 to 255 bytes of UTF-8
     * @param executor name of the executor within it, likewise
     * @param token {@value #TOKEN_BYTES} bytes that a receiver of the store's bytes must say
     */
    public Store(String application, String executor, byte[] token) {
        name("application", application);
        name("executor", executor);
        if (token.length != TOKEN_BYTES) {
            throw new IllegalArgumentException("a token has " + TOKEN_BYTES + " bytes, not " + token.length);
        }
        this.application = application;
        this.executor = executor;
        this.token = token.clone();
    }

    private static void name(String what, String name) {
        int length = name.getBytes(StandardCharsets.UTF_8).length;
        if (length == 0 || length > Limits.MAX_STORE_NAME_BYTES) {
            throw new IllegalArgumentException("the name of an " + what + " has 1 to " + Limits.MAX_STORE_NAME_BYTES
                    + " bytes in UTF-8, this one " + length + ": " + Limits.text(name));
        }
    }

    /**
     * A token that cannot be guessed.
     *
     * @return {@value #TOKEN_BYTES} bytes
     */
    public static byte[] newToken() {
        byte[] token = new byte[TOKEN_BYTES];
        new SecureRandom().nextBytes(token);
        return token;
    }

    /**
     * The application.
     *
     * @return its name
     */
    public String application() {
        return application;
    }

    /**
     * The executor.
     *
     * @return its name
     */
    public String executor() {
        return executor;
    }

    byte[] token() {
        return token;
    }

    @Override
    public String toString() {
        return "executor " + executor + " of " + application;
    }
}

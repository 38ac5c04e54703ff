package io.weir.client;

/**
 * Every frame of a block had its checksum, and the whole does not have the hash that it was put with. The last frame was not
 * handed out.
 */
public final class WrongHashException extends WeirException {
    private static final long serialVersionUID = 1L;

    WrongHashException(String block) {
        super(block + " does not have the hash that it was put with; get it again, or put it again", null);
    }
}

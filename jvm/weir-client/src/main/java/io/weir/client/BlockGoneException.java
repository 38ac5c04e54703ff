package io.weir.client;

/** The file of a block was changed or removed after it was put, at every holder. The block is there again once it is put again. */
public final class BlockGoneException extends WeirException {
    private static final long serialVersionUID = 1L;

    BlockGoneException(String block, Throwable cause) {
        super("the file of " + block + " was changed or removed after it was put; put it again", cause);
    }
}

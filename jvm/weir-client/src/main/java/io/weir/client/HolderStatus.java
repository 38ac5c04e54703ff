package io.weir.client;

/** Status of an answer on the data plane. The order is that of the numbers on the wire. */
public enum HolderStatus {
    /** Frames follow. */
    ACCEPTED("accepted"),
    /** The agent does not hold the block. The next holder is asked, or the same one later. */
    NO_SUCH_BLOCK("it does not hold the block"),
    /** The request is not of the agent's version, or the offset is bad. The get ends with a {@link HolderException}. */
    BAD_REQUEST("it takes the request for a bad one; is it of another version?"),
    /** The get ends with a {@link CoflowEndedException}. */
    COFLOW_ENDED("the coflow has ended"),
    /** The agent is at its bound of connections. It is asked later. */
    BUSY("it serves as many connections as it may"),
    /** The agent cannot read the file of the block. The next holder is asked, or the same one later. */
    UNREADABLE("it cannot read the file of the block"),
    /** The get ends with a {@link CoflowRefusedException}. */
    COFLOW_REFUSED("the coflow was refused"),
    /** Frames come by relays. To a receiver that offered no way an agent must not answer so. */
    RELAYED("it answered by relays, unasked"),
    /** The file was changed or removed. If every holder says so, the get ends with a {@link BlockGoneException}. */
    CHANGED("the file of the block was changed or removed"),
    /** The agent has other bytes. If they differ from what was read, the get ends with a {@link BlockChangedException}. */
    OTHER_BYTES("it has other bytes under this name"),
    /** Bytes of an executor's store were asked for without its token. The gather ends with a {@link HolderException}. */
    FORBIDDEN("the token is not that of the store");

    private static final HolderStatus[] BY_NUMBER = values();

    private final String meaning;

    HolderStatus(String meaning) {
        this.meaning = meaning;
    }

    String meaning() {
        return meaning;
    }

    /** The status of a number on the wire; null if there is none. */
    static HolderStatus of(int number) {
        return number >= 0 && number < BY_NUMBER.length ? BY_NUMBER[number] : null;
    }
}

package io.weir.client;

import weir.v1.Control;

/** An agent that holds a block. */
public final class Holder {
    private final Control.Holder wire;

    Holder(Control.Holder wire) {
        this.wire = wire;
    }

    /**
     * Number of its host.
     *
     * @return unsigned
     */
    public int host() {
        return wire.getHost();
    }

    /**
     * Where its data plane listens.
     *
     * @return host:port
     */
    public String dataAddress() {
        return wire.getDataAddress();
    }

    /**
     * Size of the block in bytes.
     *
     * @return 0 too where senders decide: sizes are not told then
     */
    public long size() {
        return wire.getSize();
    }

    /**
     * Which bytes it holds.
     *
     * @return {@link Identity#UNKNOWN} if it does not say
     */
    public Identity identity() {
        return Identity.ofWire(wire.getIdentity().toByteArray());
    }

    @Override
    public String toString() {
        return "host " + Integer.toUnsignedString(host()) + " at " + dataAddress();
    }
}

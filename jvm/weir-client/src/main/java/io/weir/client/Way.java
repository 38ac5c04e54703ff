package io.weir.client;

import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** A way by relays, offered to the agent that serves a flow. It may take it or not. */
final class Way {
    /** Bytes of a way before a request. */
    static final int BYTES = 36;
    /** Bytes of the header of a relay's message. */
    static final int HEADER_BYTES = 32;
    static final byte HELLO = 0;
    static final byte DATA = 2;
    static final byte RESET = 5;
    static final byte ALIVE = 6;
    static final byte SUBSCRIBE = 7;
    static final byte VERSION = 1;
    /** {@code WRLY}, read as little-endian. */
    private static final int MAGIC = 0x594c5257;
    private static final byte HOP_LIMIT = 8;
    private static final int HELLO_BYTES = 16;
    private static final byte RECEIVER = 2;

    private final int site;
    private final int mapper;
    private final InetSocketAddress relay;

    /** By a relay of the site that the receiver is in; the mapper tells attempts apart. */
    Way(int site, int mapper, InetSocketAddress relay) {
        this.site = site;
        this.mapper = mapper;
        this.relay = relay;
    }

    /** Where the receiver subscribes. */
    InetSocketAddress relay() {
        return relay;
    }

    /** As it goes to an agent, right before a request. */
    ByteBuffer encode() {
        ByteBuffer bytes = ByteBuffer.allocate(BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(MAGIC).put(VERSION).put(new byte[3]).putInt(site).putInt(mapper);
        InetAddress address = relay.getAddress();
        if (address instanceof Inet6Address) {
            bytes.put(address.getAddress());
        } else {
            bytes.put(new byte[10]).put((byte) 0xff).put((byte) 0xff).put(address.getAddress());
        }
        bytes.putShort((short) relay.getPort()).putShort((short) 0).flip();
        return bytes;
    }

    /** What a receiver says to the relay: who it is, and which flow it wants. */
    ByteBuffer subscribe(long coflow, int host, int group) {
        ByteBuffer bytes = ByteBuffer.allocate(2 * HEADER_BYTES + HELLO_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        header(bytes, HELLO, HELLO_BYTES).putLong(0).putLong(0).putLong(0);
        bytes.putInt(Wire.MAGIC).put(RECEIVER).put((byte) 1).putShort((short) 0).putLong(0);
        header(bytes, SUBSCRIBE, 0).put(key(coflow, host, group)).putLong(0);
        bytes.flip();
        return bytes;
    }

    private static ByteBuffer header(ByteBuffer bytes, byte kind, int length) {
        return bytes.put(VERSION).put(kind).put(HOP_LIMIT).put((byte) 0).putInt(length);
    }

    /** The 16 bytes that name a flow among relays. */
    byte[] key(long coflow, int host, int group) {
        ByteBuffer bytes = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.putLong(coflow).putInt(Integer.rotateLeft(host, 16) ^ group).putInt(mapper).array();
    }
}

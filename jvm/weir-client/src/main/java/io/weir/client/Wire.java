package io.weir.client;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Framing of the data plane, version 2, as docs/protocol.md has it. All integers are little-endian. */
final class Wire {
    /** Payload bytes of every frame but the last of a block. */
    static final int FRAME_BYTES = 256 << 10;
    /** Bytes of an answer. */
    static final int RESPONSE_BYTES = 32;
    /** Bytes before the payload of a frame. */
    static final int FRAME_HEADER_BYTES = 8;
    /** Bytes of a request before the name of the block. */
    static final int REQUEST_HEAD_BYTES = 50;
    /** {@code WEIR}, read as little-endian. */
    static final int MAGIC = 0x52494557;
    static final byte VERSION = 2;
    /** What a receiver says once every checksum agreed. */
    static final byte ACK = 0x06;
    /** What it says before the number of a frame that does not have its checksum. */
    static final byte NAK = 0x15;
    static final int NAK_BYTES = 9;

    private Wire() {}

    /** The name of a block in UTF-8. */
    static byte[] name(String block) {
        byte[] name = block.getBytes(StandardCharsets.UTF_8);
        if (name.length == 0 || name.length > Limits.MAX_BLOCK_NAME_BYTES) {
            throw new IllegalArgumentException("the name of a block has 1 to " + Limits.MAX_BLOCK_NAME_BYTES
                    + " bytes in UTF-8, this one " + name.length + ": " + Limits.text(block));
        }
        return name;
    }

    /** A request. */
    static ByteBuffer request(long coflow, long offset, int host, int group, Identity identity, byte[] name) {
        ByteBuffer bytes = ByteBuffer.allocate(REQUEST_HEAD_BYTES + name.length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(MAGIC).put(VERSION).put((byte) name.length).putInt(0);
        bytes.putLong(coflow).putLong(offset).putInt(host).putInt(group).put(identity.toWire()).put(name);
        bytes.flip();
        return bytes;
    }

    /** Word of a frame that does not have its checksum; frames count from 0. */
    static ByteBuffer nak(long frame) {
        ByteBuffer bytes = ByteBuffer.allocate(NAK_BYTES).order(ByteOrder.LITTLE_ENDIAN);
        bytes.put(NAK).putLong(frame).flip();
        return bytes;
    }

    /** The acknowledgement. */
    static ByteBuffer ack() {
        return ByteBuffer.wrap(new byte[] {ACK});
    }

    /** The status of the answer that a little-endian buffer begins with. */
    static HolderStatus status(ByteBuffer bytes) throws ProtocolException {
        if (bytes.getInt(0) != MAGIC) {
            throw new ProtocolException("it does not speak the data plane of Weir");
        }
        if (bytes.get(4) != VERSION) {
            throw new ProtocolException("it speaks version " + (bytes.get(4) & 0xff)
                    + " of the data plane, and this client version " + VERSION);
        }
        int number = bytes.get(5) & 0xff;
        HolderStatus status = HolderStatus.of(number);
        if (status == null) {
            throw new ProtocolException("it answered with status " + number + ", which there is not");
        }
        return status;
    }

    /** The size of the block in that answer. */
    static long size(ByteBuffer bytes) throws ProtocolException {
        long size = bytes.getLong(8);
        if (size < 0 || size > Limits.MAX_BLOCK_BYTES) {
            throw new ProtocolException("it says that the block has " + Long.toUnsignedString(size)
                    + " bytes; a block has " + Limits.MAX_BLOCK_BYTES + " at most");
        }
        return size;
    }

    /** The identity in that answer. */
    static Identity identity(ByteBuffer bytes) {
        return Identity.read(bytes, 16);
    }

    /** Payload bytes of the frame at an offset of a block; 0 at its end. */
    static int frameLength(long size, long offset) {
        return (int) Math.min(FRAME_BYTES - offset % FRAME_BYTES, Math.max(0, size - offset));
    }

    /** Frames of a block of so many bytes. */
    static long frameCount(long size) {
        return size / FRAME_BYTES + (size % FRAME_BYTES == 0 ? 0 : 1);
    }

    /** An array that has room for one more than {@code count} values; it doubles. */
    static int[] withRoom(int[] values, int count) {
        return count < values.length ? values : Arrays.copyOf(values, Math.max(64, Math.multiplyExact(count, 2)));
    }
}

package io.weir.client;

import java.nio.ByteBuffer;

/** Which bytes of a block were handed out, and which its holder sends next. */
final class Taken {
    private final String block;
    /** Bytes handed out; always at the start of a frame, or the end. */
    private long verified;
    /** Checksums of the frames handed out: grows with what came, not with what a holder says will come. */
    private int[] checksums = new int[0];
    private int frames;
    /** Where the next frame of the holder begins: before {@code verified} where the block was begun anew. */
    private long at;
    /** Of the block; -1 until a holder has said it. */
    private long size = -1;
    /** Of the bytes handed out. */
    private Identity identity = Identity.UNKNOWN;
    /** Of the bytes that the holder sends: the same, unless the block was begun anew. */
    private Identity offered = Identity.UNKNOWN;
    private final ContentHash hash;

    Taken(String block, boolean verifyWhole) {
        this.block = block;
        this.hash = verifyWhole ? new ContentHash() : null;
    }

    long verified() {
        return verified;
    }

    long size() {
        return size;
    }

    /** Bytes whose identity no holder said cannot be gone on with: they are asked for from the start. */
    private boolean canResume() {
        return verified > 0 && identity.isKnown();
    }

    /** From which byte on the rest is asked for. */
    long missingFrom() {
        return canResume() ? verified : 0;
    }

    /** Of which bytes. */
    Identity missingOf() {
        return canResume() ? identity : Identity.UNKNOWN;
    }

    /** A holder sends a block of that size and identity from {@code offset} on. */
    void accept(long offeredSize, long offset, Identity of) throws BlockChangedException {
        if (verified > 0 && size != offeredSize) {
            throw changed();
        }
        size = offeredSize;
        at = offset;
        offered = of;
        if (verified == 0) {
            identity = of;
        }
    }

    boolean isComplete() {
        return size == verified && at == verified;
    }

    int nextPayload() {
        return Wire.frameLength(size, at);
    }

    long nextFrame() {
        return at / Wire.FRAME_BYTES;
    }

    /**
     * Takes a frame that has its checksum; {@code payload} has its bytes between position and limit, and keeps them.
     *
     * @return whether it is to be handed out; false if it was before, and is the same
     */
    boolean take(int checksum, ByteBuffer payload) throws WeirException {
        int index = (int) nextFrame();
        boolean again = at < verified;
        int length = payload.remaining();
        at += length;
        if (again) {
            if (checksums[index] != checksum) {
                throw changed();
            }
            if (at == verified) {
                identity = offered;
            }
            return false;
        }
        checksums = Wire.withRoom(checksums, frames);
        checksums[frames++] = checksum;
        verified += length;
        if (hash != null) {
            hash.update(payload);
            if (verified == size && identity.isContent() && !hash.identity().equals(identity)) {
                throw new WrongHashException(block);
            }
        }
        return true;
    }

    private BlockChangedException changed() {
        return new BlockChangedException(block, verified, null);
    }
}

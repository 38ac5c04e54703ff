package io.weir.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.EnumSet;
import java.util.Set;
import java.util.zip.CRC32C;

/**
 * A block that is written into a file of the agent's spool, with the checksums of its frames and the hash over all of it. The
 * file is removed if it is closed before it was handed over.
 */
final class Spool implements AutoCloseable {
    private static final SecureRandom RANDOM = new SecureRandom();

    private final Path path;
    private final FileChannel file;
    private final CRC32C crc = new CRC32C();
    private final ContentHash hash = new ContentHash();
    private int[] checksums = new int[0];
    private int frames;
    private int inFrame;
    private long size;
    private boolean isOurs = true;

    private Spool(Path path, FileChannel file) {
        this.path = path;
        this.file = file;
    }

    /** An empty file of a fresh name. The agent may run as another user of the spool's group, so the group may read it. */
    static Spool create(Path folder) throws IOException {
        byte[] random = new byte[16];
        RANDOM.nextBytes(random);
        StringBuilder name = new StringBuilder();
        for (byte part : random) {
            name.append(String.format("%02x", part));
        }
        Path path = folder.resolve(name + ".block");
        var rights = PosixFilePermissions.fromString("rw-r-----");
        FileChannel file = FileChannel.open(path, EnumSet.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
                PosixFilePermissions.asFileAttribute(rights));
        Spool spool = new Spool(path, file);
        try {
            // Again: the umask of this process may have taken a right away.
            Files.setPosixFilePermissions(path, Set.copyOf(rights));
        } catch (IOException e) {
            spool.close();
            throw e;
        }
        return spool;
    }

    /** Appends what a buffer has left. */
    void write(ByteBuffer bytes) throws IOException {
        if (bytes.remaining() > Limits.MAX_BLOCK_BYTES - size) {
            throw new IllegalArgumentException("a block has " + Limits.MAX_BLOCK_BYTES + " bytes at most");
        }
        ByteBuffer counted = bytes.duplicate();
        size += counted.remaining();
        hash.update(counted.duplicate());
        int end = counted.limit();
        while (counted.position() < end) {
            int part = Math.min(end - counted.position(), Wire.FRAME_BYTES - inFrame);
            counted.limit(counted.position() + part);
            crc.update(counted);
            counted.limit(end);
            inFrame += part;
            if (inFrame == Wire.FRAME_BYTES) {
                endFrame();
            }
        }
        while (bytes.hasRemaining()) {
            file.write(bytes);
        }
    }

    private void endFrame() {
        checksums = Wire.withRoom(checksums, frames);
        checksums[frames++] = (int) crc.getValue();
        crc.reset();
        inFrame = 0;
    }

    /** All was written. */
    void finish() throws IOException {
        if (inFrame > 0) {
            endFrame();
        }
        file.close();
    }

    String name() {
        return path.getFileName().toString();
    }

    long size() {
        return size;
    }

    int frames() {
        return frames;
    }

    int checksum(int frame) {
        return checksums[frame];
    }

    Identity identity() {
        return hash.identity();
    }

    /** The agent owns the file from now on, or removes it in time where it did not hear of it. */
    void handOver() {
        isOurs = false;
    }

    @Override
    public void close() throws IOException {
        try {
            file.close();
        } finally {
            if (isOurs) {
                isOurs = false;
                Files.deleteIfExists(path);
            }
        }
    }
}

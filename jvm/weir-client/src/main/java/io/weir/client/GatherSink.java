package io.weir.client;

import java.io.IOException;
import java.nio.ByteBuffer;

/** Takes the ranges of a gather. */
@FunctionalInterface
public interface GatherSink {
    /**
     * A range is there, and every checksum over it agreed. Ranges come once each, in their order.
     *
     * @param index which of the gather's, from 0
     * @param bytes its bytes, which are the sink's from now on
     * @throws IOException to end the gather, which throws it on
     */
    void range(int index, ByteBuffer bytes) throws IOException;
}

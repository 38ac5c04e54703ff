package io.weir.bench;

import java.util.Iterator;
import scala.Tuple2;

/** Records that no compression makes smaller, numbered from 0; the same for the same seed. */
final class Records implements Iterator<Tuple2<Integer, byte[]>> {
    private final int bytes;
    private final int records;
    private int next;
    private long state;

    /**
     * None drawn yet.
     *
     * @param bytes of one record
     */
    Records(long seed, int bytes, int records) {
        this.bytes = bytes;
        this.records = records;
        this.state = 0x9e3779b97f4a7c15L * (seed + 1);
    }

    @Override
    public boolean hasNext() {
        return next < records;
    }

    @Override
    public Tuple2<Integer, byte[]> next() {
        byte[] record = new byte[bytes];
        for (int at = 0; at + 8 <= record.length; at += 8) {
            state ^= state << 13;
            state ^= state >>> 7;
            state ^= state << 17;
            for (int part = 0; part < 8; part++) {
                record[at + part] = (byte) (state >>> 8 * part);
            }
        }
        return new Tuple2<>(next++, record);
    }
}

package io.weir.spark;

import io.weir.client.Gather;
import io.weir.client.Store;
import java.util.ArrayList;
import java.util.List;

/** Names of shuffle blocks taken apart: {@code shuffle_S_M_R}, or {@code shuffle_S_M_R_R'} of reducers R to R' - 1. */
final class ShuffleBlocks {
    private final String[] names;
    private final int[] shuffles;
    private final long[] maps;
    private final int[] firsts;
    private final int[] ends;

    private ShuffleBlocks(String[] names) {
        this.names = names;
        shuffles = new int[names.length];
        maps = new long[names.length];
        firsts = new int[names.length];
        ends = new int[names.length];
    }

    /** Null if any is something else. */
    static ShuffleBlocks parse(String[] names) {
        ShuffleBlocks blocks = new ShuffleBlocks(names);
        try {
            for (int at = 0; at < names.length; at++) {
                String[] parts = names[at].split("_", -1);
                if (!parts[0].equals("shuffle") || parts.length < 4 || parts.length > 5) {
                    return null;
                }
                blocks.shuffles[at] = Integer.parseInt(parts[1]);
                blocks.maps[at] = Long.parseLong(parts[2]);
                blocks.firsts[at] = Integer.parseInt(parts[3]);
                blocks.ends[at] = parts.length == 5 ? Integer.parseInt(parts[4]) : blocks.firsts[at] + 1;
                if (blocks.shuffles[at] < 0 || blocks.firsts[at] < 0 || blocks.firsts[at] >= blocks.ends[at]) {
                    return null;
                }
            }
        } catch (NumberFormatException e) {
            return null;
        }
        return blocks;
    }

    /** Whether a name is that of a block of a shuffle, pushed and merged ones too. */
    static boolean isOfShuffle(String name) {
        return name.startsWith("shuffle");
    }

    int size() {
        return names.length;
    }

    String name(int at) {
        return names[at];
    }

    /** Gathers of all of them from one on; they come one after the other. */
    List<Part> gathers(Store store, long coflow, int group, int from) {
        List<Part> parts = new ArrayList<>();
        Part part = null;
        for (int at = from; at < names.length; at++) {
            boolean fits = part != null && part.gather.size() < Gather.MAX_RANGES && shuffles[at] == shuffles[at - 1];
            if (!fits) {
                part = new Part(new Gather(store, coflow, group, shuffles[at]), at);
                parts.add(part);
            }
            part.gather.range(maps[at], firsts[at], ends[at]);
        }
        return parts;
    }

    /** A gather, and which block its first range is. */
    static final class Part {
        final Gather gather;
        final int first;

        Part(Gather gather, int first) {
            this.gather = gather;
            this.first = first;
        }
    }
}

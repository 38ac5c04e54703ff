package io.weir.spark;

import java.util.LinkedHashMap;
import java.util.Map;

/** A map of a bounded size, of which the eldest goes first. */
final class Bounded<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1L;
    private final int most;

    Bounded(int most) {
        this.most = most;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
        return size() > most;
    }
}

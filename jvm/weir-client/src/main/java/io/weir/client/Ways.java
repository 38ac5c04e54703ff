package io.weir.client;

import java.net.InetSocketAddress;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntSupplier;

/** Relays that bring flows of other sites to this host. For any thread. */
final class Ways {
    private static final SecureRandom RANDOM = new SecureRandom();

    private final int site;
    private final List<InetSocketAddress> relays;
    /** Draws what tells flows apart. */
    private final IntSupplier mappers;
    /** Relays that failed, and until when they are not asked. */
    private final Map<InetSocketAddress, Long> avoided = new HashMap<>();

    Ways(int site, List<InetSocketAddress> relays) {
        this(site, relays, RANDOM::nextInt);
    }

    Ways(int site, List<InetSocketAddress> relays, IntSupplier mappers) {
        this.mappers = mappers;
        this.site = site;
        this.relays = List.copyOf(relays);
    }

    /** A way for one flow; null if no relay is to be asked now. */
    synchronized Way draw() {
        long now = System.nanoTime();
        avoided.values().removeIf(until -> until - now <= 0);
        List<InetSocketAddress> usable = new ArrayList<>(relays);
        usable.removeAll(avoided.keySet());
        if (usable.isEmpty()) {
            return null;
        }
        int mapper = mappers.getAsInt();
        return new Way(site, mapper, usable.get(Integer.remainderUnsigned(mapper, usable.size())));
    }

    /** A relay failed. */
    synchronized void avoid(InetSocketAddress relay) {
        avoided.put(relay, System.nanoTime() + Limits.AVOID_NANOS);
    }

    boolean isOf(int otherSite, List<InetSocketAddress> others) {
        return site == otherSite && relays.equals(others);
    }
}

package io.weir.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Where the agents are that serve executors' files, at the driver. In the order in which it was told, so that others can hear what is new. */
final class Agents {
    /** Most entries of one answer. */
    static final int MAX_AT_ONCE = 1_000;

    private final Map<String, String> addresses = new HashMap<>();
    /** Executors, as they were told of; one whose agent has another address by now is there again. */
    private final List<String> order = new ArrayList<>();

    /** An agent at an address serves an executor's files. */
    synchronized void add(String executor, String address) {
        if (!address.equals(addresses.put(executor, address))) {
            order.add(executor);
        }
    }

    /** The address, or nothing. */
    synchronized String of(String executor) {
        return addresses.getOrDefault(executor, "");
    }

    synchronized int size() {
        return addresses.size();
    }

    /** What is new from a place in the order on: a line with the next place, then one for each executor, the address first. */
    synchronized String from(int place) {
        int begin = Math.max(0, Math.min(place, order.size()));
        int end = Math.min(order.size(), begin + MAX_AT_ONCE);
        StringBuilder said = new StringBuilder().append(end);
        for (String executor : order.subList(begin, end)) {
            said.append('\n').append(addresses.get(executor)).append(' ').append(executor);
        }
        return said.toString();
    }
}

package io.weir.client;

import java.util.LinkedHashMap;
import java.util.Map;

/** What went wrong with each holder that was asked, for the error that may come of it. */
final class Tried {
    private final Map<String, String> obstacles = new LinkedHashMap<>();
    private Throwable last;

    /** Notes an obstacle; {@code who} is empty where the error itself names it. */
    void note(String who, Throwable why) {
        note(who, why.getMessage(), why);
    }

    void note(String who, String what, Throwable why) {
        note(who, what == null ? why.getClass().getSimpleName() : what);
        last = why;
    }

    void note(String who, String why) {
        if (obstacles.size() >= Limits.MAX_TRIED && !obstacles.containsKey(who)) {
            obstacles.remove(obstacles.keySet().iterator().next());
        }
        obstacles.put(who, Limits.text(why));
    }

    /** Notes an obstacle unless there was one before with the same holder. */
    void noteFirst(String who, Throwable why) {
        if (!obstacles.containsKey(who)) {
            Throwable before = last;
            note(who, why);
            last = before == null ? why : before;
        }
    }

    void forget(String who) {
        obstacles.remove(who);
    }

    Throwable last() {
        return last;
    }

    @Override
    public String toString() {
        StringBuilder text = new StringBuilder();
        obstacles.forEach((who, why) -> text.append(text.length() == 0 ? "" : "; ")
                .append(who).append(who.isEmpty() ? "" : ": ").append(why));
        return text.toString();
    }
}

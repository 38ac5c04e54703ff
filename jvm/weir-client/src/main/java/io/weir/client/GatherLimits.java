package io.weir.client;

import java.time.Duration;

/** How long the parts of a gather may take. */
public final class GatherLimits {
    private final long connect;
    private final long answer;
    private final long silence;
    private final long whole;

    /**
     * Limits, each more than 0.
     *
     * @param connect until the agent is connected
     * @param answer until it has answered; it answers at once, also where the flow is paused then
     * @param silence how long nothing may come before the agent is asked, on another connection, whether it is there. If it is,
     *     the flow is paused, and is waited for
     * @param whole of all of it
     */
    public GatherLimits(Duration connect, Duration answer, Duration silence, Duration whole) {
        this.connect = positive(connect);
        this.answer = positive(answer);
        this.silence = positive(silence);
        this.whole = positive(whole);
    }

    private static long positive(Duration limit) {
        if (limit.isZero() || limit.isNegative()) {
            throw new IllegalArgumentException("a time limit is more than 0, this one is " + limit);
        }
        return Limits.nanos(limit);
    }

    long connectNanos() {
        return connect;
    }

    long answerNanos() {
        return answer;
    }

    long silenceNanos() {
        return silence;
    }

    long wholeNanos() {
        return whole;
    }
}

package io.weir.client;

import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** How a block is to be got. Immutable: each {@code with} method returns another one. */
public final class GetOptions {
    /** An hour at most, holders from the coordinator, group 0, no hash over the whole block. */
    public static final GetOptions DEFAULT = new GetOptions();

    private long timeLimitNanos = TimeUnit.HOURS.toNanos(1);
    private long connectLimitNanos = TimeUnit.SECONDS.toNanos(2);
    private long answerLimitNanos = TimeUnit.SECONDS.toNanos(12);
    private long silenceNanos = TimeUnit.SECONDS.toNanos(4);
    private List<InetSocketAddress> holders = Collections.emptyList();
    private int group;
    private boolean verifyWhole;

    private GetOptions() {}

    private GetOptions(GetOptions other) {
        timeLimitNanos = other.timeLimitNanos;
        connectLimitNanos = other.connectLimitNanos;
        answerLimitNanos = other.answerLimitNanos;
        silenceNanos = other.silenceNanos;
        holders = other.holders;
        group = other.group;
        verifyWhole = other.verifyWhole;
    }

    /**
     * Longest time until the last byte was handed out, waiting for the put included. An hour unless said.
     *
     * @param limit more than 0
     * @return the options with it
     */
    public GetOptions withTimeLimit(Duration limit) {
        GetOptions options = new GetOptions(this);
        options.timeLimitNanos = nanos(limit);
        return options;
    }

    /**
     * Longest time that connecting to one holder may take before the next one is asked. 2 s unless said.
     *
     * @param limit more than 0
     * @return the options with it
     */
    public GetOptions withConnectLimit(Duration limit) {
        GetOptions options = new GetOptions(this);
        options.connectLimitNanos = nanos(limit);
        return options;
    }

    /**
     * Longest time from a request to the answer of its holder, which comes before the first byte is due. 12 s unless said.
     *
     * @param limit more than 0
     * @return the options with it
     */
    public GetOptions withAnswerLimit(Duration limit) {
        GetOptions options = new GetOptions(this);
        options.answerLimitNanos = nanos(limit);
        return options;
    }

    /**
     * Longest silence between bytes before the holder is asked, on another connection, whether it is there; it has 2 s to
     * answer. A plan may pause a flow for as long as it likes, so a holder that answers is waited for, each time twice as
     * long, a minute at most. 4 s unless said.
     *
     * @param limit more than 0
     * @return the options with it
     */
    public GetOptions withSilenceLimit(Duration limit) {
        GetOptions options = new GetOptions(this);
        options.silenceNanos = nanos(limit);
        return options;
    }

    /**
     * Data-plane addresses of agents that hold the block. Unless said, the coordinator is asked.
     *
     * @param addresses resolved, 64 at most
     * @return the options with them
     */
    public GetOptions withHolders(List<InetSocketAddress> addresses) {
        if (addresses.size() > Limits.MAX_HOLDERS_ASKED) {
            throw new IllegalArgumentException(
                    addresses.size() + " holders; " + Limits.MAX_HOLDERS_ASKED + " at most are asked");
        }
        GetOptions options = new GetOptions(this);
        options.holders = Collections.unmodifiableList(new ArrayList<>(addresses));
        return options;
    }

    /**
     * The receiving task within the coflow. A coflow that announced its number of flows counts a block once for each host and
     * group that got it: tasks of one host that get the same block need groups of their own.
     *
     * @param number unsigned
     * @return the options with it
     */
    public GetOptions withGroup(int number) {
        GetOptions options = new GetOptions(this);
        options.group = number;
        return options;
    }

    /**
     * Besides the checksum of every frame, compare a hash over the whole block with that of its put, if it was put with one.
     *
     * @param verify whether to
     * @return the options with it
     */
    public GetOptions withVerifyWhole(boolean verify) {
        GetOptions options = new GetOptions(this);
        options.verifyWhole = verify;
        return options;
    }

    private static long nanos(Duration limit) {
        if (limit.isZero() || limit.isNegative()) {
            throw new IllegalArgumentException("a time limit is more than 0, this one is " + limit);
        }
        return Limits.nanos(limit);
    }

    long timeLimitNanos() {
        return timeLimitNanos;
    }

    long connectLimitNanos() {
        return connectLimitNanos;
    }

    long answerLimitNanos() {
        return answerLimitNanos;
    }

    long silenceNanos() {
        return silenceNanos;
    }

    List<InetSocketAddress> holders() {
        return holders;
    }

    int group() {
        return group;
    }

    boolean verifyWhole() {
        return verifyWhole;
    }
}

package io.weir.client;

import java.util.List;
import java.util.stream.Collectors;

/** What moves, what was complete, and which agents are there. */
public final class ClusterStatus {
    private final weir.v1.Status.StatusReply wire;

    ClusterStatus(weir.v1.Status.StatusReply wire) {
        this.wire = wire;
    }

    /**
     * The policy in force.
     *
     * @return its name
     */
    public String policy() {
        return wire.getPolicy();
    }

    /**
     * Data-plane addresses of the agents that have a session.
     *
     * @return host:port of each, by host
     */
    public List<String> agents() {
        return wire.getAgentsList().stream().map(weir.v1.Status.AgentStatus::getDataAddress)
                .collect(Collectors.toUnmodifiableList());
    }

    /**
     * Live coflows.
     *
     * @return by id, the first 10,000
     */
    public List<CoflowStatus> coflows() {
        return wire.getCoflowsList().stream().map(CoflowStatus::new).collect(Collectors.toUnmodifiableList());
    }

    /**
     * Coflows that are complete.
     *
     * @return the last few, newest first
     */
    public List<CoflowRecord> completed() {
        return wire.getCompletedList().stream().map(CoflowRecord::new).collect(Collectors.toUnmodifiableList());
    }

    /**
     * Whether the coflow that was asked for has ended.
     *
     * @return true too if its id was never given
     */
    public boolean hasEnded() {
        return wire.getEnded();
    }
}

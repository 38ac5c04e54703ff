package io.weir.client;

import java.time.Duration;
import weir.v1.Control;

/** A coflow as its driver declares it. A coordinator refuses what is beyond its bounds. */
public final class CoflowOptions {
    private final Control.CoflowOptions wire;

    private CoflowOptions(Control.CoflowOptions wire) {
        this.wire = wire;
    }

    Control.CoflowOptions wire() {
        return wire;
    }

    /**
     * Options that are to be set.
     *
     * @param name for people, 1,024 bytes at most
     * @return a builder in which nothing but the name is said
     */
    public static Builder named(String name) {
        return new Builder(name);
    }

    /** Sets options. Not for several threads. */
    public static final class Builder {
        private final Control.CoflowOptions.Builder wire = Control.CoflowOptions.newBuilder();

        private Builder(String name) {
            wire.setName(name);
        }

        /**
         * Which flows it has.
         *
         * @param pattern any
         * @return this
         */
        public Builder pattern(Pattern pattern) {
            wire.setPattern(pattern.wire());
            return this;
        }

        /**
         * Expected number of flows: senders times receivers in a shuffle. Reaching it seals the coflow. Without it, say
         * {@link Coflow#seal} once no more will join.
         *
         * @param number 0: not known
         * @return this
         */
        public Builder flows(long number) {
            if (number < 0) {
                throw new IllegalArgumentException("a number of flows is 0 or more, this one is " + number);
            }
            wire.setFlows(number);
            return this;
        }

        /**
         * Weight, for policies that have weights.
         *
         * @param weight above 0; 1 unless said
         * @return this
         */
        public Builder weight(double weight) {
            wire.setWeight(weight);
            return this;
        }

        /**
         * Deadline, counted from the first get of the coflow.
         *
         * @param deadline a millisecond to 365 days
         * @return this
         */
        public Builder deadline(Duration deadline) {
            wire.setDeadlineMs(millis("a deadline", deadline));
            return this;
        }

        /**
         * If the deadline cannot be met, end the flows of the coflow: gets end with a {@link CoflowRefusedException}. Else they
         * move as TCP has them move.
         *
         * @param stop whether to
         * @return this
         */
        public Builder stopIfRefused(boolean stop) {
            wire.setStopIfRefused(stop);
            return this;
        }

        /**
         * A coflow of the same job that this one follows on. It comes behind its parents while they are live.
         *
         * @param coflow its id; 1,000 parents at most
         * @return this
         */
        public Builder parent(long coflow) {
            if (wire.getParentsCount() >= Limits.MAX_PARENTS) {
                throw new IllegalArgumentException("a coflow has " + Limits.MAX_PARENTS + " parents at most");
            }
            wire.addParents(coflow);
            return this;
        }

        /**
         * Any one coflow of the job; without it a coflow is of the job of its first parent.
         *
         * @param coflow its id
         * @return this
         */
        public Builder job(long coflow) {
            wire.setJob(coflow);
            return this;
        }

        /**
         * What the job needs at least once this coflow is complete, as far as it is known.
         *
         * @param whole the longest path of stages, compute times included
         * @param transfer the longest path of coflows alone
         * @return this
         */
        public Builder tail(Duration whole, Duration transfer) {
            wire.setTailUs(whole.toNanos() / 1_000).setTailTransferUs(transfer.toNanos() / 1_000);
            return this;
        }

        /**
         * Who it is for. Kept by the coordinator, and not acted on yet.
         *
         * @param tenant 1,024 bytes at most
         * @return this
         */
        public Builder tenant(String tenant) {
            wire.setTenant(tenant);
            return this;
        }

        /**
         * How long the coflow is kept without a sign of life: a renewal, a put, a get, a flow that moves. Then it ends as if it
         * had been unregistered. Unless said, as long as the coordinator has it, which is 10 minutes unless that was told
         * otherwise.
         *
         * @param lease 3 seconds to 7 days
         * @return this
         */
        public Builder lease(Duration lease) {
            wire.setLeaseMs(millis("a lease", lease));
            return this;
        }

        /**
         * The options.
         *
         * @return what was said so far
         */
        public CoflowOptions build() {
            return new CoflowOptions(wire.build());
        }

        private static long millis(String what, Duration duration) {
            long millis = Limits.nanos(duration) / 1_000_000;
            if (millis < 1) {
                throw new IllegalArgumentException(what + " is at least 1 ms, this one is " + duration);
            }
            return millis;
        }
    }
}

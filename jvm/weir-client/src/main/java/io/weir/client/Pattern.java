package io.weir.client;

import weir.v1.Control;

/** Which flows a coflow has. It is for people and statistics; flows are what receivers ask for. */
public enum Pattern {
    /** Not said. */
    ANY(Control.Pattern.PATTERN_ANY),
    /** From every sender to every receiver, each block to one receiver. */
    SHUFFLE(Control.Pattern.PATTERN_SHUFFLE),
    /** One block to many receivers. */
    BROADCAST(Control.Pattern.PATTERN_BROADCAST),
    /** Many blocks to one receiver. */
    AGGREGATION(Control.Pattern.PATTERN_AGGREGATION),
    /** Every block to every receiver. */
    ALL_TO_ALL(Control.Pattern.PATTERN_ALL_TO_ALL);

    private final Control.Pattern wire;

    Pattern(Control.Pattern wire) {
        this.wire = wire;
    }

    Control.Pattern wire() {
        return wire;
    }
}

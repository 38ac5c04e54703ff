package io.weir.spark;

/** Why Spark's own fetch brought bytes of a shuffle. */
enum Why {
    /** The agent of the reading executor's host is not there, or has not answered yet. */
    NOT_ATTACHED("notAttached", "the reading executor had no agent"),
    /** The driver knows none for the executor that wrote them, or was not heard in time. */
    NO_AGENT("noAgent", "no agent was known"),
    /** After a failure of this agent, or for these files. */
    RESTING("resting", "an agent was left alone after a failure"),
    /** The stage has none, or the driver was not heard in time. */
    NO_COFLOW("noCoflow", "no coflow was known"),
    /** A plan paused it, or it was slow. */
    PAUSED("paused", "took longer than spark.weir.patience"),
    /** It has ended, or was refused. */
    ENDED("ended", "the coflow had ended"),
    /** An agent, or what it sent. */
    FAILED("failed", "a fetch by Weir failed"),
    /** As many fetches as may be go on. */
    TOO_MANY("tooMany", "too many fetches at once"),
    /** They go to a file. */
    LARGE("large", "blocks too large for memory"),
    /** Of push-based shuffle. */
    MERGED("merged", "pushed or merged blocks");

    /** In names of counters. */
    final String metric;
    /** For people. */
    final String words;

    Why(String metric, String words) {
        this.metric = metric;
        this.words = words;
    }
}

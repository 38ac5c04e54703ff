package io.weir.spark;

/**
 * What executors and the driver say to each other, as texts and numbers: classes of a plugin's jar are not known wherever Spark
 * decodes messages.
 */
final class Messages {
    /** Answers to {@link #coflow}: it is being registered; there will be none for now. */
    static final long NOT_YET = -1;
    static final long NONE = -2;
    private static final String COFLOW = "coflow ";
    private static final String KNOWN = "known ";
    private static final String WHERE = "where ";
    private static final String AGENTS = "agents ";
    private static final String ATTACHED = "attached ";
    private static final String MOVED = "moved ";
    private static final String ENDS = "ends ";

    private Messages() {}

    /** Which coflow the reads of a stage's attempt are; answered by a number. */
    static String coflow(int stage, int attempt) {
        return COFLOW + stage + " " + attempt;
    }

    /** The same, of one that the driver knows of; an attempt that it does not know of, or that reads nothing, is not yet there. */
    static String known(int stage, int attempt) {
        return KNOWN + stage + " " + attempt;
    }

    /** Which agent serves the files of an executor; answered by host:port, or nothing. */
    static String where(String executor) {
        return WHERE + executor;
    }

    /** Which agents the driver was told of from a place on; answered as {@link Agents#from} has it. */
    static String agents(int place) {
        return AGENTS + place;
    }

    /** The files of an executor are served by an agent. */
    static String attached(String executor, String address) {
        return ATTACHED + address + " " + executor;
    }

    /** What an executor fetched for a stage's attempt since it last told. */
    static String moved(int stage, int attempt, String executor, Moved moved) {
        return MOVED + stage + " " + attempt + " " + moved.encode() + " " + executor;
    }

    /** An executor ends, and has told all. */
    static String ends(String executor) {
        return ENDS + executor;
    }

    /** Takes a message apart. */
    static Object dispatch(String message, Handler handler) {
        if (message.startsWith(COFLOW)) {
            String[] parts = message.substring(COFLOW.length()).split(" ");
            if (parts.length != 2) {
                throw unknown(message);
            }
            return handler.coflow(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]));
        }
        if (message.startsWith(KNOWN)) {
            String[] parts = message.substring(KNOWN.length()).split(" ");
            if (parts.length != 2) {
                throw unknown(message);
            }
            return handler.known(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]));
        }
        if (message.startsWith(WHERE)) {
            return handler.where(message.substring(WHERE.length()));
        }
        if (message.startsWith(AGENTS)) {
            return handler.agents(Integer.parseInt(message.substring(AGENTS.length())));
        }
        if (message.startsWith(ATTACHED)) {
            String[] parts = message.substring(ATTACHED.length()).split(" ", 2);
            if (parts.length != 2) {
                throw unknown(message);
            }
            handler.attached(parts[1], parts[0]);
            return null;
        }
        if (message.startsWith(MOVED)) {
            String[] parts = message.substring(MOVED.length()).split(" ", 4);
            if (parts.length != 4) {
                throw unknown(message);
            }
            handler.moved(Integer.parseInt(parts[0]), Integer.parseInt(parts[1]), parts[3], Moved.parse(parts[2]));
            return null;
        }
        if (message.startsWith(ENDS)) {
            handler.ends(message.substring(ENDS.length()));
            return null;
        }
        throw unknown(message);
    }

    private static IllegalArgumentException unknown(String message) {
        return new IllegalArgumentException("a message of another version of the plugin: " + message);
    }

    /** The driver's side. */
    interface Handler {
        long coflow(int stage, int attempt);

        long known(int stage, int attempt);

        String where(String executor);

        String agents(int place);

        void attached(String executor, String address);

        void moved(int stage, int attempt, String executor, Moved moved);

        void ends(String executor);
    }
}

package io.weir.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;

/**
 * A transcript of the data plane or of gathers (docs/protocol.md, Transcripts), played to a receiver: it hears the lines of the
 * others on its connections, cut at random places, and has to say its own, byte by byte and in their order. A wait ends where
 * another connection is closed. Gathers that are resumed are passed over: this client resumes none.
 */
final class Script implements Dialer {
    /** What one line says. {@code what} is empty, "connects", "reuses", "fails" or "closes" beside bytes. */
    private static final class Line {
        final String text;
        int connection;
        boolean byReceiver;
        String what = "says";
        InetSocketAddress address;
        ByteBuffer bytes;

        Line(String text) {
            this.text = text;
        }
    }

    /** A get and how it ends. */
    static final class Get {
        final long coflow;
        final String block;
        final int host;
        String end;

        Get(long coflow, String block, int host) {
            this.coflow = coflow;
            this.block = block;
            this.host = host;
        }
    }

    /** A gather and how it ends. */
    static final class Gathering {
        final Gather gather;
        final int host;
        /** Null: no way by relays is offered. */
        final Ways ways;
        String end;
        private final String shuffle;
        private final String[] ranges;
        /** What executors had written when it began. */
        private final Map<String, String[]> written;

        Gathering(String[] words, Map<String, String[]> written) {
            Store store = new Store(words[9], words[7], hex(words[12]).array());
            this.shuffle = words[4];
            this.ranges = words[1].split(",");
            this.host = Integer.parseInt(words[18].replace(",", ""));
            this.written = new HashMap<>(written);
            this.ways = isLed(words) ? ways(words) : null;
            this.gather = new Gather(store, Long.parseUnsignedLong(words[15]), Integer.parseInt(words[20]),
                    Integer.parseInt(shuffle));
            for (String range : ranges) {
                String[] parts = range.split("[:-]");
                gather.range(Long.parseLong(parts[0]), Integer.parseInt(parts[1]), Integer.parseInt(parts[2]));
            }
        }

        private static Ways ways(String[] words) {
            int mapper = Integer.parseInt(words[28]);
            return new Ways(Integer.parseInt(words[26].replace(",", "")), List.of(address(words[23])), () -> mapper);
        }

        /** The bytes of a range. */
        byte[] range(int index) {
            String[] parts = ranges[index].split("[:-]");
            String[] output = written.get(shuffle + ":" + parts[0]);
            int first = FIRST_LENGTH + Integer.parseInt(parts[1]);
            int end = FIRST_LENGTH + Integer.parseInt(parts[2]);
            return block(Integer.parseInt(output[9]), sum(output, FIRST_LENGTH, first), (int) sum(output, first, end)).array();
        }

        private static long sum(String[] words, int first, int end) {
            long sum = 0;
            for (int at = first; at < end; at++) {
                sum += Long.parseLong(words[at]);
            }
            return sum;
        }
    }

    /** Where a line of what an executor writes has the lengths, and one of a gather by what way it may come, or where it is resumed. */
    private static final int FIRST_LENGTH = 12;
    private static final int MORE = 21;

    final String name;
    final List<InetSocketAddress> agents = new ArrayList<>();
    final List<Get> gets = new ArrayList<>();
    final List<Gathering> gatherings = new ArrayList<>();
    private final List<Line> lines = new ArrayList<>();
    /** What executors wrote so far, by shuffle and map task; connections of the receiver; whether a gather is passed over. */
    private final Map<String, String[]> written = new HashMap<>();
    private final Set<Integer> own = new HashSet<>();
    private final Set<InetSocketAddress> relays = new HashSet<>();
    private boolean passesOver;
    private final Set<Integer> closed = new HashSet<>();
    private final Random cuts;
    private int next;

    Script(Path folder, String name, long seed) throws IOException {
        this.name = name;
        this.cuts = new Random(seed);
        for (String text : Files.readAllLines(folder.resolve(name + ".txt"))) {
            parse(text);
        }
    }

    private void parse(String text) {
        String[] words = text.split(" ");
        if (text.startsWith("# Agent ")) {
            InetSocketAddress agent = address(words[2]);
            if (!agents.contains(agent)) {
                agents.add(agent);
            }
        } else if (words[0].equals("get")) {
            gets.add(new Get(Long.parseUnsignedLong(words[5]), words[2], Integer.parseInt(words[8].replace(",", ""))));
        } else if (words[0].equals("gather")) {
            passesOver = words.length > MORE && !isLed(words);
            if (isLed(words)) {
                relays.add(address(words[23]));
            }
            if (!passesOver) {
                gatherings.add(new Gathering(words, written));
            }
        } else if (words[0].equals("executor")) {
            written.put(words[6] + ":" + words[3], words);
        } else if (words[0].equals("ends")) {
            end(text.substring("ends ".length()));
        } else if (words[0].equals("nobody")) {
            Line line = new Line(text);
            line.what = "fails";
            line.address = address(words[3]);
            lines.add(line);
        } else if (Character.isDigit(words[0].charAt(0)) && !passesOver) {
            spoken(text, words);
        }
    }

    private void end(String how) {
        if (!gets.isEmpty()) {
            gets.get(gets.size() - 1).end = how;
        } else if (!passesOver) {
            gatherings.get(gatherings.size() - 1).end = how;
        }
        passesOver = false;
    }

    private void spoken(String text, String[] words) {
        Line line = new Line(text);
        line.connection = Integer.parseInt(words[0]);
        line.byReceiver = words[1].equals("receiver");
        if (words[2].equals("connects") && line.byReceiver) {
            line.what = "connects";
            line.address = address(words[4]);
            own.add(line.connection);
            if (!agents.contains(line.address) && !relays.contains(line.address)) {
                agents.add(line.address);
            }
        } else if (!own.contains(line.connection)) {
            // A call, or a connection of others.
            return;
        } else if (words[2].equals("uses")) {
            line.what = "reuses";
        } else if (words[2].equals("closes")) {
            line.what = "closes";
        } else if (words[2].equals("block")) {
            line.bytes = block(Integer.parseInt(words[3]), Long.parseLong(words[5]), Integer.parseInt(words[7]));
        } else {
            line.bytes = hex(words[2]);
        }
        lines.add(line);
    }

    /** Whether a gather offers a way by relays. */
    private static boolean isLed(String[] words) {
        return words.length > MORE && words[MORE].equals("by");
    }

    private static ByteBuffer block(int seed, long from, int count) {
        ByteBuffer bytes = ByteBuffer.allocate(count);
        for (long at = from; at < from + count; at++) {
            bytes.put((byte) ((31 * at + seed) % 251));
        }
        bytes.flip();
        return bytes;
    }

    private static ByteBuffer hex(String digits) {
        ByteBuffer bytes = ByteBuffer.allocate(digits.length() / 2);
        for (int at = 0; at < digits.length(); at += 2) {
            bytes.put((byte) Integer.parseInt(digits.substring(at, at + 2), 16));
        }
        bytes.flip();
        return bytes;
    }

    private static InetSocketAddress address(String text) {
        int colon = text.lastIndexOf(':');
        return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
    }

    private Line line(String expected) {
        if (next == lines.size()) {
            throw new AssertionError(name + ": the receiver " + expected + ", and the transcript is at its end");
        }
        return lines.get(next);
    }

    private AssertionError wrong(String did) {
        return new AssertionError(name + ": the receiver " + did + " where the transcript has: " + line(did).text);
    }

    @Override
    public Connection connect(InetSocketAddress address, long limit) throws IOException {
        Line line = line("connects to " + address);
        if (line.what.equals("fails") && line.address.equals(address)) {
            next++;
            throw new java.net.ConnectException("Connection refused");
        }
        if (!line.what.equals("connects") || !line.address.equals(address)) {
            throw wrong("connects to " + address);
        }
        next++;
        return new Played(line.connection);
    }

    /** Fails unless everything was said. */
    void end() {
        if (next != lines.size()) {
            throw new AssertionError(name + ": the receiver did not come to: " + lines.get(next).text);
        }
    }

    private final class Played implements Connection {
        private final int number;

        Played(int number) {
            this.number = number;
        }

        @Override
        public int read(ByteBuffer into, long limit) throws IOException {
            Line line = line("reads");
            if (line.connection != number && line.what.equals("closes") && !line.byReceiver) {
                throw new WaitExpiredException("nothing comes before another connection is closed");
            }
            if (line.connection != number || line.byReceiver || line.what.equals("connects")) {
                throw wrong("waits for connection " + number);
            }
            if (line.what.equals("closes")) {
                next++;
                return -1;
            }
            int count = 1 + cuts.nextInt(Math.min(into.remaining(), line.bytes.remaining()));
            for (int at = 0; at < count; at++) {
                into.put(line.bytes.get());
            }
            if (!line.bytes.hasRemaining()) {
                next++;
            }
            return count;
        }

        @Override
        public void write(ByteBuffer from, long limit) {
            if (line("writes").what.equals("reuses") && line("writes").connection == number) {
                next++;
            }
            while (from.hasRemaining()) {
                Line line = line("writes");
                if (line.connection != number || !line.byReceiver || !line.what.equals("says")) {
                    throw wrong("says something on connection " + number);
                }
                byte expected = line.bytes.get();
                byte said = from.get();
                if (said != expected) {
                    throw wrong("says " + said + " for byte " + (line.bytes.position() - 1));
                }
                if (!line.bytes.hasRemaining()) {
                    next++;
                }
            }
        }

        @Override
        public boolean isFit() {
            boolean ends = next < lines.size() && lines.get(next).connection == number && lines.get(next).what.equals("closes")
                    && !lines.get(next).byReceiver;
            if (ends) {
                next++;
            }
            return !ends;
        }

        @Override
        public void close() {
            if (!closed.add(number)) {
                return;
            }
            // What its agent had said and nobody read is lost with it.
            while (next < lines.size() && lines.get(next).connection == number && isOver(lines.get(next))) {
                next++;
            }
        }

        private boolean isOver(Line line) {
            return line.what.equals("closes") || !line.byReceiver && line.what.equals("says");
        }
    }
}

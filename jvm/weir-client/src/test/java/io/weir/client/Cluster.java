package io.weir.client;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * A coordinator and two agents on 127.0.0.1, perhaps of two sites with a relay each. The binary is that of the system property {@code weir.binary} or the variable
 * {@code WEIR_BINARY}, else target/debug/weir of this repository.
 */
public final class Cluster implements AutoCloseable {
    static final int AGENTS = 2;

    /** Files that agents may serve. */
    public final Path shared;

    private final Path folder;
    private final Path binary;
    private final int coordinatorPort;
    private final int[] dataPorts = new int[AGENTS];
    private final Process[] agents = new Process[AGENTS];
    private final boolean hasRelays;
    private final int[] relayPorts = new int[AGENTS];
    private final Process[] relays = new Process[AGENTS];
    private Process coordinator;

    private static Path binary() {
        String said = System.getProperty("weir.binary", System.getenv("WEIR_BINARY"));
        return said != null ? Path.of(said) : Path.of("../../target/debug/weir").toAbsolutePath().normalize();
    }

    /** Skips the test, and says so, where there is no binary. */
    public static void assumeBinary() {
        Path binary = binary();
        boolean is = Files.isExecutable(binary);
        if (!is) {
            System.err.println("SKIPPED: " + binary + " is not there; build it with `cargo build`, or say where it is with "
                    + "WEIR_BINARY or -Dweir.binary");
        }
        assumeTrue(is, binary + " is not there; WEIR_BINARY says where weir is");
    }

    /** Starts all of it; its files are in a folder. */
    public Cluster(Path folder) throws Exception {
        this(folder, false);
    }

    /** With relays each agent is of a site of its own. */
    Cluster(Path folder, boolean hasRelays) throws Exception {
        this.hasRelays = hasRelays;
        this.folder = folder;
        this.binary = binary();
        shared = Files.createDirectory(folder.resolve("shared"));
        coordinatorPort = freePort();
        boolean started = false;
        try {
            startCoordinator();
            for (int host = 0; host < AGENTS; host++) {
                dataPorts[host] = freePort();
                if (hasRelays) {
                    relayPorts[host] = freePort();
                    startRelay(host);
                }
                startAgent(host);
            }
            awaitAgents();
            started = true;
        } finally {
            if (!started) {
                close();
            }
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private Process start(String name, List<String> arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of(binary.toString(), name.split("-")[0]));
        command.addAll(arguments);
        var log = folder.resolve(name + ".log").toFile();
        return new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
    }

    /** Starts it, or starts it again. */
    public void startCoordinator() throws Exception {
        coordinator = start("coordinator", List.of("--listen", "127.0.0.1:" + coordinatorPort, "--hosts", "" + AGENTS,
                "--link-rate", "400mbit"));
        awaitPort(coordinatorPort);
    }

    void startAgent(int host) throws Exception {
        Files.createDirectories(spool(host));
        List<String> words = new ArrayList<>(List.of("--host", "" + host, "--listen", "127.0.0.1:" + dataPorts[host],
                "--coordinator", "127.0.0.1:" + coordinatorPort, "--spool", spool(host).toString(),
                "--allow", shared.toString(), "--link-rate", "400mbit", "--interface", "none"));
        if (hasRelays) {
            words.addAll(List.of("--site", "" + host, "--relay", "127.0.0.1:" + relayPorts[host]));
        }
        agents[host] = start("agent-" + host, words);
        awaitPort(dataPorts[host]);
    }

    void startRelay(int site) throws Exception {
        relays[site] = start("relay-" + site, List.of("--name", "relay-" + site, "--site", "" + site, "--listen",
                "127.0.0.1:" + relayPorts[site]));
        awaitPort(relayPorts[site]);
    }

    /** The relay of a site. */
    Process relay(int site) {
        return relays[site];
    }

    private static void awaitPort(int port) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 1_000);
                return;
            } catch (IOException e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
                Thread.sleep(20);
            }
        }
    }

    private void awaitAgents() throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
        try (WeirClient client = client(0)) {
            while (client.status().agents().size() < AGENTS) {
                if (System.nanoTime() > end) {
                    throw new IOException("the agents did not join; their logs are in " + folder);
                }
                Thread.sleep(20);
            }
        }
    }

    /** Where an agent has its socket. */
    public Path spool(int host) {
        return folder.resolve("spool-" + host);
    }

    /** Its address. */
    public String coordinator() {
        return "127.0.0.1:" + coordinatorPort;
    }

    /** Where an agent serves blocks. */
    public InetSocketAddress dataAddress(int host) {
        return new InetSocketAddress(InetAddress.getLoopbackAddress(), dataPorts[host]);
    }

    /** The client of a task on a host. */
    public WeirClient client(int host) {
        return WeirClient.builder().coordinator("127.0.0.1:" + coordinatorPort).agent(spool(host).resolve("agent.sock"))
                .host(host).callLimit(Duration.ofSeconds(2)).build();
    }

    /** Runs a command of the binary as a task of host 0. */
    void run(String... words) throws Exception {
        List<String> command = new ArrayList<>(List.of(binary.toString()));
        command.addAll(List.of(words));
        Path log = folder.resolve("command.log");
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile());
        builder.environment().put("WEIR_AGENT", spool(0).resolve("agent.sock").toString());
        Process process = builder.start();
        if (!process.waitFor(30, TimeUnit.SECONDS) || process.exitValue() != 0) {
            process.destroyForcibly();
            throw new IOException(command + ": " + Files.readString(log));
        }
    }

    void killAgent(int host) throws InterruptedException {
        kill(agents[host]);
    }

    /** Ends it without a word. */
    public void killCoordinator() throws InterruptedException {
        kill(coordinator);
    }

    private static void kill(Process process) throws InterruptedException {
        if (process != null) {
            process.destroyForcibly();
            process.waitFor(10, TimeUnit.SECONDS);
        }
    }

    @Override
    public void close() throws InterruptedException {
        for (Process agent : agents) {
            kill(agent);
        }
        for (Process relay : relays) {
            kill(relay);
        }
        kill(coordinator);
    }
}

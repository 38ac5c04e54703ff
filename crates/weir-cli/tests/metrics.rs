//! What daemons tell those who watch: over HTTP, and to a real Prometheus.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::http::{ask, get, names_of_page, names_of_text};
use support::process::{Process, weir};
use support::small_disk::SmallDisk;

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(60);

fn free_address() -> String {
    weir_testbed::free_address().unwrap().to_string()
}

/// A coordinator and two agents that say where they are watched.
struct Cluster {
    coordinator: String,
    /// Of the coordinator and each agent.
    watched: [String; 3],
    processes: Vec<Process>,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let (coordinator, watched) = (free_address(), [free_address(), free_address(), free_address()]);
        let mut command = weir(&["coordinator", "--listen", &coordinator, "--metrics", &watched[0]]);
        command.args(["--link-rate", "1gbit", "--bypass", "0"]).stderr(Stdio::null());
        let mut processes = vec![Process::spawn(&mut command)];
        for (host, address) in watched[1..].iter().enumerate() {
            let mut command = weir(&["agent", "--host", &format!("h{host}"), "--listen", "127.0.0.1:0"]);
            command.args(["--coordinator", &coordinator, "--interface", "none", "--metrics", address]);
            command.arg("--spool").arg(dir.path().join(format!("s{host}"))).stderr(Stdio::null());
            processes.push(Process::spawn(&mut command));
        }
        let cluster = Cluster { coordinator, watched, processes, dir };
        cluster.wait(0, "weir_coordinator_agents{state=\"up\"} 2.0");
        cluster
    }

    /// Waits until a daemon's metrics have a line.
    #[track_caller]
    fn wait(&self, of: usize, line: &str) {
        let end = Instant::now() + LIMIT;
        loop {
            let text = get(&self.watched[of], "/metrics").map_or(String::new(), |(_, text)| text);
            if text.lines().any(|one| one == line) {
                return;
            }
            assert!(Instant::now() < end, "{line} is not in: {text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, words: &[&str], host: u32) -> String {
        let mut command = weir(words);
        command.args(["--coordinator", &self.coordinator]).current_dir(self.dir.path());
        command.arg("--agent").arg(self.dir.path().join(format!("s{host}/agent.sock")));
        let output = command.env_remove("WEIR_COFLOW").output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A coflow of one block from the first host to the second, complete.
    fn move_a_block(&self, bytes: usize) {
        std::fs::write(self.dir.path().join("data"), vec![5; bytes]).unwrap();
        let coflow = self.run(&["register", "--flows", "1"], 0);
        self.run(&["put", "data", "--coflow", &coflow], 0);
        self.run(&["get", "data", "copy", "--coflow", &coflow], 1);
        self.run(&["unregister", &coflow], 0);
        std::fs::remove_file(self.dir.path().join("copy")).unwrap();
    }
}

#[test]
fn what_daemons_show_is_what_the_page_says_and_what_happened() {
    let cluster = Cluster::start();
    cluster.move_a_block(2_000_000);
    cluster.wait(0, "weir_coflow_bytes_total{policy=\"varys\",bin=\"short-narrow\"} 2000000.0");
    cluster.wait(0, "weir_coflow_cct_seconds_count{policy=\"varys\",bin=\"short-narrow\"} 1");
    cluster.wait(1, "weir_agent_sent_bytes_total 2000000.0");
    cluster.wait(1, "weir_agent_flows_ended_total{result=\"done\"} 1.0");
    cluster.wait(1, "weir_agent_puts_total{result=\"taken\"} 1.0");
    cluster.wait(1, "weir_agent_lease 1.0");
    for (at, section) in [(0, "`weir coordinator`"), (1, "`weir agent`")] {
        let (status, text) = get(&cluster.watched[at], "/metrics").unwrap();
        assert_eq!((status, names_of_text(&text)), (200, names_of_page(section)));
        assert!(text.ends_with("# EOF\n"));
    }
    // The policy is another one from now on; what ends then counts for it.
    let set =
        weir(&["config", "set", "policy=fair", "--coordinator", &cluster.coordinator]).output().unwrap();
    assert!(set.status.success());
    cluster.move_a_block(6_000_000);
    cluster.wait(0, "weir_coflow_bytes_total{policy=\"fair\",bin=\"long-narrow\"} 6000000.0");
    cluster.wait(0, "weir_coordinator_policy{policy=\"fair\"} 1.0");
    // Without its coordinator an agent goes on, and says since when.
    let mut cluster = cluster;
    cluster.processes[0].kill();
    cluster.wait(1, "weir_agent_lease 0.0");
    cluster.wait(1, "weir_agent_leases_lost_total 1.0");
    assert_eq!(get(&cluster.watched[1], "/readyz").unwrap(), (200, "it takes work\n".to_owned()));
}

#[test]
fn whoever_asks_otherwise_or_not_at_all_is_no_harm() {
    let cluster = Cluster::start();
    let address = &cluster.watched[1];
    assert_eq!(get(address, "/healthz").unwrap(), (200, "it works\n".to_owned()));
    assert_eq!(get(address, "/").unwrap().0, 404);
    assert_eq!(get(address, "/metrics/../etc/passwd").unwrap().0, 404);
    assert_eq!(
        ask(
            address,
            &format!(
                "POST /metrics HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
        )
        .unwrap()
        .0,
        405
    );
    // What is no HTTP, a header without end, and connections that say nothing.
    assert_eq!(ask(address, "\0\u{1}\u{2}\r\n\r\n").map_or(400, |(status, _)| status), 400);
    let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n", "x".repeat(2_000_000));
    assert!(ask(address, &long).map_or(431, |(status, _)| status) >= 400);
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    let before = Instant::now();
    assert_eq!(get(address, "/metrics").unwrap().0, 200);
    assert!(before.elapsed() < Duration::from_secs(4), "they gave way before their time");
    drop(silent);
    // A thousand looks cost the daemon a few.
    let before = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(get(address, "/metrics").unwrap().0, 200);
    }
    assert!(before.elapsed() < LIMIT);
    cluster.move_a_block(100_000);
    let drained = weir(&["drain", "h0", "--coordinator", &cluster.coordinator]).output().unwrap();
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    cluster.wait(1, "weir_agent_draining 1.0");
    let (status, why) = get(address, "/readyz").unwrap();
    assert_eq!((status, why.contains("drained")), (503, true), "{why}");
    let taken =
        weir(&["coordinator", "--link-rate", "1gbit", "--listen", "127.0.0.1:0", "--metrics", address])
            .output()
            .unwrap();
    let said = String::from_utf8_lossy(&taken.stderr).into_owned();
    assert!(
        !taken.status.success() && said.contains(&format!("cannot listen on {address} for metrics")),
        "{said}"
    );
}

#[test]
fn an_agent_whose_spool_is_full_is_not_ready_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&dir.path().join("spool"), "4m") else { return };
    let address = free_address();
    let mut command = weir(&["agent", "--host", "full", "--listen", "127.0.0.1:0", "--metrics", &address]);
    let _agent = Process::spawn(command.arg("--spool").arg(disk.path()).stderr(Stdio::null()));
    let wait = |status: u16| {
        let end = Instant::now() + LIMIT;
        loop {
            let answer = get(&address, "/readyz");
            if answer.as_ref().is_ok_and(|answer| answer.0 == status) {
                return answer.unwrap().1;
            }
            assert!(Instant::now() < end, "{answer:?} and not {status}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    wait(200);
    disk.fill();
    let why = wait(503);
    assert!(why.contains("the disk of its spool is full"), "{why}");
    assert_eq!(get(&address, "/healthz").unwrap().0, 200);
    let (_, text) = get(&address, "/metrics").unwrap();
    assert!(text.contains("weir_agent_has_coordinator 0.0"), "{text}");
    disk.free();
    wait(200);
}

/// Where a Prometheus is, if there is one.
fn prometheus() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools/prometheus/usr/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain([fetched]);
    let found =
        folders.find(|folder| folder.join("prometheus").is_file() && folder.join("promtool").is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "prometheus is not there");
        eprintln!("SKIPPED: prometheus is not there; scripts/install-deps.sh test fetches it");
    }
    found
}

fn of_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A text as part of a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Number of series that an expression has; an error in words.
fn query(address: &str, expression: &str) -> Result<usize, String> {
    let (_, body) = get(address, &format!("/api/v1/query?query={}", encoded(expression)))
        .map_err(|error| error.to_string())?;
    // The body may come in chunks; what is between the first and the last brace is the answer.
    let body = body.find('{').and_then(|from| body.get(from..=body.rfind('}')?)).unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
    match answer["data"]["result"].as_array() {
        Some(series) if answer["status"] == "success" => Ok(series.len()),
        _ => Err(format!("{expression}: {answer}")),
    }
}

#[test]
fn a_prometheus_reads_the_metrics_the_rules_and_the_dashboard() {
    let Some(folder) = prometheus() else { return };
    let rules = of_repository("deploy/alerts.yml").canonicalize().unwrap();
    let checked =
        Command::new(folder.join("promtool")).args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let mut cluster = Cluster::start();
    let (config, address) = (cluster.dir.path().join("prometheus.yml"), free_address());
    let targets = cluster.watched.join("\", \"");
    let text = format!(
        "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: \
         weir\n    static_configs: [{{ targets: [\"{targets}\"] }}]\n",
        rules.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(folder.join("prometheus"));
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", cluster.dir.path().join("tsdb").display()));
    command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
    cluster.processes.push(Process::spawn(&mut command));
    let wait = |expression: &str, series: usize| {
        let end = Instant::now() + LIMIT;
        loop {
            let found = query(&address, expression);
            if found == Ok(series) {
                return;
            }
            assert!(Instant::now() < end, "{expression}: {found:?} and not {series}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait("up{job=\"weir\"} == 1", 3);
    cluster.move_a_block(3_000_000);
    wait("weir_coflow_cct_seconds_count{policy=\"varys\"} == 1", 1);
    // Another, so that there are rates.
    cluster.move_a_block(3_000_000);
    wait("rate(weir_agent_sent_bytes_total[1m]) > 0", 1);
    let dashboard = std::fs::read_to_string(of_repository("deploy/dashboard.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(expressions.len() >= 16);
    let end = Instant::now() + LIMIT;
    for expression in expressions {
        loop {
            let found = query(&address, expression);
            if found.as_ref().is_ok_and(|series| *series > 0) {
                break;
            }
            // Rates take two looks with something between them.
            assert!(Instant::now() < end, "{expression}: {found:?}");
            cluster.move_a_block(3_000_000);
        }
    }
    // Rules are evaluated: an agent that is gone is seen.
    cluster.processes[2].kill();
    wait("ALERTS{alertname=\"WeirDaemonDown\"}", 1);
    wait("weir_coordinator_agents{state=\"away\"} == 1", 1);
}

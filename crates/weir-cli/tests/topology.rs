//! One file of hosts, links and racks: simulated, planned with by a coordinator that reads it again, and shaped on a bed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::process::{Process, refused, weir};
use weir_testbed::free_address;

const LIMIT: Duration = Duration::from_secs(30);

/// Two hosts below a rack with a quarter of what they can send, and one at the core.
const RACK: &str = r#"
link_rate = "1gbit"

[[rack]]
name = "r1"
oversubscription = 4

[[host]]
name = "left-[1-2]"
rack = "r1"

[[host]]
name = "right"
"#;

/// One coflow: 62.5 MB from each host of the rack to the one at the core.
const TRACE: &str = "weir-trace 1\nhosts 3\ncoflow 1 0\nflow 0,1 2 62500000\nend 1\n";

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Average CCT in seconds that `weir sim` prints.
fn simulated(dir: &Path, topology: &str, policy: &str) -> f64 {
    let (trace, file) = (write(dir, "trace", TRACE), write(dir, "topology.toml", topology));
    let output = weir(&["sim", "--trace", &trace, "--topology", &file, "--policy", policy]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains(&file), "{}", String::from_utf8_lossy(&output.stderr));
    let row = said.lines().find(|line| line.split_whitespace().next() == Some(policy)).unwrap();
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// By hand: the rack takes 0.5 Gbit/s to the core, so 125 MB need 2 s; without it the receiver's link needs 1 s; with half of
/// that link 2 s again.
#[test]
fn a_topology_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let slow = RACK.replace("oversubscription = 4", "rate = \"1mbit\"");
    for policy in ["varys", "fair", "dclas-strict", "fifo"] {
        let times = [
            simulated(dir.path(), RACK, policy),
            simulated(dir.path(), &RACK.replace("oversubscription = 4", "rate = \"1gbit\""), policy),
            simulated(dir.path(), &slow.replace("\nrack = \"r1\"", ""), policy),
            simulated(dir.path(), &format!("{RACK}down_rate = \"250mbit\""), policy),
        ];
        assert_eq!(times, [2.0, 1.0, 1.0, 4.0], "{policy}");
    }
    let (trace, two) =
        (write(dir.path(), "trace", TRACE), write(dir.path(), "two.toml", "[[host]]\nname = \"a\""));
    let said = refused(&["sim", "--trace", &trace, "--topology", &two, "--policy", "varys"]);
    assert!(said.contains("host a has no rate"), "{said}");
    let wrong = write(dir.path(), "wrong.toml", "[[rack]]\nname = \"x\"\nrate = \"1gbt\"\n");
    let said = refused(&["sim", "--trace", &trace, "--topology", &wrong, "--policy", "varys"]);
    assert!(said.contains("wrong.toml:3: "), "{said}");
}

struct Cluster {
    address: String,
    coordinator: Process,
    agents: Vec<Process>,
    dir: tempfile::TempDir,
}

impl Cluster {
    fn start(options: &[&str]) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let file = write(dir.path(), "topology.toml", RACK);
        let address = free_address().unwrap().to_string();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = weir(&["coordinator", "--listen", &address, "--topology", &file]);
        let coordinator = Process::spawn(command.args(options).stderr(log));
        Cluster { address, coordinator, agents: Vec::new(), dir }
    }

    fn agent(&mut self, host: &str, options: &[&str]) {
        let mut command =
            weir(&["agent", "--host", host, "--listen", "127.0.0.1:0", "--coordinator", &self.address]);
        command.arg("--spool").arg(self.dir.path().join(host)).args(options).stderr(Stdio::null());
        self.agents.push(Process::spawn(&mut command));
    }

    /// Name and payload rate of the uplink of every host, in Mbit/s of the link.
    fn hosts(&self) -> Vec<(String, u64)> {
        let output = weir(&["hosts", "--json", "--coordinator", &self.address]).output().unwrap();
        let Ok(hosts) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return Vec::new();
        };
        let of = |host: &serde_json::Value| {
            let rate = host["up_bytes_per_s"].as_f64().unwrap() * 8.0 / 1e6 / (1448.0 / 1514.0 * 0.985);
            (host["name"].as_str().unwrap().to_owned(), rate.round() as u64)
        };
        hosts["hosts"].as_array().unwrap().iter().map(of).collect()
    }

    #[track_caller]
    fn wait_for(&self, expected: &[(&str, u64)]) {
        let end = Instant::now() + LIMIT;
        loop {
            let hosts = self.hosts();
            if hosts.iter().map(|(name, rate)| (name.as_str(), *rate)).eq(expected.iter().copied()) {
                return;
            }
            assert!(Instant::now() < end, "{hosts:?} and not {expected:?}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Has the coordinator read its topology again.
    fn reload(&self, text: &str) {
        write(self.dir.path(), "topology.toml", text);
        kill_process(Pid::from_child(&self.coordinator.0), Signal::HUP).unwrap();
    }
}

/// By hand: at a tenth of the rates the rack takes 50 Mbit/s to the core, 95.6 % of it payload, so 5 MB need 0.836 s. The
/// host at the core takes them in half of that. Buckets of the bed's links hold up to 76 kB, which is 12 ms, if they were full
/// when the first byte came.
#[test]
fn a_topology_is_shaped_on_a_bed_and_nothing_beats_its_rack() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "topology.toml", &RACK.replace("1gbit", "100mbit"));
    let trace = write(dir.path(), "trace", &TRACE.replace("62500000", "2500000"));
    let json = dir.path().join("live.json");
    let said =
        weir(&["live", "--topology", &file, "--trace", &trace, "--count", "1", "--policy", "tcp,varys"])
            .arg("--json")
            .arg(&json)
            .output()
            .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 4, "two policies, live and simulated");
    for run in runs {
        let cct = run["coflows"][0]["cct_s"].as_f64().unwrap();
        assert!(cct > 0.82, "{}, {}: {cct} s", run["policy"], run["mode"]);
    }
}

#[test]
fn a_coordinator_reads_its_topology_again_and_keeps_it_where_the_new_one_is_wrong() {
    let mut cluster = Cluster::start(&[]);
    cluster.agent("left-1", &["--link-rate", "9gbit"]);
    cluster.agent("stranger", &["--link-rate", "3gbit"]);
    cluster.wait_for(&[("left-1", 1_000), ("stranger", 3_000)]);
    cluster.reload(&RACK.replace("link_rate = \"1gbit\"", "link_rate = \"5gbit\""));
    cluster.wait_for(&[("left-1", 5_000), ("stranger", 3_000)]);
    cluster.reload(&RACK.replace("oversubscription = 4", "oversubscription = 4x"));
    let end = Instant::now() + LIMIT;
    while !cluster.log().contains("nothing was changed") {
        assert!(Instant::now() < end, "{}", cluster.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(cluster.log().contains("topology.toml:6: "), "{}", cluster.log());
    cluster.wait_for(&[("left-1", 5_000), ("stranger", 3_000)]);
    cluster.reload("");
    cluster.wait_for(&[("left-1", 9_000), ("stranger", 3_000)]);
}

#[test]
fn hosts_that_are_not_in_the_topology_are_kept_out_where_that_is_asked_for() {
    let mut cluster = Cluster::start(&["--known-hosts-only"]);
    cluster.agent("stranger", &["--link-rate", "3gbit"]);
    cluster.agent("right", &[]);
    cluster.wait_for(&[("right", 1_000)]);
    let end = Instant::now() + LIMIT;
    while !cluster.log().contains("host stranger is not in the coordinator's topology") {
        assert!(Instant::now() < end, "{}", cluster.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = refused(&["coordinator", "--topology", "/none", "--hosts", "3", "--link-rate", "1gbit"]);
    assert!(said.contains("--hosts"), "{said}");
    let said = refused(&["coordinator", "--topology", "/none"]);
    assert!(said.contains("/none"), "{said}");
}

//! Hosts that join by their names: agents and a coordinator that was told of none of them.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::process::{Process, refused, weir};

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(30);

/// A coordinator that hosts join, and a folder for what they need.
struct Cluster {
    address: String,
    coordinator: Process,
    agents: Vec<Process>,
    dir: tempfile::TempDir,
}

fn coordinator(address: &str, options: &[&str]) -> Process {
    let mut command = weir(&["coordinator", "--listen", address]);
    Process::spawn(command.args(options).stderr(Stdio::null()))
}

impl Cluster {
    fn start(options: &[&str]) -> Cluster {
        Cluster::start_at("127.0.0.1:0", options)
    }

    fn start_at(address: &str, options: &[&str]) -> Cluster {
        let address = TcpListener::bind(address).unwrap().local_addr().unwrap().to_string();
        let coordinator = coordinator(&address, options);
        Cluster { address, coordinator, agents: Vec::new(), dir: tempfile::tempdir().unwrap() }
    }

    fn spool(&self, spool: &str) -> PathBuf {
        self.dir.path().join(spool)
    }

    /// An agent with a spool, which says it is this host.
    fn agent(&mut self, spool: &str, host: &str, options: &[&str]) -> usize {
        let listen = if self.address.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
        let log = std::fs::File::create(self.dir.path().join(format!("{spool}.log"))).unwrap();
        let mut command =
            weir(&["agent", "--host", host, "--listen", listen, "--coordinator", &self.address]);
        command.arg("--spool").arg(self.spool(spool)).arg("--share").arg(self.dir.path());
        self.agents.push(Process::spawn(command.args(options).stderr(log)));
        self.agents.len() - 1
    }

    fn log(&self, spool: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{spool}.log"))).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = weir(arguments);
        command.args(["--coordinator", &self.address]).current_dir(self.dir.path());
        command.env_remove("WEIR_COFLOW").env_remove("WEIR_AGENT").output().unwrap()
    }

    /// Hosts with a session by name, each with its number and the payload rate of its uplink.
    fn hosts(&self) -> Vec<(String, u64, u64)> {
        let output = self.run(&["status", "--json"]);
        let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            return Vec::new();
        };
        let agents = status["agents"].as_array().unwrap().iter();
        let host = |agent: &serde_json::Value| {
            let name = agent["name"].as_str().unwrap().to_owned();
            (name, agent["host"].as_u64().unwrap(), agent["up_bytes_per_s"].as_f64().unwrap() as u64)
        };
        let mut hosts: Vec<_> = agents.map(host).collect();
        hosts.sort();
        hosts
    }

    #[track_caller]
    fn wait_for(&self, names: &[&str]) {
        let end = Instant::now() + LIMIT;
        loop {
            let hosts = self.hosts();
            if hosts.iter().map(|(name, _, _)| name).eq(names) {
                return;
            }
            assert!(Instant::now() < end, "{hosts:?} and not {names:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Moves a file from one host to another.
    #[track_caller]
    fn copy(&self, from: &str, to_spool: &str) {
        let file = self.dir.path().join("file");
        std::fs::write(&file, vec![7; 300_000]).unwrap();
        let agent = self.spool(to_spool).join("agent.sock");
        let copy = self.dir.path().join(format!("copy-{to_spool}"));
        let source = format!("{from}:{}", file.display());
        let output = self.run(&["cp", "--agent", path(&agent), &source, path(&copy), "--time-limit", "20"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&file).unwrap());
        std::fs::remove_file(copy).unwrap();
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn hosts_are_told_of_by_nobody_and_called_by_their_names() {
    let mut cluster = Cluster::start(&["--link-rate", "2gbit"]);
    cluster.agent("a", "left.rack-1", &[]);
    cluster.agent("b", "right", &["--link-rate", "1gbit", "--downlink-rate", "500mbit"]);
    cluster.agent("c", "12", &[]);
    cluster.wait_for(&["12", "left.rack-1", "right"]);
    cluster.copy("left.rack-1", "b");
    cluster.copy("right", "a");
    cluster.copy("12", "a");
    let hosts = cluster.hosts();
    // 1448 / 1514 and 0.985 of what was said.
    let payload = |link_bits: f64| (link_bits / 8.0 * 1448.0 / 1514.0 * 0.985) as u64;
    let rates: Vec<u64> = hosts.iter().map(|(_, _, rate)| *rate).collect();
    assert_eq!(rates, [payload(2e9), payload(2e9), payload(1e9)]);
    assert_eq!(hosts[0].1, 12);
    let absent =
        cluster.run(&["cp", "--agent", path(&cluster.spool("a").join("agent.sock")), "wrong:/file", "copy"]);
    let said = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert_eq!((absent.status.code(), said.contains("host wrong has no agent")), (Some(3), true), "{said}");
}

/// `node-53` and `node-869` make one number.
#[test]
fn two_names_that_make_one_number_are_two_hosts_and_stay_so_when_all_come_back() {
    let mut cluster = Cluster::start(&["--link-rate", "1gbit"]);
    cluster.agent("a", "node-53", &[]);
    cluster.wait_for(&["node-53"]);
    cluster.agent("b", "node-869", &[]);
    cluster.wait_for(&["node-53", "node-869"]);
    let before = cluster.hosts();
    assert!(before[0].1 == 15_567_827 && before[1].1 != before[0].1, "{before:?}");
    cluster.copy("node-53", "b");
    cluster.copy("node-869", "a");
    cluster.coordinator.kill();
    cluster.coordinator = coordinator(&cluster.address, &["--link-rate", "1gbit"]);
    cluster.agents.clear();
    for (spool, name) in [("b", "node-869"), ("a", "node-53")] {
        cluster.agent(spool, name, &[]);
    }
    cluster.wait_for(&["node-53", "node-869"]);
    assert_eq!(cluster.hosts(), before);
    cluster.copy("node-869", "a");
}

#[test]
fn a_second_host_of_one_name_is_refused_by_name_until_the_first_is_gone() {
    let mut cluster = Cluster::start(&["--link-rate", "1gbit"]);
    let first = cluster.agent("a", "db", &[]);
    cluster.wait_for(&["db"]);
    cluster.agent("b", "db", &["--link-rate", "40gbit"]);
    let end = Instant::now() + LIMIT;
    while !cluster.log("b").contains("host db has an agent already") {
        assert!(Instant::now() < end, "{}", cluster.log("b"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(cluster.hosts()[0].2, (1e9 / 8.0 * 1448.0 / 1514.0 * 0.985) as u64);
    cluster.agents[first].kill();
    let end = Instant::now() + LIMIT;
    while cluster.hosts().first().is_none_or(|host| host.2 < 1_000_000_000) {
        assert!(Instant::now() < end, "{:?}", cluster.hosts());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_host_of_which_nobody_says_how_fast_it_is_is_told_so() {
    let mut cluster = Cluster::start(&[]);
    cluster.agent("a", "slow", &[]);
    let end = Instant::now() + LIMIT;
    while !cluster.log("a").contains("the rate of the links of host slow is not known") {
        assert!(Instant::now() < end, "{}", cluster.log("a"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(cluster.hosts(), []);
}

#[test]
fn hosts_have_addresses_of_version_6_as_well() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 on its loopback");
        return;
    }
    let mut cluster = Cluster::start_at("[::1]:0", &["--link-rate", "1gbit"]);
    cluster.agent("a", "left", &[]);
    cluster.agent("b", "right", &[]);
    cluster.wait_for(&["left", "right"]);
    assert!(String::from_utf8_lossy(&cluster.run(&["hosts"]).stdout).contains("[::1]:"));
    cluster.copy("left", "b");
    cluster.copy("right", "a");
}

#[test]
fn a_host_that_was_taken_away_for_good_is_listed_until_it_is_forgotten() {
    let mut cluster = Cluster::start(&["--link-rate", "1gbit"]);
    let gone = cluster.agent("a", "left", &[]);
    cluster.agent("b", "right", &[]);
    cluster.wait_for(&["left", "right"]);
    let present = cluster.run(&["forget", "left"]);
    let reason = String::from_utf8_lossy(&present.stderr).into_owned();
    assert!(present.status.code() == Some(4) && reason.contains("stop it first"), "{reason}");
    cluster.agents[gone].kill();
    cluster.wait_for(&["right"]);
    let listed =
        |cluster: &Cluster| String::from_utf8_lossy(&cluster.run(&["hosts"]).stdout).contains("left");
    assert!(listed(&cluster));
    let forgotten = cluster.run(&["forget", "left", "--json"]);
    assert_eq!(
        String::from_utf8_lossy(&forgotten.stdout).split_whitespace().collect::<String>(),
        r#"{"host":"left"}"#
    );
    assert!(!listed(&cluster));
    let again = cluster.run(&["forget", "left"]);
    let reason = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(4) && reason.contains("no host left is away"), "{reason}");
    cluster.agent("a", "left", &[]);
    cluster.wait_for(&["left", "right"]);
    cluster.copy("left", "b");
}

#[test]
fn a_drained_host_takes_no_more_blocks_until_it_is_told_to_and_is_waited_for() {
    let mut cluster = Cluster::start(&["--link-rate", "1gbit"]);
    let drained = cluster.agent("a", "left", &[]);
    cluster.agent("b", "right", &[]);
    cluster.wait_for(&["left", "right"]);
    let at = |cluster: &Cluster, spool: &str, words: &str| {
        let agent = cluster.spool(spool).join("agent.sock");
        let mut words: Vec<&str> = words.split(' ').collect();
        words.extend(["--agent", path(&agent)]);
        cluster.run(&words)
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    std::fs::write(cluster.dir.path().join("x"), vec![1; 100_000]).unwrap();
    let coflow = text(&at(&cluster, "a", "register")).trim().to_owned();
    assert!(at(&cluster, "a", &format!("put x --coflow {coflow}")).status.success());

    let said = text(&cluster.run(&["drain", "left"]));
    assert!(said.contains("blocks that it holds: 1, "), "{said}");
    let kept_out = at(&cluster, "a", &format!("put x --name y --coflow {coflow}"));
    let reason = String::from_utf8_lossy(&kept_out.stderr).into_owned();
    assert_eq!((kept_out.status.code(), reason.contains("being drained")), (Some(4), true), "{reason}");
    assert!(at(&cluster, "b", &format!("put x --name y --coflow {coflow}")).status.success());
    // What it has is served.
    assert!(at(&cluster, "b", &format!("get x copy --coflow {coflow}")).status.success());
    let waits = |cluster: &Cluster, secs: &str| {
        let waited = cluster.run(&["drain", "left", "--wait", secs]);
        (waited.status.code(), String::from_utf8_lossy(&waited.stderr).into_owned())
    };
    let (code, said) = waits(&cluster, "0");
    assert!(code == Some(3) && said.contains("holds 1 blocks still"), "{said}");
    // Nobody knows what an agent holds that is away; and a drain that is taken back is no drain.
    cluster.agents[drained].kill();
    let address = cluster.address.clone();
    let waiting = std::thread::spawn(move || {
        weir(&["drain", "left", "--wait", "30", "--coordinator", &address]).output().unwrap()
    });
    assert_eq!(waiting.join().unwrap().status.code(), Some(3));
    let drained = cluster.agent("a", "left", &[]);
    cluster.wait_for(&["left", "right"]);
    let address = cluster.address.clone();
    let waiting = std::thread::spawn(move || {
        weir(&["drain", "left", "--wait", "30", "--coordinator", &address]).output().unwrap()
    });
    std::thread::sleep(Duration::from_millis(500));
    cluster.agents[drained].kill();
    std::thread::sleep(Duration::from_millis(500));
    let drained = cluster.agent("a", "left", &[]);
    cluster.wait_for(&["left", "right"]);
    assert!(cluster.run(&["drain", "left", "--undo"]).status.success());
    let waited = waiting.join().unwrap();
    let said = String::from_utf8_lossy(&waited.stderr).into_owned();
    assert!(waited.status.code() == Some(4) && said.contains("took the drain back"), "{said}");
    assert_eq!(waits(&cluster, "0").0, Some(3));
    assert!(at(&cluster, "b", &format!("unregister {coflow}")).status.success());
    let said = text(&cluster.run(&["drain", "left", "--wait", "20"]));
    assert!(said.contains("it can be stopped"), "{said}");

    let states = |cluster: &Cluster| {
        let hosts: serde_json::Value =
            serde_json::from_slice(&cluster.run(&["hosts", "--json"]).stdout).unwrap();
        let of = |host: &serde_json::Value| {
            format!("{} {}", host["name"].as_str().unwrap(), host["state"].as_str().unwrap())
        };
        hosts["hosts"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(states(&cluster), ["left drained", "right up"]);
    assert!(text(&cluster.run(&["hosts"])).contains("drained"));
    // It is so after both have begun anew.
    cluster.coordinator.kill();
    cluster.agents[drained].kill();
    cluster.coordinator = coordinator(&cluster.address, &["--link-rate", "1gbit"]);
    cluster.agent("a", "left", &[]);
    cluster.wait_for(&["left", "right"]);
    assert_eq!(states(&cluster), ["left drained", "right up"]);
    assert!(text(&cluster.run(&["drain", "left", "--undo"])).contains("takes blocks again"));
    assert_eq!(states(&cluster), ["left up", "right up"]);
    cluster.agents.pop().unwrap().kill();
    let end = Instant::now() + LIMIT;
    while states(&cluster) != ["left away", "right up"] {
        assert!(Instant::now() < end, "{:?}", states(&cluster));
        std::thread::sleep(Duration::from_millis(50));
    }
    let absent = cluster.run(&["drain", "left"]);
    let reason = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert_eq!(
        (absent.status.code(), reason.contains("host left has no agent")),
        (Some(3), true),
        "{reason}"
    );
    let said = refused(&["drain", "left", "--wait", "18446744073709551615"]);
    assert!(said.contains("31536000"), "{said}");
}

#[test]
fn what_is_no_host_is_refused_in_one_line() {
    for (host, reason) in [
        ("", "a name has letters"),
        ("a b", "a name has letters"),
        ("ü", "a name has letters"),
        ("9000000", "made from names"),
        ("99999999999999", "below 16777216"),
        ("..", "a name has letters"),
    ] {
        let said = refused(&["agent", "--host", host, "--spool", "/nowhere"]);
        assert!(said.contains(reason), "{said}");
    }
    for options in [["--link-rate", "0"], ["--link-rate", "0gbit"]] {
        let said = refused(&["coordinator", options[0], options[1]]);
        assert!(said.contains("--link-rate"), "{said}");
    }
    let said = refused(&["coordinator", "--hosts", "3"]);
    assert!(said.contains("--link-rate"), "{said}");
    let said = refused(&["agent", "--host", "a", "--spool", "/nowhere", "--downlink-rate", "1gbit"]);
    assert!(said.contains("--link-rate"), "{said}");
}

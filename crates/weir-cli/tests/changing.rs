//! Settings that change while coflows move: by calls, and by a file that is read again.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use support::process::{Process, weir};
use weir_testbed::free_address;

/// How long anything here may take.
const LIMIT: Duration = Duration::from_secs(60);

struct Cluster {
    address: String,
    coordinator: Process,
    agents: Vec<Process>,
    dir: tempfile::TempDir,
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

impl Cluster {
    /// A coordinator with this file of settings, and as many agents, from `h0` on.
    fn start(settings: &str, agents: u32) -> Cluster {
        let address = free_address().unwrap().to_string();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.toml");
        std::fs::write(&file, settings).unwrap();
        let log = std::fs::File::create(dir.path().join("coordinator.log")).unwrap();
        let mut command = weir(&["coordinator", "--config", path(&file), "--listen", &address]);
        let coordinator = Process::spawn(command.stderr(log));
        let mut cluster = Cluster { address, coordinator, agents: Vec::new(), dir };
        for host in 0..agents {
            cluster.agent(host);
        }
        cluster.wait_for(agents);
        cluster
    }

    /// Waits until so many agents have a session.
    #[track_caller]
    fn wait_for(&self, agents: u32) {
        let end = Instant::now() + LIMIT;
        while self.status()["agents"].as_array().is_none_or(|all| all.len() < agents as usize) {
            assert!(Instant::now() < end, "{}", self.log("coordinator"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("weir.toml")
    }

    fn agent(&mut self, host: u32) {
        let log = std::fs::File::create(self.dir.path().join(format!("h{host}.log"))).unwrap();
        let mut command = weir(&["agent", "--config", path(&self.file()), "--host", &format!("h{host}")]);
        command.args(["--listen", "127.0.0.1:0", "--coordinator", &self.address, "--interface", "none"]);
        command.arg("--spool").arg(self.spool(host));
        self.agents.push(Process::spawn(command.stderr(log)));
    }

    fn spool(&self, host: u32) -> PathBuf {
        self.dir.path().join(format!("s{host}"))
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{name}.log"))).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = weir(arguments);
        command.args(["--coordinator", &self.address]).current_dir(self.dir.path());
        command.env_remove("WEIR_COFLOW").env_remove("WEIR_AGENT").output().unwrap()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap_or_default()
    }

    fn policy(&self) -> String {
        self.status()["policy"].as_str().unwrap_or_default().to_owned()
    }

    /// Changes settings; says what the command did.
    fn set(&self, settings: &[&str]) -> (Option<i32>, String) {
        let output = self.run(&[&["config", "set"], settings].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Has the coordinator, or an agent, read its settings again, and waits until it says so in its log.
    #[track_caller]
    fn read_again(&self, process: &Process, name: &str, says: &str) {
        let before = self.log(name).matches(says).count();
        kill_process(Pid::from_child(&process.0), Signal::HUP).unwrap();
        let end = Instant::now() + LIMIT;
        while self.log(name).matches(says).count() == before {
            assert!(Instant::now() < end, "{says:?} is not in: {}", self.log(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

const SETTINGS: &str = "[coordinator]\npolicy = \"varys:delta=0\"\nlink-rate = \"200mbit\"\n";

#[test]
fn the_policy_changes_ten_times_and_every_byte_arrives() {
    let cluster = Cluster::start(SETTINGS, 3);
    let data: Vec<u8> = (0..20_000_000u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(cluster.dir.path().join("data"), &data).unwrap();
    let agent = |host: u32| path(&cluster.spool(host).join("agent.sock")).to_owned();
    let output = cluster.run(&["register", "--agent", &agent(0)]);
    let coflow = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    for host in 0..3 {
        let name = format!("b{host}");
        let put = ["put", "data", "--name", &name, "--coflow", &coflow, "--agent", &agent(host)];
        let output = cluster.run(&put);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // Two receivers for each block: 40 MB over each of three links of 25 MB/s.
    let mut gets = Vec::new();
    for (number, (from, to)) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].into_iter().enumerate() {
        let (block, into) = (format!("b{from}"), format!("copy-{number}"));
        let mut command = weir(&["get", &block, &into, "--coflow", &coflow, "--agent", &agent(to)]);
        command.args(["--coordinator", &cluster.address]).current_dir(cluster.dir.path());
        gets.push(Process::spawn(&mut command));
    }
    let policies = ["dclas", "varys:delta=0", "fair", "dclas-strict:first=1MB", "varys-deadline"];
    let mut while_moving = 0;
    for policy in policies.iter().chain(&policies) {
        std::thread::sleep(Duration::from_millis(100));
        let (code, said) = cluster.set(&[&format!("policy={policy}")]);
        assert_eq!((code, said.contains(&format!("policy = {policy} (was "))), (Some(0), true), "{said}");
        let status = cluster.status();
        assert!(status["policy"].as_str().unwrap().starts_with(policy), "{status}");
        while_moving += u32::from(status["coflows"][0]["live_flows"].as_u64().unwrap_or(0) > 0);
    }
    assert!(while_moving >= 5, "{while_moving} of ten changes came while blocks moved");
    let end = Instant::now() + LIMIT;
    for (number, get) in gets.iter_mut().enumerate() {
        let status = loop {
            assert!(Instant::now() < end, "get {number} does not end");
            match get.0.try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(status.success(), "get {number}: {status}");
        let copy = std::fs::read(cluster.dir.path().join(format!("copy-{number}"))).unwrap();
        assert!(copy == data, "copy {number} differs");
    }
    let ended = cluster.run(&["unregister", &coflow, "--json"]);
    let record: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap_or_default();
    assert_eq!(record["record"]["flows"], 6, "{record} {}", String::from_utf8_lossy(&ended.stderr));
}

/// What is asked for, and what of the refusal says why.
const REFUSED: &[(&[&str], &str)] = &[
    (&["polcy=fair"], "did you mean `policy`"),
    (&["policy=fairr"], "did you mean `fair`"),
    (&["policy=siphon"], "between sites"),
    (&["policy="], "policy"),
    (&["policy=fair", "policy=varys"], "said twice"),
    (&["bypass=-1"], "not between 0 and 3600"),
    (&["bypass=1s"], "not a number"),
    (&["listen=127.0.0.1:1"], "only with a restart"),
    (&["lease-ms=100"], "only with a restart"),
    (&["hosts=3"], "only with a restart"),
    (&["coflow-lease=3"], "only with a restart"),
    (&["log=infoo"], "neither a level"),
    (&["known-hosts-only=true"], "--topology"),
    (&["known-hosts-only=perhaps"], "true or false"),
    (&["topology=/nowhere"], "/nowhere"),
    (&["topology=/dev/zero"], "not a regular file"),
    (&["topology=/proc"], "not a regular file"),
    (&["bare-policy=true"], "no setting bare-policy"),
    (&["config=x"], "no setting config"),
    (&["help=true"], "no setting help"),
    // The first of them could be.
    (&["bypass=0.1", "policy=fairr"], "did you mean `fair`"),
];

#[test]
fn what_cannot_be_changes_nothing_and_the_reason_is_one_line() {
    let cluster = Cluster::start(SETTINGS, 0);
    for (settings, why) in REFUSED {
        let (code, said) = cluster.set(settings);
        assert_eq!((code, said.lines().count()), (Some(4), 1), "{settings:?}: {said}");
        assert!(said.contains(why), "{settings:?}: {said}");
    }
    let long = "x".repeat(60_000);
    for setting in ["policy", "log", "topology"] {
        let (code, said) = cluster.set(&[&format!("{setting}={long}")]);
        assert!(code == Some(4) && said.contains(setting) && said.len() < 3_000, "{code:?} {said}");
    }
    let fifo = cluster.dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let (code, said) = cluster.set(&[&format!("topology={}", path(&fifo))]);
    assert_eq!((code, said.contains("not a regular file")), (Some(4), true), "{said}");
    assert_eq!(cluster.set(&["policy"]).0, Some(2));
    assert_eq!(cluster.policy(), "varys:delta=0");
    let (code, said) = cluster.set(&["bypass=0.25", "policy=varys:delta=0"]);
    assert_eq!((code, said.as_str()), (Some(0), "all of it is so already\n"));
}

#[test]
fn a_file_that_is_read_again_holds_over_calls_before_and_is_taken_whole_or_not() {
    let cluster = Cluster::start(SETTINGS, 1);
    assert_eq!(cluster.set(&["policy=dclas", "bypass=0"]).0, Some(0));
    assert_eq!(cluster.set(&["batch-window=2"]).0, Some(0));
    assert_eq!(cluster.policy(), "dclas");
    let write = |text: &str| std::fs::write(cluster.file(), text).unwrap();
    for (text, why) in [
        (
            "[coordinator]\npolicy = \"fair\"\nlink-rate = \"200mbit\"\nlease-ms = 500\n",
            "lease-ms cannot change",
        ),
        ("[coordinator]\npolicy = \"fair\"\nlink-rate = \"200mbt\"\n", "weir.toml:3"),
        ("[coordinator]\npolicy = \"fair\"\nlinkrate = \"200mbit\"\n", "weir.toml:3"),
        ("[coordinator\n", "weir.toml:1"),
    ] {
        write(text);
        cluster.read_again(&cluster.coordinator, "coordinator", "nothing was changed");
        assert!(
            cluster.log("coordinator").lines().last().unwrap().contains(why),
            "{why}: {}",
            cluster.log("coordinator")
        );
        assert_eq!(cluster.policy(), "dclas");
    }
    write("[coordinator]\npolicy = \"fair\"\nlink-rate = \"400mbit\"\n");
    cluster.read_again(&cluster.coordinator, "coordinator", "policy = fair (was dclas)");
    assert_eq!(cluster.policy(), "fair");
    for line in ["bypass = 0.25 (was 0)", "batch-window = 1 (was 2)", "link-rate = 400mbit (was 200mbit)"] {
        assert!(cluster.log("coordinator").contains(line), "{}", cluster.log("coordinator"));
    }
    // The one host has what all have without a rate of their own: 400 Mbit/s, of which 1448 / 1514 and 0.985 are planned with.
    cluster.wait_for(1);
    let rate = cluster.status()["agents"][0]["up_bytes_per_s"].as_f64().unwrap();
    assert!((rate - 4e8 / 8.0 * 1448.0 / 1514.0 * 0.985).abs() < 1.0, "{rate}");
    cluster.read_again(&cluster.coordinator, "coordinator", "were read again");
}

/// Whoever sets one thing does not mean what others have written into files since.
#[test]
fn a_call_changes_what_it_says_and_reads_no_file_that_it_does_not_name() {
    let mut cluster = Cluster::start(SETTINGS, 1);
    let topology = cluster.dir.path().join("topology.toml");
    let write = |rate: &str| {
        std::fs::write(&topology, format!("[[host]]\nname = \"h0\"\nrate = \"{rate}\"\n")).unwrap();
    };
    let rate = |cluster: &Cluster| {
        cluster.wait_for(1);
        cluster.status()["agents"][0]["up_bytes_per_s"].as_f64().unwrap()
            / (1e6 / 8.0 * 1448.0 / 1514.0 * 0.985)
    };
    write("100mbit");
    let named = format!("topology={}", path(&topology));
    let (code, said) = cluster.set(&[&named]);
    assert_eq!((code, said.contains("(was not set)")), (Some(0), true), "{said}");
    assert_eq!(rate(&cluster).round(), 100.0);
    write("500mbit");
    std::fs::write(cluster.file(), "[coordinator]\npolicy = \"fifo\"\nno = 1\n").unwrap();
    let (code, said) = cluster.set(&["bypass=0.1", "policy=dclas"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    assert_eq!((rate(&cluster).round(), cluster.policy().as_str()), (100.0, "dclas"));
    let (code, said) = cluster.set(&[&named]);
    assert_eq!((code, said.contains("read again: 1 hosts")), (Some(0), true), "{said}");
    assert_eq!(rate(&cluster).round(), 500.0);
    let (code, said) = cluster.set(&[&named]);
    assert_eq!((code, said.as_str()), (Some(0), "all of it is so already\n"));
    // All agents are back once the call is answered.
    for policy in ["fair", "dclas", "fair"] {
        assert_eq!(cluster.set(&[&format!("policy={policy}")]).0, Some(0));
        assert_eq!(cluster.status()["agents"].as_array().unwrap().len(), 1, "{policy}");
    }
    cluster.agents.clear();
}

#[test]
fn a_daemon_that_says_it_serves_is_not_ended_by_a_hangup_and_reads_files_by_links() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("real.toml"), SETTINGS).unwrap();
    let link = dir.path().join("weir.toml");
    std::os::unix::fs::symlink("real.toml", &link).unwrap();
    for _ in 0..10 {
        let mut command = weir(&["coordinator", "--config", path(&link), "--listen", "127.0.0.1:0"]);
        let mut process = Process::spawn(command.stderr(Stdio::piped()));
        let mut lines = BufReader::new(process.0.stderr.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("coordinator: varys"));
        kill_process(Pid::from_child(&process.0), Signal::HUP).unwrap();
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("were read again"), "{said}");
    }
}

#[test]
fn an_agent_shows_other_lines_of_its_log_and_goes_on() {
    let cluster = Cluster::start(SETTINGS, 1);
    assert!(!cluster.log("h0").contains("attached to the coordinator"));
    std::fs::write(cluster.file(), format!("{SETTINGS}[agent]\nlog = \"info\"\n")).unwrap();
    cluster.read_again(&cluster.agents[0], "h0", "log = info (was not set)");
    assert_eq!(cluster.set(&["policy=dclas"]).0, Some(0));
    let end = Instant::now() + LIMIT;
    while !cluster.log("h0").contains("attached to the coordinator") {
        assert!(Instant::now() < end, "{}", cluster.log("h0"));
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::write(cluster.file(), format!("{SETTINGS}[agent]\nreport-interval-ms = 7\nlog = \"off\"\n"))
        .unwrap();
    cluster.read_again(&cluster.agents[0], "h0", "report-interval-ms cannot change");
    cluster.wait_for(1);
}

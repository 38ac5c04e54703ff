//! The guide: every command in it is run, on the hosts that it says, which are addresses of this machine here.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::process::Process;

/// How long one line may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The id that the guide has for what `weir register` prints.
const ID: &str = "7531586750359535617";

/// What one block of a page says: where, and which lines.
struct Block {
    host: String,
    lines: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let sections = text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    sections
        .map(|section| {
            let (first, rest) = section.split_once('\n').unwrap();
            let host = first.strip_prefix("# on ").unwrap_or_else(|| panic!("{page}: {section}"));
            Block { host: host.to_owned(), lines: rest.lines().map(str::to_owned).collect() }
        })
        .collect()
}

/// The hosts of a page: a folder for each, and what was exported there.
struct Hosts {
    dir: tempfile::TempDir,
    /// Of the addresses of this page's hosts.
    network: String,
    exported: BTreeMap<String, Vec<String>>,
    id: String,
    daemons: Vec<Process>,
}

impl Hosts {
    fn home(&self, host: &str) -> PathBuf {
        let home = self.dir.path().join(host);
        std::fs::create_dir_all(&home).unwrap();
        home
    }

    /// A line as it is run here.
    fn here(&self, host: &str, line: &str) -> String {
        let spool = self.home(host).join("weir");
        let line = line.replace("/var/lib/weir", spool.to_str().unwrap()).replace("10.0.0.", &self.network);
        line.replace(ID, &self.id)
    }

    fn shell(&self, host: &str, line: &str) -> Command {
        let mut all = self.exported.get(host).cloned().unwrap_or_default();
        all.push(line.to_owned());
        let mut command = Command::new("sh");
        let bin = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.arg("-euc").arg(all.join("\n")).current_dir(self.home(host)).env("PATH", path);
        for variable in ["WEIR_AGENT", "WEIR_COORDINATOR", "WEIR_COFLOW"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a line, and says what it printed. One that fails may come too early: daemons start beside it.
    #[track_caller]
    fn run(&self, host: &str, line: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let output = self.shell(host, line).output().unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let early = ["unreachable", "no agent answers", "no coordinator answers"];
            let is_early = early.iter().any(|reason| said.contains(reason));
            assert!(is_early && Instant::now() < end, "{host}: {line}: {said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn follow(&mut self, Block { host, lines }: &Block) {
        for line in lines {
            let line = self.here(host, line);
            if line.starts_with("weir coordinator ") || line.starts_with("weir agent ") {
                // In place of the shell, so that it ends with this test.
                let mut command = self.shell(host, &format!("exec {line}"));
                self.daemons.push(Process::spawn(command.stderr(Stdio::null())));
                continue;
            }
            if let Some(assigned) = line.strip_prefix("export ") {
                // What a command printed is kept: run again with each later line it would be another.
                let (name, value) = assigned.split_once('=').unwrap();
                let printed = self.run(host, &format!("printf %s {value}"));
                self.exported.entry(host.clone()).or_default().push(format!("export {name}='{printed}'"));
                continue;
            }
            if line == "weir hosts" {
                self.wait_for_all(host);
            }
            let printed = self.run(host, &line);
            if line == "echo $WEIR_COFLOW" {
                self.id = printed.trim().to_owned();
            }
        }
    }

    /// The reader has read on while daemons started.
    #[track_caller]
    fn wait_for_all(&self, host: &str) {
        let agents = self.daemons.len() - 1;
        let end = Instant::now() + LIMIT;
        loop {
            let printed = self.run(host, "weir hosts");
            if printed.lines().skip(1).filter(|row| row.contains(" up ")).count() == agents {
                return;
            }
            assert!(Instant::now() < end, "{printed}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Follows a page; each has addresses of its own.
#[track_caller]
fn follow(page: &str, network: u32) -> Hosts {
    // Tests of other working copies may run beside it.
    let network = format!("127.{}.{}.", 64 + network, std::process::id() % 250);
    let dir = tempfile::tempdir().unwrap();
    let mut hosts = Hosts { dir, network, exported: BTreeMap::new(), id: ID.to_owned(), daemons: Vec::new() };
    let blocks = blocks(page);
    assert!(blocks.len() > 5, "{page}");
    blocks.iter().for_each(|block| hosts.follow(block));
    hosts
}

#[test]
fn the_quick_start_moves_a_block_to_two_hosts() {
    let hosts = follow("quick-start.md", 1);
    let bytes = std::fs::read(hosts.home("a").join("part-a")).unwrap();
    for (host, copy) in [("b", "copy-b"), ("c", "copy-c")] {
        assert!(std::fs::read(hosts.home(host).join(copy)).unwrap() == bytes, "{host}");
    }
    assert_eq!((bytes.len(), hosts.id != ID), (50_000_000, true));
}

#[test]
fn what_the_page_for_operators_says_can_be_done() {
    let hosts = follow("operating.md", 2);
    let status = hosts.run("a", "weir status");
    assert!(status.contains("policy varys") && status.contains("2 agents"), "{status}");
}

#[test]
fn what_the_page_for_applications_says_can_be_done() {
    let hosts = follow("application.md", 3);
    for (here, there) in
        [("m0-r0", "r0-of-m0"), ("m0-r1", "r1-of-m0"), ("model", "model"), ("report", "report")]
    {
        let [put, got] = [("a", here), ("b", there)]
            .map(|(host, file)| std::fs::read(hosts.home(host).join(file)).unwrap());
        assert!(put == got, "{here}");
    }
    let status = hosts.run("a", "weir status --json");
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let records = status["completed"].as_array().unwrap();
    assert_eq!((records.len(), &status["policy"]), (3, &serde_json::json!("dclas")), "{status}");
    let report = records.iter().find(|record| record["name"] == "report").unwrap();
    assert_eq!(
        (&report["admission"], &report["deadline_met"]),
        (&"admitted".into(), &true.into()),
        "{report}"
    );
}

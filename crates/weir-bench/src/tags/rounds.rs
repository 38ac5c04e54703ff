//! Processes that load programs are ended again and again: what remains.

use super::TagsArgs;
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_console::Failure;
use weir_ebpf::{DEFAULT_DSCP, loaded};
use weir_testbed::live::RunFolder;
use weir_testbed::{Bed, BedLinks, HOST_LINK, Place, Queues};

const HOST: Place = Place::Host(0);
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(5);
/// Settings that a program could have changed.
const SETTINGS: [&str; 2] = ["/proc/sys/net/ipv4", "/proc/sys/net/core"];

/// Which command loads the programs of a round.
#[derive(Clone, Copy, Debug)]
enum Who {
    Tag,
    TagWithControls,
    Mark,
    Agent,
}

impl Who {
    const ALL: [Who; 4] = [Who::Tag, Who::TagWithControls, Who::Mark, Who::Agent];

    fn arguments(self, bed: &Bed, spool: &Path) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        match self {
            Who::Tag => words(&["tag", "--interface", HOST_LINK]),
            Who::TagWithControls => words(&["tag", "--interface", HOST_LINK, "--controls"]),
            Who::Mark => words(&["mark", "--interface", &bed.switch_port(0)]),
            Who::Agent => {
                let listen = format!("{}:7071", bed.address(0));
                let spool = spool.to_string_lossy();
                words(&[
                    "agent",
                    "--host",
                    "0",
                    "--interface",
                    "none",
                    "--listen",
                    &listen,
                    "--tag",
                    HOST_LINK,
                    "--controls",
                    "--spool",
                    &spool,
                ])
            }
        }
    }
}

/// What must be as it was.
#[derive(Debug, PartialEq, Eq)]
struct State {
    programs: Vec<(&'static str, u32)>,
    /// By what they are of.
    settings: BTreeMap<String, String>,
}

impl State {
    fn of(bed: &Bed) -> Result<State> {
        let mut settings = bed.run_at(HOST, || settings("host"))??;
        settings.append(&mut bed.run_in_switch(|| settings_and_qdiscs("switch"))??);
        settings.append(&mut bed.run_at(HOST, || qdiscs("host"))??);
        Ok(State { programs: loaded().into_iter().collect(), settings })
    }

    /// What differs, if anything does.
    fn difference(&self, now: &State) -> Option<String> {
        let program = now.programs.iter().find(|program| !self.programs.contains(program));
        let setting = now.settings.iter().find(|(name, value)| self.settings.get(*name) != Some(value));
        let gone = self.settings.keys().find(|name| !now.settings.contains_key(*name));
        program
            .map(|(kind, id)| format!("{kind} {id}"))
            .or_else(|| setting.map(|(name, value)| format!("{name}: {value}")))
            .or_else(|| gone.map(|name| format!("{name} is gone")))
    }
}

fn settings_and_qdiscs(whose: &str) -> Result<BTreeMap<String, String>> {
    let mut all = settings(whose)?;
    all.append(&mut qdiscs(whose)?);
    Ok(all)
}

/// Those of the network namespace of this thread that can be read.
fn settings(whose: &str) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for folder in SETTINGS {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if let Ok(value) = std::fs::read_to_string(&path) {
                all.insert(format!("{whose} {}", path.display()), value);
            }
        }
    }
    ensure!(
        all.keys().any(|name| name.ends_with("tcp_available_congestion_control")),
        "settings of TCP cannot be read"
    );
    Ok(all)
}

fn qdiscs(whose: &str) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for what in ["qdisc", "class", "filter"] {
        let output = Command::new("tc").args([what, "show"]).output().context("tc cannot be started")?;
        all.insert(format!("{whose} tc {what}"), String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Ok(all)
}

pub(super) fn print(args: &TagsArgs) -> Result<(), Failure> {
    let links = BedLinks { queues: Queues::ByDscp(DEFAULT_DSCP), ..BedLinks::equal(2, 1_000_000_000) };
    let bed = Bed::create(&links)?;
    let dir = RunFolder::create()?;
    let before = State::of(&bed)?;
    let (mut killed, mut left) = (0, Vec::new());
    for round in 0..args.rounds {
        let who = Who::ALL[round as usize % Who::ALL.len()];
        // Each of them in turn, ended in one of its rounds and killed in the next.
        let signal =
            if (round as usize / Who::ALL.len()).is_multiple_of(2) { Signal::TERM } else { Signal::KILL };
        killed += u32::from(signal == Signal::KILL);
        one_round(&bed, who, signal, &dir.path().join(format!("spool-{round}")))
            .with_context(|| format!("round {round}, {who:?}"))?;
        if let Some(what) = settled(&bed, &before)? {
            left.push(format!("round {round}, {who:?}, {signal:?}: {what}"));
        }
    }
    println!(
        "{} rounds, {killed} by SIGKILL: something was left in {}{}",
        args.rounds,
        left.len(),
        left.iter().map(|line| format!("\n  {line}")).collect::<String>()
    );
    if left.is_empty() { Ok(()) } else { Err(Failure::Run(anyhow::anyhow!("something was left behind"))) }
}

fn one_round(bed: &Bed, who: Who, signal: Signal, spool: &Path) -> Result<()> {
    let before = loaded();
    let program = std::env::current_exe()?;
    let arguments = who.arguments(bed, spool);
    let prepared = |mut command: Command| {
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let child = match who {
        // A process is in the namespace of the thread that starts it.
        Who::Mark => bed.run_in_switch(|| prepared(Command::new(&program)).spawn())??,
        _ => bed.spawn(prepared(bed.command(HOST, &program)?))?,
    };
    let mut child = Owned(child);
    let least = if matches!(who, Who::TagWithControls) { 3 } else { 1 };
    let end = Instant::now() + PATIENCE;
    // It is ended when all is loaded, and now and then while it is loading.
    while loaded().difference(&before).filter(|(kind, _)| *kind == "program").count() < least {
        ensure!(child.0.try_wait()?.is_none(), "it has ended by itself");
        ensure!(Instant::now() < end, "it loads nothing within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
    kill_process(Pid::from_child(&child.0), signal)?;
    while child.0.try_wait()?.is_none() {
        ensure!(Instant::now() < end, "it does not end");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A process that does not outlive this value.
struct Owned(Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is left once the kernel had time to free what nothing uses.
fn settled(bed: &Bed, before: &State) -> Result<Option<String>> {
    let end = Instant::now() + PATIENCE;
    loop {
        let left = before.difference(&State::of(bed)?);
        if left.is_none() || Instant::now() > end {
            return Ok(left);
        }
        std::thread::sleep(LOOK);
    }
}

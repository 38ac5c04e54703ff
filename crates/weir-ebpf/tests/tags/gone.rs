//! What remains of a tagger: nothing, whether it was dropped or its process killed.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_ebpf::{Config, DEFAULT_DSCP, Tagger, Unhinted, loaded};

use crate::hosts::{Hosts, SENDER, on_two_hosts, thresholds};

/// Set in a process that holds a tagger until it is killed.
const HOLDS: &str = "WEIR_TEST_HOLDS_A_TAGGER";
pub(crate) const READY: &str = "attached";
/// The kernel frees programs a moment after their last user is gone.
const STEPS: u32 = 200;
const STEP: Duration = Duration::from_millis(50);

pub(crate) fn wait_until_gone(ids: &BTreeSet<(&'static str, u32)>) -> Result<()> {
    for _ in 0..STEPS {
        if loaded().is_disjoint(ids) {
            return Ok(());
        }
        sleep(STEP);
    }
    anyhow::bail!("still there: {:?}", loaded().intersection(ids).collect::<Vec<_>>())
}

fn config() -> Config {
    Config { unhinted: Unhinted::Unknown, ..Config::new(thresholds(&[1000])) }
}

/// A queue discipline for classifiers, which the program does without.
fn has_clsact(hosts: &Hosts) -> Result<bool> {
    Ok(hosts.run(SENDER, "tc", "qdisc show dev eth0")?.contains("clsact"))
}

#[test]
fn a_tagger_that_is_dropped_leaves_nothing_and_tags_nothing_more() {
    on_two_hosts("dropped", |hosts| {
        let before = loaded();
        let tagger = hosts.tagger(&config())?;
        let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
        // The program and three tables.
        ensure!(own.len() == 4, "{own:?}");
        let mut pair = hosts.connect(hosts.v4())?;
        pair.send(5000)?;
        drop(tagger);
        let capture = hosts.capture()?;
        pair.send(5000)?;
        let packets = capture.flow(pair.port()?, 5000)?;
        ensure!(packets.iter().all(|packet| packet.dscp == 0), "{packets:?}");
        ensure!(!has_clsact(hosts)?);
        wait_until_gone(&own)
    });
}

#[test]
fn a_tagger_whose_process_is_killed_leaves_nothing() {
    if env::var_os(HOLDS).is_some() {
        return hold();
    }
    on_two_hosts("killed", |hosts| {
        for _ in 0..5 {
            killed(hosts)?;
        }
        Ok(())
    });
}

/// The process that is killed.
fn hold() {
    let tagger = Tagger::attach("eth0", &config()).map_err(|error| error.to_string());
    println!("{}", if tagger.is_ok() { READY } else { "refused" });
    sleep(Duration::from_secs(60));
}

/// Starts the test `name` of this binary with `variable` set, and waits until it holds something.
pub(crate) fn held(mut command: Command, name: &str, variable: &str) -> Result<Child> {
    command.args([name, "--exact", "--nocapture"]).env(variable, "1").stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let lines = BufReader::new(child.stdout.take().context("output of the child")?).lines();
    for line in lines {
        if line?.ends_with(READY) {
            return Ok(child);
        }
    }
    anyhow::bail!("the child attached nothing")
}

fn killed(hosts: &Hosts) -> Result<()> {
    let before = loaded();
    let name = "gone::a_tagger_whose_process_is_killed_leaves_nothing";
    let mut child = held(hosts.bed().command(SENDER, env::current_exe()?)?, name, HOLDS)?;
    let own: BTreeSet<_> = loaded().difference(&before).copied().collect();
    ensure!(own.len() == 4, "{own:?}");
    // A flow that is hinted and goes on survives its tagger.
    let mut pair = hosts.connect(hosts.v4())?;
    let capture = hosts.capture()?;
    pair.send(500)?;
    ensure!(capture.flow(pair.port()?, 500)?.iter().all(|packet| packet.dscp == DEFAULT_DSCP[1]));
    child.kill()?;
    child.wait()?;
    wait_until_gone(&own)?;
    let capture = hosts.capture()?;
    pair.send(500)?;
    ensure!(capture.flow(pair.port()?, 500)?.iter().all(|packet| packet.dscp == 0));
    ensure!(!has_clsact(hosts)?);
    // The interface is free again.
    hosts.tagger(&config()).map(drop)
}

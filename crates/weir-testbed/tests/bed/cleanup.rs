//! Nothing of a bed remains, however its owner ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, bail, ensure};
use weir_testbed::live::{RunFolder, end_on_signals};
use weir_testbed::{Bed, BedLinks, Place};

use crate::rights::with_rights;

/// Removal happens in the background, usually within half a second. This long is a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Set in the process that plays the owner to be killed.
const OWNER: &str = "WEIR_TEST_OWNER";

/// A shell with two sleepers, one of them in a session of its own; it prints the numbers of all three.
const FAMILY: &str = "exec 2>/dev/null; sleep 90 & a=$!; setsid sleep 90 & echo $$ $a $!; wait";

fn bed() -> Result<Bed> {
    Ok(Bed::create(&BedLinks::equal(3, 100_000_000))?)
}

/// Starts [`FAMILY`] on host 0, from a thread that ends at once.
fn start_family(bed: &Bed) -> Result<Vec<i32>> {
    let mut command = bed.command(Place::Host(0), "sh")?;
    command.args(["-c", FAMILY]).stdout(Stdio::piped());
    let child = thread::scope(|scope| scope.spawn(|| bed.spawn(command)).join());
    let child = child.map_err(|_| anyhow::anyhow!("the starting thread panicked"))??;
    let mut line = String::new();
    BufReader::new(child.stdout.context("piped")?).read_line(&mut line)?;
    numbers(&line)
}

fn numbers(line: &str) -> Result<Vec<i32>> {
    let numbers: Result<Vec<i32>, _> = line.split_ascii_whitespace().map(str::parse).collect();
    let numbers = numbers.with_context(|| format!("process numbers, not {line:?}"))?;
    ensure!(numbers.len() == 3, "three process numbers, not {line:?}");
    Ok(numbers)
}

fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z') && !rest.starts_with('X'))
}

fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !condition()? {
        if Instant::now() > end {
            bail!("waited in vain until {what}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// True if the namespace in which `table` (its /proc/net/dev) was opened still has the link to the switch.
/// The open file keeps that namespace, but not the switch at the other end.
fn has_link(table: &mut File) -> Result<bool> {
    let mut text = String::new();
    table.rewind()?;
    table.read_to_string(&mut text)?;
    ensure!(text.contains("lo:"), "not a table of links: {text}");
    Ok(text.contains("eth0:"))
}

#[test]
fn dropped_bed_takes_links_and_processes_along() {
    with_rights("cleanup::dropped_bed_takes_links_and_processes_along", || {
        let bed = bed()?;
        let open_table = || File::open("/proc/thread-self/net/dev");
        let mut host = bed.run_at(Place::Host(1), open_table)??;
        let mut control = bed.run_at(Place::Control, open_table)??;
        let family = start_family(&bed)?;
        let leftover = bed.command(Place::Host(0), "true")?;
        ensure!(has_link(&mut host)? && has_link(&mut control)?);
        ensure!(family.iter().all(|pid| is_running(*pid)), "the thread that asked for them is long gone");
        drop(bed);
        wait_until("all processes are gone", || Ok(!family.iter().any(|pid| is_running(*pid))))?;
        wait_until("the links are gone", || Ok(!has_link(&mut host)? && !has_link(&mut control)?))?;
        let error = { leftover }.spawn().err().context("a command of a bed that is gone must not run")?;
        ensure!(error.kind() == std::io::ErrorKind::NotFound, "{error}");
        Ok(())
    });
}

/// The process of [`owner_to_be_killed`], the family that it started, and its folder of a run.
fn start_owner() -> Result<(Child, Vec<i32>, PathBuf)> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["cleanup::owner_to_be_killed", "--exact", "--nocapture", "--test-threads=1"]);
    let mut owner = command.env(OWNER, "1").stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(owner.stdout.take().context("piped")?).lines();
    loop {
        let line = lines.next().context("the owner ended early")??;
        // The harness prints the test's name in front, on the same line.
        if let Some((_, said)) = line.split_once("FAMILY ") {
            let (family, folder) = said.split_once(" FOLDER ").context("a folder")?;
            return Ok((owner, numbers(family)?, PathBuf::from(folder)));
        }
    }
}

/// As on SIGTERM to `weir bench spark shuffles`: executors are grandchildren, and write into the folder.
#[test]
fn an_owner_that_a_signal_ends_takes_grandchildren_and_its_folder_along() {
    with_rights("cleanup::an_owner_that_a_signal_ends_takes_grandchildren_and_its_folder_along", || {
        let (mut owner, family, folder) = start_owner()?;
        ensure!(folder.is_dir() && family.iter().all(|pid| is_running(*pid)));
        let pid = rustix::process::Pid::from_child(&owner);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = owner.wait()?;
        ensure!(status.code() == Some(128 + 15), "{status}");
        ensure!(!folder.exists(), "{} stays", folder.display());
        // Without another bed that would look for them.
        wait_until("all processes are gone", || Ok(!family.iter().any(|pid| is_running(*pid))))
    });
}

#[test]
fn killed_owner_leaves_nothing() {
    with_rights("cleanup::killed_owner_leaves_nothing", || {
        let (mut owner, family, folder) = start_owner()?;
        let mut host = File::open(format!("/proc/{}/net/dev", family[0]))?;
        ensure!(has_link(&mut host)?);
        ensure!(Bed::sweep_stale() == 0, "the owner is alive: nothing is stale");
        ensure!(family.iter().all(|pid| is_running(*pid)));

        owner.kill()?;
        owner.wait()?;
        wait_until("the links are gone", || Ok(!has_link(&mut host)?))?;
        wait_until("the direct child is gone", || Ok(!is_running(family[0])))?;
        // Its children are nobody's: the next owner of a bed finds them.
        drop(bed()?);
        wait_until("the grandchildren are gone", || Ok(!family.iter().any(|pid| is_running(*pid))))?;
        // And the next run its folder.
        drop(RunFolder::create()?);
        ensure!(!folder.exists(), "{} stays", folder.display());
        Ok(())
    });
}

/// Not a test: what [`start_owner`] runs in another process.
#[test]
fn owner_to_be_killed() -> Result<()> {
    if env::var_os(OWNER).is_none() {
        return Ok(());
    }
    end_on_signals()?;
    let (bed, folder) = (bed()?, RunFolder::create()?);
    let family: Vec<String> = start_family(&bed)?.iter().map(i32::to_string).collect();
    println!("FAMILY {} FOLDER {}", family.join(" "), folder.path().display());
    thread::sleep(Duration::from_secs(120));
    bail!("nobody killed the owner")
}

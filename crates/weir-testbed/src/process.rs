//! Processes inside a bed: how they start, and how none outlives its bed.
//!
//! Four nets, from the usual to the rare:
//! 1. the kernel kills a direct child when the thread that started it ends (`PR_SET_PDEATHSIG`);
//! 2. dropping the bed kills every process in its namespaces, grandchildren too;
//! 3. where a signal ends the owner, [`kill_own`] does. They carry the owner's name in their environment
//!    ([`OWNER_VARIABLE`]);
//! 4. [`sweep_stale`] kills what none of these reached: grandchildren of an owner that was killed.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::{fs, io, thread};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::namespace::NamespaceRef;

/// Environment variable of every process in a bed: who owns the bed.
const OWNER_VARIABLE: &str = "WEIR_BED_OWNER";

/// A process, named so that no later one can be taken for it: number, start time in clock ticks since
/// boot, and the namespace in which the number counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessName {
    pid_namespace: u64,
    pid: i32,
    start_ticks: u64,
}

impl ProcessName {
    pub(crate) fn of_this_process() -> io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_pid();
        let start_ticks = parse_start_ticks(&fs::read_to_string("/proc/self/stat")?)
            .ok_or_else(|| io::Error::other("/proc/self/stat has no start time"))?;
        Ok(Self { pid_namespace: own_pid_namespace()?, pid, start_ticks })
    }

    pub(crate) fn to_text(&self) -> String {
        format!("{}-{}-{}", self.pid_namespace, self.pid, self.start_ticks)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let name = Self {
            pid_namespace: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            start_ticks: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(name)
    }

    /// True if the process surely is no more. A name from another pid namespace cannot be judged here, nor
    /// a process that this user may not see.
    pub(crate) fn is_dead(&self) -> bool {
        // There its number is another process's, or none's: nothing can be told of it from here.
        if own_pid_namespace().ok() != Some(self.pid_namespace) {
            return false;
        }
        match fs::read_to_string(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => parse_start_ticks(&stat) != Some(self.start_ticks),
            // /proc may hide processes of other users: that it cannot be read proves nothing, only ESRCH does.
            Err(_) => Pid::from_raw(self.pid)
                .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH)),
        }
    }
}

fn own_pid_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Start time in a line of `/proc/PID/stat`; `None` for what remains of a dead process (zombie).
///
/// Fields after the name, which stands in brackets and may itself contain brackets and blanks: the state
/// is the first of them, the start time the twentieth (fields 3 and 22 of proc(5)).
fn parse_start_ticks(stat: &str) -> Option<u64> {
    // The last bracket: the name in front of it may contain brackets itself.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    // The state is field 3 and the start is field 22, in ticks since the machine's. A zombie (Z, X)
    // runs nothing any more, and counts as dead.
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

/// A command that runs in `namespace` and dies with the thread that starts it.
pub(crate) fn command_in(namespace: NamespaceRef, program: &OsStr) -> io::Result<Command> {
    let owner = ProcessName::of_this_process()?;
    let mut command = Command::new(program);
    command.env(OWNER_VARIABLE, owner.to_text());
    // SAFETY: between fork and exec the closure makes three system calls and uses atomics; it neither
    // allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The owner may have died before the line above took effect.
            let parent = rustix::process::getppid();
            if parent.map(Pid::as_raw_pid) != Some(owner.pid) {
                return Err(Errno::SRCH.into());
            }
            namespace.enter()
        });
    }
    Ok(command)
}

/// A command in the namespaces of this process that dies with the thread that starts it.
pub(crate) fn command_here(program: &OsStr) -> io::Result<Command> {
    let owner = ProcessName::of_this_process()?;
    let mut command = Command::new(program);
    // SAFETY: between fork and exec the closure makes two system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The owner may have died before the line above took effect.
            let parent = rustix::process::getppid();
            (parent.map(Pid::as_raw_pid) == Some(owner.pid)).then_some(()).ok_or(Errno::SRCH.into())
        });
    }
    Ok(command)
}

/// A thread that starts processes, so that they live as long as it does and not as long as whichever
/// thread asked.
#[derive(Debug)]
pub(crate) struct Spawner {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<thread::JoinHandle<()>>,
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

impl Spawner {
    pub(crate) fn start() -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<Request>();
        let thread = thread::Builder::new().name("weir-bed-spawner".into()).spawn(move || {
            for (mut command, reply) in inbox {
                // A caller that stopped waiting does not exist: `spawn` blocks until the answer is there.
                let _ = reply.send(command.spawn());
            }
        })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, answer) = mpsc::channel();
        let gone = || io::Error::other("the bed's spawner thread has ended");
        self.requests.as_ref().ok_or_else(gone)?.send((command, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Ends the thread's loop; the kernel then kills the processes that the thread started (`PR_SET_PDEATHSIG`).
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Kills every process whose network namespace is one of `labels` (see `Namespace::label`), but never the
/// calling one. Returns how many.
pub(crate) fn kill_inside(labels: &[Vec<u8>]) -> usize {
    kill_where(|pid| network_label(pid).is_some_and(|label| labels.contains(&label)))
}

pub(crate) fn sweep_stale() -> usize {
    let own_network = network_label(rustix::process::getpid().as_raw_pid());
    kill_where(|pid| owner_of(pid).is_some_and(|owner| owner.is_dead()) && network_label(pid) != own_network)
}

/// Kills every process that was started in a bed of this process, and their children; it has no more of them once this returns 0.
pub(crate) fn kill_own() -> usize {
    let Ok(own) = ProcessName::of_this_process() else { return 0 };
    let own_network = network_label(rustix::process::getpid().as_raw_pid());
    kill_where(|pid| owner_of(pid).as_ref() == Some(&own) && network_label(pid) != own_network)
}

/// The owner of the bed in which a process was started, if it was started in one and may be asked.
fn owner_of(pid: i32) -> Option<ProcessName> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = format!("{OWNER_VARIABLE}=");
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(prefix.as_bytes()))
        .and_then(|value| ProcessName::from_text(std::str::from_utf8(value).ok()?))
}

fn network_label(pid: i32) -> Option<Vec<u8>> {
    let link = rustix::fs::readlink(format!("/proc/{pid}/ns/net"), Vec::new()).ok()?;
    Some(link.into_bytes())
}

/// Kills all other processes that satisfy `condition`. The condition is asked again once the process is
/// held by a file, so that a number reused in between is not hit.
fn kill_where(condition: impl Fn(i32) -> bool) -> usize {
    let own = rustix::process::getpid().as_raw_pid();
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let candidates = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own && condition(*pid));
    let mut killed = 0;
    for pid in candidates {
        let Some(Ok(handle)) =
            Pid::from_raw(pid).map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
        else {
            continue;
        };
        // The pidfd names one process for good: what is asked of the number now is true of the process that the signal hits.
        if condition(pid) && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok() {
            killed += 1;
        }
    }
    killed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_survives_text() {
        let name = ProcessName { pid_namespace: 4_026_531_836, pid: 77, start_ticks: 123_456 };
        assert_eq!(ProcessName::from_text(&name.to_text()), Some(name));
        assert_eq!(ProcessName::from_text("1-2"), None);
        assert_eq!(ProcessName::from_text("1-2-3-4"), None);
        assert_eq!(ProcessName::from_text("a-b-c"), None);
    }

    #[test]
    fn start_time_is_found_behind_a_nasty_name() {
        let rest = "1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 987 0 0";
        assert_eq!(parse_start_ticks(&format!("5 (a) b (c) S {rest}")), Some(987));
        assert_eq!(parse_start_ticks(&format!("5 (a) Z {rest}")), None);
    }

    #[test]
    fn only_a_process_known_to_be_gone_is_dead() {
        let alive = ProcessName::of_this_process().unwrap();
        assert!(!alive.is_dead());
        let earlier = ProcessName { start_ticks: alive.start_ticks - 1, ..alive.clone() };
        assert!(earlier.is_dead(), "same number, other start time");
        let elsewhere = ProcessName { pid_namespace: alive.pid_namespace + 1, ..earlier };
        assert!(!elsewhere.is_dead(), "a number of another pid namespace means nothing here");
    }
}

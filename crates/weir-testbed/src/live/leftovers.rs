//! Nothing of a run outlives it: its folder (blocks, spools) and its processes.
//!
//! A run that ends, well or not, drops both. Signals that end a program by default do not: for them
//! [`end_on_signals`] does it. After SIGKILL the kernel ends the children, and the folder stays until the next run finds
//! it: its name says whose it was ([`ProcessName`]), and that this process is no more.
//!
//! A signal comes at any moment. Therefore a folder or a process is made, noted, ended and forgotten under one lock:
//! whoever ends everything sees all there is, and nothing comes after.

use crate::process::ProcessName;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How folders of runs begin; then the owner, then what makes the name unique.
const PREFIX: &str = "weir-live-";
/// How long killed processes may take until the kernel has ended them, before their folder is removed anyway.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether they have ended.
const END_STEP: Duration = Duration::from_millis(1);

/// What runs of a process have at present.
struct Leftovers(Mutex<Present>);

#[derive(Default)]
struct Present {
    folders: Vec<PathBuf>,
    children: Vec<Pid>,
}

/// Those of this process.
static LEFTOVERS: Leftovers = Leftovers(Mutex::new(Present { folders: Vec::new(), children: Vec::new() }));

impl Leftovers {
    fn present(&self) -> MutexGuard<'_, Present> {
        // What a thread that panicked left there is as good as what it found.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child that a signal ends too. Were it noted after it runs, a signal in between would remove the folder
    /// and the child make it again.
    fn start_child(&self, start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
        let mut present = self.present();
        let child = start()?;
        present.children.extend(pid_of(&child));
        Ok(child)
    }

    /// Ends a child. Once it was waited for its number may be another process's, so it is forgotten with that.
    fn end_child(&self, child: &mut Child) {
        let mut present = self.present();
        let _ = child.kill();
        let _ = child.wait();
        present.children.retain(|&other| Some(other) != pid_of(child));
    }

    /// Ends all processes of runs, then removes their folders: the other way round they would write into them again.
    /// While the guard is there, the run, which finds its processes gone, cannot go on to start others.
    fn end_all(&self) -> MutexGuard<'_, Present> {
        let present = self.present();
        for child in &present.children {
            let _ = rustix::process::kill_process(*child, Signal::KILL);
        }
        // A killed process may be writing until the kernel gets to it.
        let limit = Instant::now() + END_LIMIT;
        for child in &present.children {
            while !has_ended(*child) && Instant::now() < limit {
                std::thread::sleep(END_STEP);
            }
        }
        for folder in &present.folders {
            let _ = std::fs::remove_dir_all(folder);
        }
        present
    }
}

pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// Whether a child is no more, in none of its threads. It may still be waited for.
fn has_ended(child: Pid) -> bool {
    let ask = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    match rustix::process::waitid(WaitId::Pid(child), ask) {
        Ok(status) => status.is_some(),
        Err(error) => error != Errno::INTR,
    }
}

/// See [`Leftovers::start_child`].
pub(super) fn start_child(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    LEFTOVERS.start_child(start)
}

/// See [`Leftovers::end_child`].
pub(super) fn end_child(child: &mut Child) {
    LEFTOVERS.end_child(child);
}

/// The folder of one run. Dropping removes it.
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// A fresh one, after those of dead runs were removed.
    pub(super) fn create() -> io::Result<RunFolder> {
        let place = std::env::temp_dir();
        remove_dead(&place);
        let owner = ProcessName::of_this_process()?.to_text();
        let mut present = LEFTOVERS.present();
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{owner}-")).tempdir_in(&place);
        let dir =
            dir.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.display())))?;
        let dir = dir.keep();
        present.folders.push(dir.clone());
        Ok(RunFolder(dir))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let mut present = LEFTOVERS.present();
        let _ = std::fs::remove_dir_all(&self.0);
        present.folders.retain(|folder| *folder != self.0);
    }
}

/// Removes folders whose owner surely is no more. What cannot be removed (another user's) stays.
fn remove_dead(place: &Path) {
    let Ok(entries) = std::fs::read_dir(place) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.rsplit_once('-'));
        let owner = owner.and_then(|(owner, _)| ProcessName::from_text(owner));
        // A symlink of such a name is nobody's folder.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && owner.is_some_and(|owner| owner.is_dead()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP end the processes of runs and remove their folders, then this process, with
/// 128 + the signal's number as a shell reports it.
///
/// # Errors
/// The operating system gives no thread, or no signals.
pub fn end_on_signals() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [mut interrupt, mut terminate, mut hangup] = {
        let _inside = runtime.enter();
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]
    };
    let wait = move || {
        let number = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => Signal::INT,
                _ = terminate.recv() => Signal::TERM,
                _ = hangup.recv() => Signal::HUP,
            }
        });
        let _present = LEFTOVERS.end_all();
        std::process::exit(128 + number.as_raw());
    };
    std::thread::Builder::new().name("weir-live-signals".into()).spawn(wait).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_dead_run_is_removed_and_that_of_a_live_one_stays() {
        let place = tempfile::tempdir().expect("a folder");
        let own = ProcessName::of_this_process().expect("a name").to_text();
        // The same number with another start: a process that is no more.
        let (head, ticks) = own.rsplit_once('-').expect("three parts");
        let dead = format!("{head}-{}", ticks.parse::<u64>().expect("ticks") + 1);
        let names =
            [format!("{PREFIX}{own}-aaaaaa"), format!("{PREFIX}{dead}-bbbbbb"), "weir-live-x".to_owned()];
        for name in &names {
            std::fs::create_dir_all(place.path().join(name).join("spool")).expect("a folder");
        }
        remove_dead(place.path());
        let left = names.map(|name| place.path().join(name).exists());
        assert_eq!(left, [true, false, true]);
    }

    #[test]
    fn a_run_that_is_ended_while_it_starts_a_process_does_not_get_its_folder_back() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        std::fs::create_dir(&folder).expect("a folder");
        let leftovers =
            Leftovers(Mutex::new(Present { folders: vec![folder.clone()], children: Vec::new() }));
        let (runs, signal) = std::sync::mpsc::channel();
        let mut child = std::thread::scope(|scope| {
            let starting = scope.spawn(|| {
                leftovers.start_child(|| {
                    let mut command = std::process::Command::new("sh");
                    command.args(["-c", "while mkdir -p \"$0/spool\"; do :; done"]).arg(&folder);
                    let child = command.spawn()?;
                    // It runs, and nobody else knows it yet.
                    runs.send(()).expect("somebody waits");
                    std::thread::sleep(Duration::from_millis(200));
                    Ok(child)
                })
            });
            signal.recv().expect("a process runs");
            drop(leftovers.end_all());
            starting.join().expect("no panic").expect("a process")
        });
        let back = folder.exists();
        leftovers.end_child(&mut child);
        assert!(!back, "the process made the folder again");
        assert!(leftovers.present().children.is_empty());
    }
}

//! Nothing of a run outlives it: its folder (blocks, spools) and its processes.
//!
//! A run that ends, well or not, drops both. Signals that end a program by default do not: for them
//! [`end_on_signals`] does it. After SIGKILL the kernel ends the children, and the folder stays until the next run finds
//! it: its name says whose it was ([`ProcessName`]), and that this process is no more.

use crate::process::ProcessName;
use rustix::process::{Pid, Signal};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tempfile::TempDir;

/// How folders of runs begin; then the owner, then what makes the name unique.
const PREFIX: &str = "weir-live-";

/// What the present runs of this process have.
#[derive(Default)]
struct Present {
    folders: Vec<PathBuf>,
    children: Vec<Pid>,
}

static PRESENT: Mutex<Present> = Mutex::new(Present { folders: Vec::new(), children: Vec::new() });

fn present() -> MutexGuard<'static, Present> {
    // What a thread that panicked left there is as good as what it found.
    PRESENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folder of one run. Dropping removes it.
pub(super) struct RunFolder(TempDir);

impl RunFolder {
    /// A fresh one, after those of dead runs were removed.
    pub(super) fn create() -> io::Result<RunFolder> {
        let place = std::env::temp_dir();
        remove_dead(&place);
        let owner = ProcessName::of_this_process()?.to_text();
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{owner}-")).tempdir_in(&place);
        let dir =
            dir.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.display())))?;
        present().folders.push(dir.path().to_owned());
        Ok(RunFolder(dir))
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        present().folders.retain(|folder| folder != self.0.path());
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

/// From now on a signal ends this child too.
pub(super) fn note_child(child: Option<Pid>) {
    present().children.extend(child);
}

/// The child is about to be waited for: its number may soon be another process's.
pub(super) fn forget_child(child: Option<Pid>) {
    present().children.retain(|other| Some(*other) != child);
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
        end_all();
        std::process::exit(128 + number.as_raw());
    };
    std::thread::Builder::new().name("weir-live-signals".into()).spawn(wait).map(drop)
}

/// Ends all processes of runs, then removes their folders: the other way round they would write into them again.
fn end_all() {
    // Held to the end: the run, which finds its processes gone, cannot go on to start others.
    let present = present();
    for child in &present.children {
        let _ = rustix::process::kill_process(*child, Signal::KILL);
    }
    for folder in &present.folders {
        // A killed process may be writing until the kernel gets to it.
        for _ in 0..50 {
            if std::fs::remove_dir_all(folder).is_ok() || !folder.exists() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
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
}

//! Nothing of a command outlives it: folders of runs (blocks, spools), processes, and files that are not complete.
//!
//! A command that ends, well or not, drops all of them. Signals that end a program by default do not: for them
//! [`end_on_signals`] does it. After SIGKILL the kernel ends the children, and a folder stays until the next run finds
//! it: its name says whose it was ([`ProcessName`]), and that this process is no more. Of unfinished files that is not
//! done: they lie where the user wants them, maybe on a disk of several machines, on each of which that name means
//! another process.
//!
//! A signal comes at any moment. Therefore a folder, a file or a process is made, noted, ended and forgotten under one
//! lock: the thread that ends everything sees all there is, and nothing comes after.

use crate::process::ProcessName;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How the names of unfinished files begin, which are hidden.
const UNFINISHED: &str = ".weir-";
/// How folders of runs begin; then the owner, then what makes the name unique.
const PREFIX: &str = "weir-live-";
/// Bytes of a Unix socket's path (`sun_path`), without the zero at its end;
const MAX_SOCKET_PATH: usize = 107;
/// of what of it stands behind a run's folder, for any number of hosts;
const SOCKET_BYTES: usize = "/spool-1000000/agent.sock".len();
/// and of what makes a folder's name unique, with the slash before the name and the hyphen.
const UNIQUE_BYTES: usize = 8;
/// How long killed processes may take until the kernel has ended them, before their folder is removed anyway.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How often it is looked whether they have ended.
const END_STEP: Duration = Duration::from_millis(1);

/// What a process has at present that must not outlive it.
struct Leftovers(Mutex<Present>);

#[derive(Default)]
struct Present {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    children: Vec<Pid>,
    /// What else is to be done before the process ends.
    last: Vec<Box<dyn FnOnce() + Send>>,
}

/// Those of this process.
static LEFTOVERS: Leftovers = Leftovers(Mutex::new(Present {
    folders: Vec::new(),
    files: Vec::new(),
    children: Vec::new(),
    last: Vec::new(),
}));

impl Leftovers {
    fn present(&self) -> MutexGuard<'_, Present> {
        // The lock of a thread that panicked is taken too: the lists that it left are as good as those that it found.
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

    /// Ends all processes, `others` after those that are noted, then removes folders and files: the other way round they would write into them
    /// again. While the guard is there, a run, which finds its processes gone, cannot go on to start others.
    fn end_all(&self, others: impl Fn() -> usize) -> MutexGuard<'_, Present> {
        let mut present = self.present();
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
        while others() > 0 && Instant::now() < limit {
            std::thread::sleep(END_STEP);
        }
        for folder in &present.folders {
            let _ = std::fs::remove_dir_all(folder);
        }
        for file in &present.files {
            let _ = std::fs::remove_file(file);
        }
        present.last.drain(..).for_each(|last| last());
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

/// A process of this program or another one, which signals end ([`end_on_signals`]), and dropping.
#[derive(Debug)]
pub struct OwnChild(Child);

impl OwnChild {
    /// A command whose process does not outlive the thread that starts it, however that ends.
    ///
    /// # Errors
    /// `/proc` does not say who this process is.
    pub fn command(program: &Path) -> io::Result<Command> {
        crate::process::command_here(program.as_os_str())
    }

    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<OwnChild> {
        start_child(|| command.spawn()).map(OwnChild)
    }

    /// How it ended, if it has. From then on its number may be another process's.
    ///
    /// # Errors
    /// The operating system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut present = LEFTOVERS.present();
        let status = self.0.try_wait()?;
        if status.is_some() {
            present.children.retain(|&other| Some(other) != pid_of(&self.0));
        }
        Ok(status)
    }

    /// What it says on its standard output, if that is a pipe, until it closes it.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn read_to_end(&mut self) -> io::Result<String> {
        let mut said = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut said)?;
        }
        Ok(said)
    }

    /// The child's process id, as the kernel gave it.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        end_child(&mut self.0);
    }
}

/// A file under a name of its own that takes its right name once it is complete. Dropped before that, or when a signal
/// ends the program, it is removed.
#[derive(Debug)]
pub struct UnfinishedFile {
    /// None once it is complete.
    file: Option<tempfile::NamedTempFile>,
}

impl UnfinishedFile {
    /// A new one in that folder, which the umask keeps from others as any new file.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create_in(folder: &Path) -> io::Result<UnfinishedFile> {
        use std::os::unix::fs::PermissionsExt;
        let mut builder = tempfile::Builder::new();
        builder.prefix(UNFINISHED).permissions(std::fs::Permissions::from_mode(0o666));
        let mut present = LEFTOVERS.present();
        let file = builder.tempfile_in(folder)?;
        present.files.push(file.path().to_owned());
        Ok(UnfinishedFile { file: Some(file) })
    }

    /// What is to be written.
    ///
    /// # Errors
    /// None: it is open until it is complete.
    pub fn file(&self) -> io::Result<&std::fs::File> {
        self.file.as_ref().map(tempfile::NamedTempFile::as_file).ok_or_else(|| io::Error::other("complete"))
    }

    /// Gives it its right name, which no longer is that of a file that was there.
    ///
    /// # Errors
    /// It cannot have that name.
    pub fn complete(mut self, name: &Path) -> io::Result<()> {
        let mut present = LEFTOVERS.present();
        let Some(file) = self.file.take() else { return Ok(()) };
        present.files.retain(|other| other != file.path());
        file.persist(name).map(drop).map_err(|error| error.error)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        let mut present = LEFTOVERS.present();
        present.files.retain(|other| other != file.path());
        drop(file);
    }
}

pub(super) fn start_child(start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
    LEFTOVERS.start_child(start)
}

pub(super) fn end_child(child: &mut Child) {
    LEFTOVERS.end_child(child);
}

/// The folder of one run, below that for temporary files. Dropping removes it.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A fresh one, after those of dead runs were removed.
    ///
    /// # Errors
    /// The folder for temporary files cannot be written.
    pub fn create() -> io::Result<RunFolder> {
        RunFolder::create_in(&std::env::temp_dir())
    }

    /// The same in another folder than that for temporary files.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn create_in(place: &Path) -> io::Result<RunFolder> {
        remove_dead(place);
        let owner = ProcessName::of_this_process()?.to_text();
        let longest = MAX_SOCKET_PATH - SOCKET_BYTES - PREFIX.len() - owner.len() - UNIQUE_BYTES;
        if place.as_os_str().len() > longest {
            let reason = format!(
                "{}: sockets below it would have names that are too long for the operating system; set TMPDIR to a folder \
                 of at most {longest} bytes",
                place.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidFilename, reason));
        }
        let mut present = LEFTOVERS.present();
        let dir = tempfile::Builder::new().prefix(&format!("{PREFIX}{owner}-")).tempdir_in(place);
        let dir =
            dir.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place.display())))?;
        let dir = dir.keep();
        present.folders.push(dir.clone());
        Ok(RunFolder(dir))
    }

    /// Path of the folder, which exists until this is dropped.
    pub fn path(&self) -> &Path {
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
        // A symlink of such a name was made by no run, and must not lead to the removal of what it points to.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && owner.is_some_and(|owner| owner.is_dead()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP end processes and remove folders and unfinished files, then end this process,
/// with 128 + the signal's number as a shell reports it. A signal that this process was started to ignore, as `nohup`
/// does with SIGHUP, stays ignored.
///
/// # Errors
/// The operating system gives no thread, or no signals.
pub fn end_on_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let signal = {
        let _inside = runtime.enter();
        ending_signal()?
    };
    let wait = move || {
        let code = runtime.block_on(signal);
        let _present = LEFTOVERS.end_all(crate::process::kill_own);
        std::process::exit(code);
    };
    std::thread::Builder::new().name("weir-signals".into()).spawn(wait).map(drop)
}

/// Something short that is to be done when a signal ends the process ([`end_on_signals`]).
pub fn at_end(last: impl FnOnce() + Send + 'static) {
    LEFTOVERS.present().last.push(Box::new(last));
}

/// Resolves when SIGINT, SIGTERM or SIGHUP comes, to the exit code that a shell reports of it: 128 + its number. It counts from this
/// call on. A signal that this process was started to ignore stays ignored. Must be called within a tokio runtime.
///
/// # Errors
/// The operating system gives no signals.
pub fn ending_signal() -> io::Result<impl Future<Output = i32> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status")?);
    // A limit on the size of files (ulimit -f) is a disk without room: a signal that once had a handler does not end the process, now or later.
    drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    let (sender, mut first) = tokio::sync::mpsc::unbounded_channel();
    for (number, kind) in [
        (Signal::INT, SignalKind::interrupt()),
        (Signal::TERM, SignalKind::terminate()),
        (Signal::HUP, SignalKind::hangup()),
    ] {
        if ignored & (1 << (number.as_raw() - 1)) != 0 {
            continue;
        }
        let (mut signal, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move {
            signal.recv().await;
            let _ = sender.send(number);
        });
    }
    Ok(async move {
        // Where all signals are ignored this waits for ever: one sender stays here.
        let _sender = sender;
        128 + first.recv().await.map_or(0, Signal::as_raw)
    })
}

/// The signals that a process ignores, of its `/proc/PID/status`: bit n - 1 for signal n.
fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
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
    fn signals_that_are_ignored_are_read_from_the_status_of_the_process() {
        // SIGHUP is signal 1, SIGINT 2, SIGPIPE 13.
        assert_eq!(ignored_signals("Name:\tweir\nSigIgn:\t0000000000001003\nSigCgt:\t0\n"), 0x1003);
        assert_eq!(ignored_signals("Name:\tweir\n"), 0);
    }

    #[test]
    fn a_run_that_is_ended_while_it_starts_a_process_does_not_get_its_folder_back() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path().join("run");
        std::fs::create_dir(&folder).expect("a folder");
        let leftovers =
            Leftovers(Mutex::new(Present { folders: vec![folder.clone()], ..Present::default() }));
        let (runs, signal) = std::sync::mpsc::channel();
        let mut child = std::thread::scope(|scope| {
            let starting = scope.spawn(|| {
                leftovers.start_child(|| {
                    // One process alone: a mkdir that a shell had just started would outlive the shell.
                    let mut command = std::process::Command::new("perl");
                    let forever = "while (1) { mkdir $ARGV[0]; mkdir \"$ARGV[0]/spool\" }";
                    command.args(["-e", forever]).arg(&folder);
                    let child = command.spawn()?;
                    // It runs, and `leftovers` does not know it yet.
                    runs.send(()).expect("somebody waits");
                    std::thread::sleep(Duration::from_millis(200));
                    Ok(child)
                })
            });
            signal.recv().expect("a process runs");
            drop(leftovers.end_all(|| 0));
            starting.join().expect("no panic").expect("a process")
        });
        let back = folder.exists();
        leftovers.end_child(&mut child);
        assert!(!back, "the process made the folder again");
        assert!(leftovers.present().children.is_empty());
    }
}

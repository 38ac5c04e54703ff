//! `weir` as a process: started, killed, asked to end, or refusing to start.

use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long a process may take to end once it is asked to.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A process that does not outlive this value.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Process {
        Process(command.spawn().unwrap())
    }

    /// SIGKILL: the process has no say in it.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end, by a signal or by closing its input, and tells whether it did so in time and well.
    pub(crate) fn end(mut self, signal: Option<Signal>) -> Result<(), String> {
        drop(self.0.stdin.take());
        if let Some(signal) = signal {
            let _ = kill_process(Pid::from_child(&self.0), signal);
        }
        let end = Instant::now() + END_LIMIT;
        while Instant::now() < end {
            match self.0.try_wait().unwrap() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("{status}")),
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        Err("still running".to_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// `weir`, with these arguments.
pub(crate) fn weir(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments);
    command
}

/// The one line with which `weir` refuses these arguments.
#[track_caller]
pub(crate) fn refused(arguments: &[&str]) -> String {
    let output = weir(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
}

//! `weir run`: a command whose connections have a mark that says what they send.

use super::RunArgs;
use super::running::failure;
use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use weir_console::Failure;
use weir_console::terminal::complain;
use weir_ebpf::{HintedGroup, Karuna, available_controls};
use weir_model::Hint;

impl RunArgs {
    fn hint(&self) -> Result<Hint, Failure> {
        match (self.size, self.deadline) {
            (Some(size), _) if size.0 == 0 => {
                Err(Failure::Input("--size 0B: a flow has a byte at least".to_owned()))
            }
            (Some(size), Some(within)) => Ok(Hint::Deadline { size, within }),
            (Some(size), None) => Ok(Hint::Known(size)),
            _ => Ok(Hint::Unknown),
        }
    }

    /// The control that was asked for, or else Karuna's for what has a deadline, where the machine has that.
    fn control(&self) -> Result<Option<String>, Failure> {
        if self.control.is_some() || self.deadline.is_none() {
            return Ok(self.control.clone());
        }
        let available = available_controls().map_err(failure)?;
        Ok(available.into_iter().find(|name| name == Karuna::NAME))
    }
}

/// Says of how many connections the control is another one than it should be.
fn tell(group: &HintedGroup, control: Option<&str>) {
    if let (Some(control), Ok(without @ 1..)) = (control, group.without_control()) {
        complain(format_args!(
            "weir run: {control} was taken away; sockets that did not get it: {without}\n"
        ));
    }
}

pub(super) fn run_command(args: &RunArgs) -> Result<(), Failure> {
    let (hint, control) = (args.hint()?, args.control()?);
    let (program, arguments) =
        args.command.split_first().unwrap_or_else(|| unreachable!("clap requires one"));
    // Not the runtime of daemons, which raises limits: the command is to have the limits that it would have without us.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // A terminal sends its interrupts to the command as well, which decides what to do of them.
        let _interrupts = signal(SignalKind::interrupt())?;
        let (mut terminations, mut hangups) =
            (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
        let group = HintedGroup::create(hint, control.as_deref()).map_err(failure)?;
        group.enter().context("cannot enter the control group")?;
        let mut child = Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|error| Failure::Input(format!("{}: {error}", program.display())))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pass = |signal| pid.map(|pid| kill_process(pid, signal));
        loop {
            tokio::select! {
                ended = child.wait() => {
                    tell(&group, control.as_deref());
                    return outcome(ended?);
                }
                // The command decides what a signal means to it; this process waits until it has
                // ended.
                _ = terminations.recv() => { let _ = pass(Signal::TERM); }
                _ = hangups.recv() => { let _ = pass(Signal::HUP); }
            }
        }
    })
}

/// As a shell tells it: what a signal ended has 128 and its number.
fn outcome(status: ExitStatus) -> Result<(), Failure> {
    // 128 and the number of the signal, as shells report it.
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    if code == 0 { Ok(()) } else { Err(Failure::Ended(u8::try_from(code).unwrap_or(u8::MAX))) }
}

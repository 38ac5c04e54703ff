//! Standard output and standard error. The program that reads them may stop (`weir sim ... | head -1`), and the disk behind them may
//! be full; neither is a reason to panic.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell reports of a program that a closed pipe ended: 128 + SIGPIPE.
const CLOSED_PIPE: i32 = 141;

static GOES_ON: AtomicBool = AtomicBool::new(false);
static SAYS_ON_STANDARD_ERROR: AtomicBool = AtomicBool::new(false);

/// From now on what is said goes to standard error: standard output is for an output of the command.
pub fn leave_standard_output() {
    SAYS_ON_STANDARD_ERROR.store(true, Ordering::Relaxed);
}

/// From now on a closed or full standard output ends nothing; what is said there is lost.
pub fn go_on_unread() {
    GOES_ON.store(true, Ordering::Relaxed);
}

/// Writes to standard output. If its other end is closed, the process ends without a word, as other commands of a pipe do;
/// if it cannot be written for another reason, with one line and exit 1.
pub fn say(text: Arguments<'_>) {
    if SAYS_ON_STANDARD_ERROR.load(Ordering::Relaxed) {
        return complain(text);
    }
    let mut output = std::io::stdout().lock();
    let Err(error) = output.write_fmt(text).and_then(|()| output.flush()) else { return };
    if GOES_ON.load(Ordering::Relaxed) {
        return;
    }
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(CLOSED_PIPE);
    }
    complain(format_args!("weir: standard output: {error}\n"));
    std::process::exit(1);
}

/// Writes to standard error. Where that fails there is nowhere to say so.
pub fn complain(text: Arguments<'_>) {
    // Where standard error takes nothing there is no other place to say so.
    let _ = std::io::stderr().lock().write_fmt(text);
}

/// Standard output as the place of an output. A pipe whose reader is gone ends the process, as of [`say`].
pub struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        std::io::stdout().lock().write(bytes).inspect_err(end_if_closed)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().lock().flush().inspect_err(end_if_closed)
    }
}

fn end_if_closed(error: &std::io::Error) {
    if error.kind() == ErrorKind::BrokenPipe {
        std::process::exit(CLOSED_PIPE);
    }
}

//! What all commands share where they meet people and files: failures and their exits, the terminal, progress, files
//! that are written whole or not at all, and names of policies.
#![forbid(unsafe_code)]

mod built;
mod decider;
mod failure;
mod files;
mod place;
mod policies;
pub mod progress;
pub mod terminal;

pub use built::{LACKING, check_built};
pub use decider::{DecideBy, DeciderArgs, Groups, Routes};
pub use failure::Failure;
pub use files::{Files, OutputFile};
pub use policies::{controller_options, find, find_between_sites, find_for_hosts};

/// As that of std, which panics when a pipe is closed or a disk is full: this one ends as [`terminal::say`] has it.
#[macro_export]
macro_rules! println {
    () => { $crate::terminal::say(format_args!("\n")) };
    ($($text:tt)*) => { $crate::terminal::say(format_args!("{}\n", format_args!($($text)*))) };
}

/// As [`println!`], without the end of the line.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::terminal::say(format_args!($($text)*)) };
}

/// As [`println!`], to standard error.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::terminal::complain(format_args!("{}\n", format_args!($($text)*))) };
}

//! May this process make network namespaces, and how may a normal user come to it.

use std::ffi::CStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, UnshareFlags};

use crate::error::RightsError;

/// Settings by which distributions forbid user namespaces: path, forbidding value, name for the reader.
const FORBIDDING: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=0"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=1",
    ),
];

/// How [`enter_user_namespace`] came to its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// The process had them before (root, or already in a user namespace); nothing was changed.
    Already,
    /// The process now is root of a user namespace of its own.
    UserNamespace,
}

/// True if the calling thread can make network namespaces and configure them. Changes nothing.
#[must_use]
pub fn has_rights() -> bool {
    let needed = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(needed))
}

/// Lets a normal user make beds: the process becomes root of a new user namespace (files it writes still
/// belong to the user who started it). To be called at the very start of `main`, before any thread exists;
/// [`give_user_namespace`] has no such condition. The network of the process stays the machine's. Does
/// nothing if [`has_rights`] holds.
///
/// # Errors
/// [`RightsError`] when threads exist, when the machine forbids it, or when the ids cannot be mapped.
pub fn enter_user_namespace() -> Result<Rights, RightsError> {
    if has_rights() {
        return Ok(Rights::Already);
    }
    enter().map_err(|(step, errno)| match (step, errno) {
        // The kernel's answer to a process that has several threads.
        (Step::Unshare, Errno::INVAL) => RightsError::Threads,
        (Step::Unshare, other) => {
            RightsError::NotAllowed { reason: forbidding_setting().unwrap_or(other.to_string()) }
        }
        (Step::Map(what), other) => match forbidding_setting() {
            Some(reason) => RightsError::NotAllowed { reason },
            None => RightsError::Mapping { what, source: other.into() },
        },
    })?;
    if !has_rights() {
        let reason = forbidding_setting().unwrap_or("its root has no capabilities".into());
        return Err(RightsError::NotAllowed { reason });
    }
    Ok(Rights::UserNamespace)
}

/// Makes `command` start as root of a new user namespace, so that it has the rights which the caller lacks.
/// For a program that already has threads: it starts itself again this way. Where the machine forbids user
/// namespaces, starting the command fails. Does nothing if [`has_rights`] holds for the caller.
pub fn give_user_namespace(command: &mut Command) {
    if has_rights() {
        return;
    }
    // SAFETY: between fork and exec the closure makes system calls and writes to its own stack; it neither
    // allocates nor takes a lock.
    unsafe { command.pre_exec(|| enter().map_err(|(_, errno)| errno.into())) };
}

/// What failed in [`enter`].
enum Step {
    Unshare,
    Map(&'static str),
}

/// Enters a new user namespace as its root. Allocates nothing, so that it may run between fork and exec.
fn enter() -> Result<(), (Step, Errno)> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // SAFETY: NEWUSER does not touch the table of open files, which is what the function warns about.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }
        .map_err(|errno| (Step::Unshare, errno))?;
    let write = |path: &'static CStr, name, text: &[u8]| {
        // In one write, which is all that the kernel takes of a map.
        rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| rustix::io::write(file, text))
            .map_err(|errno| (Step::Map(name), errno))
    };
    // The kernel lets a user map the own group only after groups can no longer be set.
    write(c"/proc/self/setgroups", "/proc/self/setgroups", b"deny")?;
    let mut line = [0_u8; MAP_LINE_BYTES];
    write(c"/proc/self/uid_map", "/proc/self/uid_map", map_line(&mut line, uid))?;
    write(c"/proc/self/gid_map", "/proc/self/gid_map", map_line(&mut line, gid))?;
    Ok(())
}

/// Room for "0 4294967295 1".
const MAP_LINE_BYTES: usize = 14;

/// "0 of the namespace is `outside` of the machine, and that is the only one."
fn map_line(buffer: &mut [u8; MAP_LINE_BYTES], outside: u32) -> &[u8] {
    let mut rest = &mut buffer[..];
    let fits = write!(rest, "0 {outside} 1");
    debug_assert!(fits.is_ok(), "ten digits at most");
    let used = MAP_LINE_BYTES - rest.len();
    &buffer[..used]
}

/// What else than "run as root" would help a process without rights.
pub(crate) fn hint() -> String {
    match forbidding_setting() {
        Some(setting) => format!("let users make user namespaces (here {setting})"),
        None => "enter a user namespace at the start of the program".into(),
    }
}

fn forbidding_setting() -> Option<String> {
    FORBIDDING
        .iter()
        .find(|(path, value, _)| fs::read_to_string(path).is_ok_and(|text| text.trim() == *value))
        .map(|(_, _, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_id_fits_its_line() {
        let mut buffer = [0; MAP_LINE_BYTES];
        assert_eq!(map_line(&mut buffer, u32::MAX), b"0 4294967295 1");
        assert_eq!(map_line(&mut buffer, 7), b"0 7 1");
    }
}

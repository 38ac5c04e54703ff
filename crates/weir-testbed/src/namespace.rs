//! One anonymous network namespace: it lives as long as an open file or a process holds it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::error::BedError;
use crate::rights;

/// Where the calling thread's own network namespace can be opened.
const OWN_NETWORK: &str = "/proc/thread-self/ns/net";

/// Kernel settings of every namespace, path below `/proc/sys/net` and value. A connection that paused goes
/// on at its old window, and no connection learns from an earlier one (runs must not influence each other).
const SETTINGS: [(&str, &str); 3] = [
    ("ipv4/tcp_slow_start_after_idle", "0"),
    ("ipv4/tcp_no_metrics_save", "1"),
    // As data centres set it (10 ms, as in the evaluations of Varys' successors): the default of
    // 200 ms is for the Internet, and one lost tail would cost more than most coflows take.
    ("ipv4/tcp_rto_min_us", "10000"),
];

/// The same for IPv6, which would only add neighbour discovery; absent where the kernel has no IPv6.
const SETTINGS_IPV6: [(&str, &str); 2] =
    [("ipv6/conf/all/disable_ipv6", "1"), ("ipv6/conf/default/disable_ipv6", "1")];

/// An open network namespace. Dropping it closes the file; the kernel then removes the namespace, and the
/// links in it, in the background, as soon as no process is left inside.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: Arc<OwnedFd>,
}

/// Leads to a namespace without keeping it alive.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceRef(Weak<OwnedFd>);

impl NamespaceRef {
    /// Moves the calling thread into the namespace. Only system calls and atomics, so that it may be called
    /// between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        let file = self.0.upgrade().ok_or(Errno::NOENT)?;
        Ok(rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl Namespace {
    /// Makes `count` namespaces with the settings above. The calling thread stays where it is.
    pub(crate) fn create_many(count: usize) -> Result<Vec<Self>, BedError> {
        // `unshare` moves the calling thread alone, each time into a namespace of its own. This
        // thread ends with the last of them; any other would be left in it.
        on_new_thread(move || (0..count).map(|_| Self::create_here()).collect())
            .map_err(BedError::os("start a thread"))?
    }

    /// Makes one by moving the calling thread into it.
    fn create_here() -> Result<Self, BedError> {
        // SAFETY: NEWNET does not touch the table of open files, which is what the function warns about.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| match errno {
            Errno::PERM => BedError::NoRights { hint: rights::hint() },
            other => BedError::os("make a network namespace")(other),
        })?;
        for (path, value) in SETTINGS {
            fs::write(format!("/proc/sys/net/{path}"), value)
                .map_err(BedError::os(format!("set net/{path} in a new namespace")))?;
        }
        for (path, value) in SETTINGS_IPV6 {
            // A kernel without IPv6 has no such files, and nothing to turn off.
            match fs::write(format!("/proc/sys/net/{path}"), value) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(BedError::os(format!("set net/{path} in a new namespace"))(error));
                }
                _ => {}
            }
        }
        // The thread ends after this: from then on the open file alone keeps the namespace.
        let file = File::open(OWN_NETWORK).map_err(BedError::os(format!("open {OWN_NETWORK}")))?;
        Ok(Self { file: Arc::new(file.into()) })
    }

    /// Runs `work` in the namespace, on a thread made for it, and waits. Sockets opened and processes
    /// started by `work` stay in the namespace.
    ///
    /// # Errors
    /// When no thread can be started or the namespace cannot be entered.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        // On a thread of its own, which ends: a thread that entered a namespace would stay there.
        let target = self.reference();
        on_new_thread(move || target.enter().map(|()| work()))?
    }

    pub(crate) fn reference(&self) -> NamespaceRef {
        NamespaceRef(Arc::downgrade(&self.file))
    }

    /// A path by which other processes of the same user can open the namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// What `/proc/PID/ns/net` of a process inside reads.
    pub(crate) fn label(&self) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlink(format!("/proc/self/fd/{}", self.file.as_raw_fd()), Vec::new())?.into_bytes())
    }
}

/// Runs `work` on a thread of its own and waits for it; a panic of `work` goes on in the caller.
fn on_new_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("weir-bed".into()).spawn_scoped(scope, work)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

//! The edge of the kernel: which programs an interface has, and one more.

#![expect(unsafe_code, reason = "libbpf-rs does not know this kind of link yet")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most programs that the kernel attaches to one side of an interface (`BPF_MPROG_MAX`).
const MOST_PROGRAMS: usize = 64;

/// What an interface has for packets that leave it.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Ids of the attached programs, in the order in which they run.
    pub(crate) programs: Vec<u32>,
    /// Changes with each program that comes or goes.
    pub(crate) revision: u64,
}

/// Asks the kernel what is attached to packets that leave an interface, given its index.
pub(crate) fn attached(interface: u32) -> io::Result<Attached> {
    let mut programs = vec![0_u32; MOST_PROGRAMS];
    let mut query = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        ..Default::default()
    };
    query.__bindgen_anon_1.count = MOST_PROGRAMS as u32;
    // SAFETY: `query` says its size; `prog_ids` has room for `count` numbers and outlives the call.
    let result = unsafe {
        libbpf_sys::bpf_prog_query_opts(interface as i32, libbpf_sys::BPF_TCX_EGRESS, &raw mut query)
    };
    check(result)?;
    // SAFETY: both fields of the union are one number, which the kernel has written.
    let count = unsafe { query.__bindgen_anon_1.count };
    programs.truncate(count as usize);
    Ok(Attached { programs, revision: query.revision })
}

/// Attaches a program behind those that `seen` has, if these are still all. It stays until the file is closed, or the
/// interface goes.
pub(crate) fn attach(program: BorrowedFd<'_>, interface: u32, seen: &Attached) -> io::Result<OwnedFd> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        ..Default::default()
    };
    // The kernel refuses if another program was attached since the look.
    options.__bindgen_anon_1.tcx.expected_revision = seen.revision;
    // SAFETY: `options` says its size and outlives the call; the program is an open file.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            interface as i32,
            libbpf_sys::BPF_TCX_EGRESS,
            &raw const options,
        )
    };
    check(link)?;
    // SAFETY: the kernel has just opened this file for us, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// libbpf returns the kernel's errors as negative numbers.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

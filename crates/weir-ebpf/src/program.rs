//! What all programs have in common: they are loaded, have tables, and are attached to what leaves an interface.

use crate::attach::{Attached, attach, attached};
use crate::error::TagError;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How often it is tried again when other programs come or go meanwhile.
const ATTEMPTS: u32 = 10;

/// A program of which an interface has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single {
    /// Its name in the kernel, by which others of its kind are found.
    pub(crate) name: &'static str,
    /// What messages call it.
    pub(crate) kind: &'static str,
}

/// What the kernel calls an interface of this namespace.
pub(crate) fn number_of(interface: &str) -> Result<u32, TagError> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(io::Error::from)
        .map_err(TagError::os("open a socket"))?;
    netdevice::name_to_index(&socket, interface)
        .map_err(|_| TagError::NoInterface { name: interface.to_owned() })
}

/// Loads an object file as clang has compiled it.
pub(crate) fn load(program: &[u8]) -> Result<Object, TagError> {
    open(program)?.load().map_err(TagError::bpf("load the program"))
}

/// Reads an object file, so that its tables can be those of others before it is loaded.
pub(crate) fn open(program: &[u8]) -> Result<OpenObject, TagError> {
    // What the verifier says of a program that it refuses is long, and for developers.
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| tracing::debug!("libbpf: {}", text.trim_end()))));
    // The reader of object files wants them aligned, as allocated memory is.
    let program = program.to_vec();
    ObjectBuilder::default().open_memory(&program).map_err(TagError::bpf("read the own program"))
}

pub(crate) fn map_of(object: &Object, name: &str) -> Result<MapHandle, TagError> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found
        .ok_or_else(|| TagError::os(format!("find the table {name}"))(io::ErrorKind::NotFound.into()))?;
    MapHandle::try_from(&found).map_err(TagError::bpf("keep a table"))
}

/// Sums the two numbers of a row over processors.
pub(crate) fn sum_of(counters: &MapHandle, row: u32) -> Result<[u64; 2], TagError> {
    let found = counters.lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY);
    let values = found.map_err(TagError::bpf("read counters"))?.unwrap_or_default();
    let mut sums = [0; 2];
    for value in values {
        let numbers = value.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    Ok(sums)
}

/// The program of an object, which lives as long as this file or something that it is attached to.
pub(crate) fn program_of(object: &Object, name: &str) -> Result<OwnedFd, TagError> {
    let program = object.progs().find(|program| program.name() == name);
    let program =
        program.ok_or_else(|| TagError::os("find the own program")(io::ErrorKind::NotFound.into()))?;
    program.as_fd().try_clone_to_owned().map_err(TagError::os("keep a program"))
}

/// Attaches the program where no other of its kind is. Two that come at once see it by the revision.
pub(crate) fn attach_alone(
    program: BorrowedFd<'_>,
    single: Single,
    interface: &str,
    number: u32,
) -> Result<OwnedFd, TagError> {
    let mut attempt = 0;
    loop {
        let seen = attached(number).map_err(|source| refused(interface, source))?;
        if has(&seen, single.name)? {
            return Err(TagError::Taken { name: interface.to_owned(), kind: single.kind });
        }
        attempt += 1;
        match attach(program, number, &seen) {
            // The kernel's answer where programs came or went since `seen`: what is there is looked at again.
            Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) && attempt < ATTEMPTS => {
            }
            result => return result.map_err(|source| refused(interface, source)),
        }
    }
}

fn refused(name: &str, source: io::Error) -> TagError {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => TagError::NoRights,
        Some(Errno::INVAL | Errno::OPNOTSUPP) => TagError::TooOld { name: name.to_owned(), source },
        Some(Errno::NODEV) => TagError::NoInterface { name: name.to_owned() },
        _ => TagError::os(format!("attach the program to {name}"))(source),
    }
}

/// Whether one of the programs has this name.
///
/// # Errors
/// To know programs of others takes more rights (`CAP_SYS_ADMIN`) than to attach one beside them.
fn has(seen: &Attached, name: &str) -> Result<bool, TagError> {
    let mut known = ProgInfoIter::default().filter(|program| seen.programs.contains(&program.id)).peekable();
    if known.peek().is_none() && !seen.programs.is_empty() {
        return Err(TagError::NoRights);
    }
    Ok(known.any(|program| program.name.as_encoded_bytes() == name.as_bytes()))
}

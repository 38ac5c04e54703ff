//! The tagger: loaded and attached whole or not at all, and gone when dropped.

use crate::attach::{Attached, attach, attached};
use crate::config::{Config, Hint};
use crate::error::TagError;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, PrintLevel};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use weir_endhost::tagging::CLASSES;

/// The program, as clang has compiled it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tag.bpf.o"));
/// Its name, by which other taggers are found.
const NAME: &str = "weir_tag";
/// How often it is tried again when other programs come or go meanwhile.
const ATTEMPTS: u32 = 10;
/// The row of the table of counters after those of classes.
const NOT_WRITTEN: u32 = CLASSES as u32;

/// Packets that a tagger gave one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Packets as they are on the link.
    pub packets: u64,
    /// Their TCP payload.
    pub bytes: u64,
}

/// What a tagger did since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// By class.
    pub classes: [ClassCounters; CLASSES],
    /// Packets that it could not write, which left as they were.
    pub not_written: ClassCounters,
}

/// A program that tags what leaves one interface. It goes when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct Tagger {
    settings: MapHandle,
    flows: MapHandle,
    counters: MapHandle,
    /// Closing it detaches the program, which is then freed.
    _link: OwnedFd,
}

impl Tagger {
    /// Loads the program and attaches it to `interface` of the network namespace of the calling thread, after programs of
    /// others.
    ///
    /// # Errors
    /// [`TagError`] says what is missing. Nothing remains then.
    pub fn attach(interface: &str, config: &Config) -> Result<Tagger, TagError> {
        config.check()?;
        let number = number_of(interface)?;
        let object = load()?;
        let link = attach_alone(&object, interface, number, config)?;
        let map = |name| map_of(&object, name);
        let (settings, flows, counters) = (map("weir_settings")?, map("weir_flows")?, map("weir_counters")?);
        Ok(Tagger { settings, flows, counters, _link: link })
    }

    /// Says what the socket sends from now on. It holds until the next hint, or until the socket is closed.
    ///
    /// # Errors
    /// [`TagError::Os`] if it is no socket.
    pub fn hint(&self, socket: &impl AsFd, hint: Hint) -> Result<(), TagError> {
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.flows
            .update(&key, &hint.to_bytes(), MapFlags::ANY)
            .map_err(TagError::bpf("hint what a socket sends"))
    }

    /// Takes other settings for all packets that follow. One that passes meanwhile may go by some of each.
    ///
    /// # Errors
    /// [`TagError::Config`]; the settings before it hold on.
    pub fn set(&self, config: &Config) -> Result<(), TagError> {
        config.check()?;
        write_settings(&self.settings, config)
    }

    /// What it did since it was attached.
    ///
    /// # Errors
    /// [`TagError::Os`] if the kernel does not say.
    pub fn counters(&self) -> Result<Counters, TagError> {
        let mut counters = Counters { not_written: self.row(NOT_WRITTEN)?, ..Counters::default() };
        for (class, row) in (0..).zip(&mut counters.classes) {
            *row = self.row(class)?;
        }
        Ok(counters)
    }

    /// Sums a row over processors.
    fn row(&self, row: u32) -> Result<ClassCounters, TagError> {
        let found = self.counters.lookup_percpu(&row.to_ne_bytes(), MapFlags::ANY);
        let values = found.map_err(TagError::bpf("read counters"))?.unwrap_or_default();
        let mut sum = ClassCounters::default();
        for value in values {
            let mut numbers = value.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes));
            sum.packets += numbers.next().unwrap_or(0);
            sum.bytes += numbers.next().unwrap_or(0);
        }
        Ok(sum)
    }
}

/// What the kernel calls an interface of this namespace.
fn number_of(interface: &str) -> Result<u32, TagError> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(io::Error::from)
        .map_err(TagError::os("open a socket"))?;
    netdevice::name_to_index(&socket, interface)
        .map_err(|_| TagError::NoInterface { name: interface.to_owned() })
}

fn load() -> Result<Object, TagError> {
    // What the verifier says of a program that it refuses is long, and for developers.
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| tracing::debug!("libbpf: {}", text.trim_end()))));
    // The reader of object files wants them aligned, as allocated memory is.
    let program = PROGRAM.to_vec();
    let opened =
        ObjectBuilder::default().open_memory(&program).map_err(TagError::bpf("read the own program"))?;
    opened.load().map_err(TagError::bpf("load the program"))
}

fn map_of(object: &Object, name: &str) -> Result<MapHandle, TagError> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found
        .ok_or_else(|| TagError::os(format!("find the table {name}"))(io::ErrorKind::NotFound.into()))?;
    MapHandle::try_from(&found).map_err(TagError::bpf("keep a table"))
}

fn write_settings(map: &MapHandle, config: &Config) -> Result<(), TagError> {
    map.update(&0_u32.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY)
        .map_err(TagError::bpf("write settings"))
}

/// Attaches the program where no other tagger is. Two that come at once see it by the revision.
fn attach_alone(object: &Object, name: &str, number: u32, config: &Config) -> Result<OwnedFd, TagError> {
    write_settings(&map_of(object, "weir_settings")?, config)?;
    let program = object.progs().find(|program| program.name() == NAME);
    let program =
        program.ok_or_else(|| TagError::os("find the own program")(io::ErrorKind::NotFound.into()))?;
    let mut attempt = 0;
    loop {
        let seen = attached(number).map_err(|source| refused(name, source))?;
        if has_tagger(&seen)? {
            return Err(TagError::Taken { name: name.to_owned() });
        }
        attempt += 1;
        match attach(program.as_fd(), number, &seen) {
            Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) && attempt < ATTEMPTS => {
            }
            result => return result.map_err(|source| refused(name, source)),
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

/// Whether one of the programs is a tagger, by its name.
///
/// # Errors
/// To know programs of others takes more rights (`CAP_SYS_ADMIN`) than to attach one beside them.
fn has_tagger(seen: &Attached) -> Result<bool, TagError> {
    let mut known = ProgInfoIter::default().filter(|program| seen.programs.contains(&program.id)).peekable();
    if known.peek().is_none() && !seen.programs.is_empty() {
        return Err(TagError::NoRights);
    }
    Ok(known.any(|program| program.name.as_encoded_bytes() == NAME.as_bytes()))
}

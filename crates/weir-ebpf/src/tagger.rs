//! The tagger: loaded and attached whole or not at all, and gone when dropped.

use crate::config::{Config, flow_bytes, placed_bytes};
use crate::error::TagError;
use crate::program::{Single, attach_alone, load, map_of, number_of, program_of, sum_of};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use weir_endhost::tagging::CLASSES;
use weir_model::Hint;

/// The program, as clang has compiled it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tag.bpf.o"));
const TAGGER: Single = Single { name: "weir_tag", kind: "tagger" };
/// The row of the table of counters after those of classes.
const NOT_WRITTEN: u32 = CLASSES as u32;

/// Packets that a tagger gave one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Packets as they are on the link.
    pub packets: u64,
    /// TCP payload of these packets, in bytes.
    pub bytes: u64,
}

/// What a tagger did since it was attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets by class, class 0 first.
    pub classes: [ClassCounters; CLASSES],
    /// Packets that it could not write, which left as they were.
    pub not_written: ClassCounters,
}

/// A program that tags what leaves one interface. It goes when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct Tagger {
    settings: MapHandle,
    pub(crate) flows: MapHandle,
    counters: MapHandle,
    program: OwnedFd,
    /// Closing them detaches the program.
    links: Vec<OwnedFd>,
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
        let object = load(PROGRAM)?;
        let map = |name| map_of(&object, name);
        let (settings, flows, counters) = (map("weir_settings")?, map("weir_flows")?, map("weir_counters")?);
        // Before the program is attached: the first packets would otherwise go by settings of
        // zeros.
        write_settings(&settings, config)?;
        let program = program_of(&object, TAGGER.name)?;
        let links = vec![attach_alone(program.as_fd(), TAGGER, interface, number)?];
        Ok(Tagger { settings, flows, counters, program, links })
    }

    /// Attaches it to another interface as well, of the network namespace of the calling thread: a host may have several
    /// links. Settings, hints and counters are of all of them.
    ///
    /// # Errors
    /// [`TagError`]; it goes on where it is.
    pub fn attach_also(&mut self, interface: &str) -> Result<(), TagError> {
        self.links.push(attach_alone(self.program.as_fd(), TAGGER, interface, number_of(interface)?)?);
        Ok(())
    }

    /// Says what the socket sends from now on. It holds until the next hint, or until the socket is closed. A socket that has a
    /// mark that is a hint goes by its mark, where marks are read ([`Config::marks`]).
    ///
    /// # Errors
    /// [`TagError::Os`] if it is no socket.
    pub fn hint(&self, socket: &impl AsFd, hint: Hint) -> Result<(), TagError> {
        self.write(socket, &flow_bytes(hint))
    }

    /// Has what the socket sends from now on in a class, whatever its size and age: one that who serves it has chosen. The last
    /// class if there are not so many.
    ///
    /// # Errors
    /// As of [`Tagger::hint`].
    pub fn place(&self, socket: &impl AsFd, class: u8) -> Result<(), TagError> {
        self.write(socket, &placed_bytes(class))
    }

    fn write(&self, socket: &impl AsFd, flow: &[u8]) -> Result<(), TagError> {
        // A table of sockets is written by the socket's descriptor.
        let key = socket.as_fd().as_raw_fd().to_ne_bytes();
        self.flows.update(&key, flow, MapFlags::ANY).map_err(TagError::bpf("hint what a socket sends"))
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

    fn row(&self, row: u32) -> Result<ClassCounters, TagError> {
        let [packets, bytes] = sum_of(&self.counters, row)?;
        Ok(ClassCounters { packets, bytes })
    }
}

fn write_settings(map: &MapHandle, config: &Config) -> Result<(), TagError> {
    map.update(&0_u32.to_ne_bytes(), &config.to_bytes(), MapFlags::ANY)
        .map_err(TagError::bpf("write settings"))
}

//! The marker: ECN marks at a port of a switch that is a Linux machine, by what waits in each of its queues.

use crate::error::{MarkError, TagError};
use crate::program::{Single, attach_alone, load, map_of, number_of, program_of, sum_of};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ProgramInput};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use weir_endhost::tagging::{CLASSES, DEFAULT_DSCP};
use weir_model::Bytes;

/// The programs, as clang has compiled them.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mark.bpf.o"));
const MARKER: Single = Single { name: "weir_mark", kind: "marker" };
const PROBE: &str = "weir_mark_probe";

/// Rows of the table of counters after those of classes.
const OTHERS: u32 = CLASSES as u32;
const NOT_FOUND: u32 = OTHERS + 1;

/// DSCPs, and from which on packets are the network's own.
const DSCPS: usize = 64;
const CONTROL_DSCP: u8 = 48;
/// In the table of DSCPs: in no queue for data.
const NO_CLASS: u8 = u8::MAX;

/// Where the interface's number is in `struct __sk_buff`, which ends behind it as far as the probe is concerned.
const INTERFACE_AT: usize = 40;
/// A frame for the probe, of no content.
const PROBE_BYTES: usize = 64;

/// By what a marker goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Bytes that wait in the queue of each class from which on packets that enter it are marked.
    pub thresholds: [Bytes; CLASSES],
    /// DSCP of each class, below 48. Packets with another one below 48 are in the last class.
    pub dscp: [u8; CLASSES],
    /// The leaf of the interface's HTB that each class enters: major number in the upper 16 bits, minor in the lower.
    pub leaves: [u32; CLASSES],
    /// What this address sends or gets is not data, and never marked.
    pub control: Option<Ipv4Addr>,
}

impl Marking {
    /// With one threshold for all queues, the tagger's DSCPs, and no address that is left alone.
    #[must_use]
    pub fn new(threshold: Bytes, leaves: [u32; CLASSES]) -> Marking {
        Marking { thresholds: [threshold; CLASSES], dscp: DEFAULT_DSCP, leaves, control: None }
    }

    fn check(&self) -> Result<(), MarkError> {
        // The kernel counts what waits in a queue in 32 bits.
        if let Some(&bytes) = self.thresholds.iter().find(|bytes| u32::try_from(bytes.0).is_err()) {
            return Err(MarkError::Threshold { bytes });
        }
        for (class, dscp) in self.dscp.into_iter().enumerate() {
            // Two classes of one DSCP could not be told apart by a packet.
            if dscp >= CONTROL_DSCP || self.dscp[..class].contains(&dscp) {
                return Err(MarkError::Dscp { class, dscp });
            }
        }
        Ok(())
    }

    /// As `struct settings` of the program has it.
    fn to_bytes(&self) -> Vec<u8> {
        let thresholds = self.thresholds.map(|bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX));
        let mut bytes = self.control.map_or([0; 4], |address| address.octets()).to_vec();
        bytes.extend(thresholds.into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend(self.leaves.into_iter().flat_map(u32::to_ne_bytes));
        bytes.extend((0..DSCPS as u8).map(|dscp| match self.dscp.iter().position(|own| *own == dscp) {
            Some(class) => class as u8,
            None if dscp >= CONTROL_DSCP => NO_CLASS,
            None => CLASSES as u8 - 1,
        }));
        bytes
    }
}

/// Frames of one class that passed a marker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassMarks {
    /// Frames that passed, marked ones included.
    pub seen: u64,
    /// Those that it marked.
    pub marked: u64,
}

/// What a marker did since it was attached, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Frames by class, class 0 first.
    pub classes: [ClassMarks; CLASSES],
    /// Frames that are in no queue for data: neither TCP nor UDP over IPv4, of the network's own DSCPs, or of the
    /// address that is left alone.
    pub others: u64,
    /// Frames whose queue was not there, so that they were left as they were: the interface's HTB was changed since the marker
    /// was attached.
    pub not_found: u64,
}

/// A program that marks what leaves one interface. It goes when this is dropped, and when the process ends.
#[derive(Debug)]
pub struct Marker {
    settings: MapHandle,
    counters: MapHandle,
    /// Closing it detaches the program, which is then freed.
    _link: OwnedFd,
}

impl Marker {
    /// Loads the program and attaches it to `interface` of the network namespace of the calling thread, after programs of
    /// others.
    ///
    /// # Errors
    /// [`MarkError`] says what is missing, as the leaf of a class. Nothing remains then.
    pub fn attach(interface: &str, marking: &Marking) -> Result<Marker, MarkError> {
        marking.check()?;
        let number = number_of(interface)?;
        let object = load(PROGRAM)?;
        let (settings, counters) = (map_of(&object, "weir_marking")?, map_of(&object, "weir_marks")?);
        write(&settings, marking)?;
        // After the settings were written: the probe looks for the leaves that they name.
        let found = probe(&object, number)?;
        let missing = (0..CLASSES).find(|class| found & 1 << class == 0);
        if let Some(class) = missing {
            let leaf = marking.leaves[class];
            return Err(MarkError::NoQueue { name: interface.to_owned(), class, leaf });
        }
        let link = attach_alone(program_of(&object, MARKER.name)?.as_fd(), MARKER, interface, number)?;
        Ok(Marker { settings, counters, _link: link })
    }

    /// Takes other numbers for all packets that follow. Leaves are not looked for again: frames of one that is not there are
    /// counted.
    ///
    /// # Errors
    /// [`MarkError`] if it makes no sense; what was holds on.
    pub fn set(&self, marking: &Marking) -> Result<(), MarkError> {
        marking.check()?;
        write(&self.settings, marking)
    }

    /// What it did since it was attached.
    ///
    /// # Errors
    /// [`TagError::Os`] if the kernel does not say.
    pub fn marks(&self) -> Result<Marks, MarkError> {
        let [[others, _], [not_found, _]] =
            [sum_of(&self.counters, OTHERS)?, sum_of(&self.counters, NOT_FOUND)?];
        let mut marks = Marks { others, not_found, ..Marks::default() };
        for (class, row) in (0..).zip(&mut marks.classes) {
            let [seen, marked] = sum_of(&self.counters, class)?;
            *row = ClassMarks { seen, marked };
        }
        Ok(marks)
    }
}

fn write(settings: &MapHandle, marking: &Marking) -> Result<(), MarkError> {
    let written = settings.update(&0_u32.to_ne_bytes(), &marking.to_bytes(), MapFlags::ANY);
    Ok(written.map_err(TagError::bpf("write settings"))?)
}

/// Which classes have a leaf, a bit for each: the kernel runs a program that looks for them on a packet of the interface.
fn probe(object: &Object, number: u32) -> Result<u32, TagError> {
    let program = object.progs_mut().find(|program| program.name() == PROBE);
    let program = program.ok_or_else(|| TagError::os("find the probe")(io::ErrorKind::NotFound.into()))?;
    let mut context = [0; INTERFACE_AT + 4];
    context[INTERFACE_AT..].copy_from_slice(&number.to_ne_bytes());
    let frame = [0; PROBE_BYTES];
    let input =
        ProgramInput { context_in: Some(&mut context), data_in: Some(&frame), ..ProgramInput::default() };
    let output = program.test_run(input).map_err(TagError::bpf("look for queues"))?;
    Ok(output.return_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marking() -> Marking {
        Marking::new(Bytes(60_000), [0x1_0020; CLASSES])
    }

    #[test]
    fn every_dscp_has_a_class_but_those_of_the_network() {
        let bytes = marking().to_bytes();
        // Address, 8 thresholds and 8 leaves of 4 bytes each; 64 DSCPs.
        assert_eq!(bytes.len(), 4 + 32 + 32 + 64);
        let classes = &bytes[68..];
        assert_eq!((classes[40], classes[36], classes[12]), (0, 1, 7));
        assert_eq!((classes[0], classes[41], classes[47]), (7, 7, 7));
        assert!(classes[48..].iter().all(|class| *class == NO_CLASS));
    }

    #[test]
    fn dscps_that_are_not_a_class_each_and_thresholds_beyond_a_queue_are_refused() {
        let with = |class: usize, dscp| {
            let mut marking = marking();
            marking.dscp[class] = dscp;
            marking.check()
        };
        assert!(with(3, 0).is_ok());
        assert!(matches!(with(3, 48), Err(MarkError::Dscp { class: 3, dscp: 48 })));
        assert!(matches!(with(3, 255), Err(MarkError::Dscp { .. })));
        assert!(matches!(with(0, 36), Err(MarkError::Dscp { class: 1, dscp: 36 })));
        let large = Marking { thresholds: [Bytes(1 << 32); CLASSES], ..marking() };
        assert!(matches!(large.check(), Err(MarkError::Threshold { .. })));
    }
}

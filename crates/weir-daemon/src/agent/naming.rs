//! What a host is called, and the number that stands for it in messages.
//!
//! A host with a number is called by it. The number of one with a name is made from the name, so it is known before any
//! coordinator is, and a host whose spool was lost has the one that it had. Two names may make the same: the coordinator
//! refuses the agent that came later, which draws the next one and keeps it in its spool.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weir_core::ids::HostNumber;
use weir_proto::host::{FIRST_MADE, Host};

/// The file of the draw.
pub(super) const FILE: &str = "host";
/// The number that a name makes at its `draw`th time: FNV-1a over both, folded.
fn number_of(name: &str, draw: u32) -> HostNumber {
    let bytes = name.bytes().chain(draw.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    HostNumber(FIRST_MADE + ((hash ^ (hash >> 32)) as u32) % FIRST_MADE)
}

/// The number that an agent's host has now.
#[derive(Debug)]
pub(super) struct Naming {
    host: Host,
    path: PathBuf,
    draw: Mutex<u32>,
}

impl Naming {
    /// Of a host whose agent keeps its own files in a directory.
    pub(super) fn new(host: Host, own: &Path) -> Naming {
        let path = own.join(FILE);
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let draw = match (&host, kept.trim().rsplit_once(' ')) {
            // The draw of another name says nothing of this one.
            (Host::Name(name), Some((before, draw))) if before == name => draw.parse().unwrap_or(0),
            _ => 0,
        };
        Naming { host, path, draw: Mutex::new(draw) }
    }

    pub(super) fn number(&self) -> HostNumber {
        match &self.host {
            Host::Number(number) => HostNumber(*number),
            Host::Name(name) => number_of(name, *self.draw.lock().unwrap_or_else(|e| e.into_inner())),
        }
    }

    /// The name; empty where the host is called by its number.
    pub(super) fn name(&self) -> String {
        if let Host::Name(name) = &self.host { name.clone() } else { String::new() }
    }

    /// Another host has this number: draws the next one and says which. One that was given stays.
    pub(super) fn draw_another(&self) -> HostNumber {
        if let Host::Name(name) = &self.host {
            let mut draw = self.draw.lock().unwrap_or_else(|e| e.into_inner());
            *draw = draw.wrapping_add(1);
            let kept = File::create(&self.path).and_then(|mut file| writeln!(file, "{name} {draw}"));
            if let Err(error) = kept {
                // Without the file the agent begins with the first draw after a restart, and is refused once more.
                tracing::warn!(path = %self.path.display(), %error, "the number of this host is not kept");
            }
        }
        self.number()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_proto::limits::MAX_HOST_NUMBER;

    #[test]
    fn a_name_makes_the_same_number_again_and_another_one_once_that_was_taken() {
        let own = tempfile::tempdir().unwrap();
        let name = || Naming::new("web-17".parse().unwrap(), own.path());
        let first = name().number();
        assert!((FIRST_MADE..MAX_HOST_NUMBER).contains(&first.0) && name().number() == first);
        let second = name().draw_another();
        assert!(second != first && second.0 >= FIRST_MADE);
        assert_eq!(name().number(), second);
        // Another name in the same spool begins anew, and so does one whose file is damaged.
        assert_eq!(Naming::new("web-18".parse().unwrap(), own.path()).number(), number_of("web-18", 0));
        std::fs::write(own.path().join(FILE), "web-17 x\u{0}").unwrap();
        assert_eq!(name().number(), first);
        let given = Naming::new(Host::Number(7), own.path());
        assert_eq!(
            (given.number(), given.draw_another(), given.name()),
            (HostNumber(7), HostNumber(7), String::new())
        );
    }

    /// Numbers of names are spread: of ten thousand, about six pairs meet (n^2 / 2 / 8,388,608).
    #[test]
    fn names_that_differ_little_make_different_numbers() {
        let numbers: std::collections::BTreeSet<HostNumber> =
            (0..10_000).map(|n| number_of(&format!("node-{n:04}.rack"), 0)).collect();
        assert!(numbers.len() > 9_980, "{}", numbers.len());
    }
}

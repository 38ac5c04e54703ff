//! Who an agent is: a number drawn when its spool is first used, and kept there. A coordinator tells by it an agent that
//! came back from another one that was given the same host.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Name of the file with the identity, in the directory of the agent's own files.
pub(super) const FILE: &str = "identity";

/// The identity of a spool by the directory of its agent's own files, never 0. One that cannot be read is drawn anew: the agent is then another one.
pub(super) fn of_spool(own: &Path) -> io::Result<u64> {
    let path = own.join(FILE);
    if let Ok(text) = std::fs::read_to_string(&path)
        && let Ok(identity) = u64::from_str_radix(text.trim(), 16)
        && identity != 0
    {
        return Ok(identity);
    }
    let identity = rand::random_range(1..=u64::MAX);
    let kept = File::create(&path).and_then(|mut file| {
        writeln!(file, "{identity:016x}")?;
        // Its name is synced with that of the journal. A disk that cannot be synced is told of there.
        let _ = file.sync_all();
        Ok(())
    });
    if let Err(error) = kept {
        // A full disk is no reason not to serve. Another start draws another number.
        tracing::warn!(path = %path.display(), %error, "the agent's identity is not kept");
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_keeps_its_identity_and_another_one_has_another() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = of_spool(one.path()).unwrap();
        assert_eq!(of_spool(one.path()).unwrap(), first);
        assert_ne!(of_spool(two.path()).unwrap(), first);
        std::fs::write(one.path().join(FILE), "damaged").unwrap();
        assert_ne!(of_spool(one.path()).unwrap(), first);
    }
}

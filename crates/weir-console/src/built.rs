//! What of the program a build may lack.

use crate::Failure;

/// What a build without the feature says.
pub const LACKING: &str = "this build tags no packets: the program for the kernel is made with clang. Build with \
                       `cargo build --release --features weir-cli/ebpf` where clang, libelf and zlib are";

/// Whether this build has the tagger; `what` is what asks for it.
///
/// # Errors
/// It was built without.
pub fn check_built(what: &str) -> Result<(), Failure> {
    if cfg!(feature = "ebpf") { Ok(()) } else { Err(Failure::Input(format!("{what}: {LACKING}"))) }
}

//! Compiles the programs for the kernel with clang.

use std::path::PathBuf;
use std::process::Command;
use std::{env, io};

/// What the crate loads, and what its tests do.
const PROGRAMS: [&str; 6] =
    ["src/bpf/tag", "src/bpf/mark", "src/bpf/dctcp", "src/bpf/karuna", "src/bpf/group", "tests/laws"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed=tests/laws.bpf.c");
    PROGRAMS.into_iter().try_for_each(compile)
}

fn compile(program: &str) -> io::Result<()> {
    let source = format!("{program}.bpf.c");
    let variable = |name: &str| env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")));
    let name = program.rsplit('/').next().unwrap_or(program);
    let object = PathBuf::from(variable("OUT_DIR")?).join(format!("{name}.bpf.o"));
    // The headers that libbpf-sys brings.
    let headers = variable("DEP_BPF_INCLUDE")?;
    // Where Debian keeps what depends on the processor; for the target bpf clang does not look there.
    let of_processor = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH")?);
    let mut clang = Command::new("clang");
    clang.args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"]);
    clang.args(["-I", &headers, "-idirafter", &of_processor, "-c", &source, "-o"]).arg(&object);
    let status = clang.status().map_err(|error| {
        io::Error::other(format!("cannot run clang, which compiles {source}: {error}; install clang"))
    })?;
    if !status.success() {
        return Err(io::Error::other(format!("clang could not compile {source}: {status}; see above")));
    }
    Ok(())
}

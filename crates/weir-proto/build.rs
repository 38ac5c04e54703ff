//! Compiles the control plane's .proto files with a compiler written in Rust: no protoc to install.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["weir/v1/control.proto", "weir/v1/relay.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

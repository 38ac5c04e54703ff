//! `weir get`: a block becomes a file.

use super::peers::{Peers, check_name, coflow_or_refuse, said_of_get};
use super::{id_as_text, print_json};
use clap::Args;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_client::{Client, GetOptions};
use weir_console::Files;
use weir_console::{Failure, progress};
use weir_model::{Bytes, Rate};
use weir_results::printable;

#[derive(Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    peers: Peers,
    /// Id of the coflow, as `weir register` printed it; WEIR_COFLOW unless said
    #[arg(long, short)]
    coflow: Option<u64>,
    /// Name of the block
    block: String,
    /// File to write, or `-` for standard output; a file here with the last part of the block's name unless said
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Longest time until the last byte, the wait until the block is put included
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    time_limit: u64,
    /// Data address of an agent that holds the block; may be repeated. The coordinator is not asked then
    #[arg(long, value_name = "IP:PORT")]
    holder: Vec<SocketAddr>,
    /// Number of this host, where no agent runs on it
    #[arg(long)]
    host: Option<u32>,
    /// Number of the receiving task: tasks of one host that get the same block count apart
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    group: u32,
    /// Compare a hash over the whole block too, besides the checksum of each frame; it is there for blocks that were copied when
    /// they were put
    #[arg(long)]
    verify_whole: bool,
}

#[derive(Serialize)]
pub(super) struct Got {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    block: String,
    pub(super) bytes: u64,
    seconds: f64,
    first_byte_seconds: Option<f64>,
}

pub(crate) fn get(args: GetArgs) -> Result<(), Failure> {
    let coflow = coflow_or_refuse(args.coflow)?;
    check_name(&args.block)?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => file_name(&args.block)?,
    };
    let output = Files::default().writes("FILE", &path)?;
    let options = GetOptions {
        time_limit: Duration::from_secs(args.time_limit),
        holders: args.holder.clone(),
        group: args.group,
        verify_whole: args.verify_whole,
    };
    let needs_coordinator = args.holder.is_empty();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = runtime.block_on(args.peers.with_host(args.host, needs_coordinator))?;
    let mut got = None;
    output.write(|file| {
        got = Some(runtime.block_on(receive(&client, coflow, &args.block, options, file))?);
        Ok(())
    })?;
    let Some(got) = got else { return Ok(()) };
    if args.peers.json {
        return print_json(&got);
    }
    say_got(&got, &format!("block {} of coflow {coflow}", printable(&got.block)))
}

/// One line about what came.
pub(super) fn say_got(got: &Got, what: &str) -> Result<(), Failure> {
    let rate = Rate::from_bytes_per_sec(got.bytes as f64 / got.seconds.max(1e-9));
    println!("{what}: {} in {:.3} s ({rate})", Bytes(got.bytes), got.seconds);
    Ok(())
}

pub(super) async fn receive(
    client: &Client,
    coflow: u64,
    block: &str,
    options: GetOptions,
    file: &mut dyn Write,
) -> Result<Got, Failure> {
    let begun = Instant::now();
    let mut reader = client.get(coflow, block, options);
    let bar = progress::bytes(0, printable(block));
    let mut bytes = 0;
    loop {
        let part = reader.next().await.map_err(said_of_get)?;
        let Some(part) = part else { break };
        file.write_all(part)?;
        bytes += part.len() as u64;
        let size = reader.size();
        size.into_iter().for_each(|size| bar.set_length(size));
        bar.set_position(bytes);
    }
    bar.finish_and_clear();
    let first = reader.first_byte().map(|at| at.duration_since(begun).as_secs_f64());
    Ok(Got {
        coflow,
        block: block.to_owned(),
        bytes,
        seconds: begun.elapsed().as_secs_f64(),
        first_byte_seconds: first,
    })
}

/// The file that a block is written to if none is named: its last part, in this folder.
pub(super) fn file_name(block: &str) -> Result<PathBuf, Failure> {
    let last = block.rsplit('/').next().unwrap_or_default();
    if last.is_empty() || last == "." || last == ".." || last == "-" || last.contains('\0') {
        return Err(Failure::Input(format!("no file is called as {:?}; name one", printable(block))));
    }
    Ok(PathBuf::from(".").join(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_without_a_file_to_write_becomes_one_in_this_folder_and_nowhere_else() {
        let of = |block| file_name(block).ok();
        assert_eq!(of("map-0/reduce-1"), Some(PathBuf::from("./reduce-1")));
        assert_eq!(of("/etc/passwd"), Some(PathBuf::from("./passwd")));
        for block in ["", "a/", "..", "a/..", ".", "-", "a/-", "a\0b"] {
            assert_eq!(of(block), None, "{block:?}");
        }
    }
}

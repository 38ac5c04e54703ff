//! `weir put`: files become blocks.
//!
//! A file is copied into the agent's spool unless it is put in place: what happens to it later then changes nothing, and it may
//! lie anywhere. What is no plain file (standard input, a pipe) is first read to its end into a file without a name there.

use super::peers::{Peers, check_name, coflow_or_refuse, said};
use super::{id_as_text, print_json};
use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use weir_client::{Client, Error};
use weir_console::{Failure, progress};
use weir_model::Bytes;
use weir_proto::limits::MAX_BLOCK_BYTES;
use weir_results::printable;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// On the command line, standard input.
const STANDARD_INPUT: &str = "-";

#[derive(Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    peers: Peers,
    /// Id of the coflow, as `weir register` printed it; WEIR_COFLOW unless said
    #[arg(long, short)]
    coflow: Option<u64>,
    /// Name of the block, of one file; its own name, without folders, unless said
    #[arg(long)]
    name: Option<String>,
    /// Files to put, each as a block; `-` is standard input, and needs --name
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The agent serves the file itself, below a folder that it was given (`weir agent --allow`): nothing is copied, and the
    /// file must stay as it is until the coflow has ended
    #[arg(long)]
    in_place: bool,
    /// First byte of the block in the file
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    offset: u64,
    /// Length of the block; all that follows unless said
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
}

#[derive(Serialize)]
struct Put {
    #[serde(serialize_with = "id_as_text")]
    coflow: u64,
    blocks: Vec<PutBlock>,
}

#[derive(Serialize)]
struct PutBlock {
    block: String,
    bytes: u64,
}

pub(crate) fn put(args: PutArgs) -> Result<(), Failure> {
    let coflow = coflow_or_refuse(args.coflow)?;
    let sources = sources(&args)?;
    // Leases are renewed while this thread reads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        // Files that cannot be read are found before anything is put.
        sources.iter().try_for_each(|(path, _)| check(path, &args))?;
        let client = args.peers.with_agent().await?;
        // Reading may take long, so the lease is renewed from now on. A put needs no coordinator, so it does not wait for one.
        let keeper = client.clone();
        tokio::spawn(async move { keeper.keep(coflow).await });
        let mut blocks = Vec::new();
        for (path, name) in sources {
            let bytes = if args.in_place {
                put_in_place(&client, coflow, &path, &name, &args).await?
            } else {
                put_copy(&client, coflow, &path, &name, &args).await?
            };
            if !args.peers.json {
                println!("block {} of coflow {coflow}: {}", printable(&name), Bytes(bytes));
            }
            blocks.push(PutBlock { block: name, bytes });
        }
        if args.peers.json { print_json(&Put { coflow, blocks }) } else { Ok(()) }
    })
}

/// Each file with the name of its block, before anything is put.
fn sources(args: &PutArgs) -> Result<Vec<(PathBuf, String)>, Failure> {
    if args.name.is_some() && args.files.len() > 1 {
        return Err(Failure::Input("--name is for one file; several have their own names".to_owned()));
    }
    let mut sources: Vec<(PathBuf, String)> = Vec::new();
    for path in &args.files {
        let own =
            || path.file_name().and_then(|name| name.to_str()).filter(|_| path != Path::new(STANDARD_INPUT));
        let name = args.name.as_deref().or_else(own).ok_or_else(|| {
            Failure::Input(format!(
                "{} has no name that a block could have; say one with --name",
                path.display()
            ))
        })?;
        check_name(name)?;
        if let Some((other, _)) = sources.iter().find(|(_, other)| other == name) {
            return Err(Failure::Input(format!(
                "{} and {} would be one block, {name}; put them in two commands, with --name",
                other.display(),
                path.display()
            )));
        }
        sources.push((path.clone(), name.to_owned()));
    }
    Ok(sources)
}

/// Whether a file is there, and can be read and put.
fn check(path: &Path, args: &PutArgs) -> Result<(), Failure> {
    if path == Path::new(STANDARD_INPUT) {
        return if args.in_place {
            Err(Failure::Input("standard input is no file that could be put in place".to_owned()))
        } else {
            Ok(())
        };
    }
    let found = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if found.is_dir() {
        return Err(Failure::Input(format!("{} is a folder; put the files in it", path.display())));
    }
    if args.in_place && path.to_str().is_none() {
        return Err(Failure::Input(format!("{} is no UTF-8, and cannot be put in place", path.display())));
    }
    if !found.is_file() && args.in_place {
        return Err(Failure::Input(format!(
            "{} is no plain file, and cannot be put in place",
            path.display()
        )));
    }
    if !found.is_file() {
        return Ok(());
    }
    File::open(path).map_err(|error| unreadable(path, &error))?;
    // Of a file without a length (in /proc) it is found out when it is read.
    if found.len() > 0 { length(path, found.len(), args).map(drop) } else { Ok(()) }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Input(format!("{}: {error}", path.display()))
}

/// Bytes of the file from the offset on that are to be put.
fn length(path: &Path, size: u64, args: &PutArgs) -> Result<u64, Failure> {
    let left = size.checked_sub(args.offset).filter(|left| args.length.is_none_or(|length| length <= *left));
    let left = left.ok_or_else(|| {
        Failure::Input(format!(
            "{} has {size} bytes; --offset and --length go beyond its end",
            path.display()
        ))
    })?;
    Ok(args.length.unwrap_or(left))
}

async fn put_in_place(
    client: &Client,
    coflow: u64,
    path: &Path,
    name: &str,
    args: &PutArgs,
) -> Result<u64, Failure> {
    let file = std::fs::canonicalize(path).map_err(|error| unreadable(path, &error))?;
    let found = std::fs::metadata(&file).map_err(|error| unreadable(path, &error))?;
    let length = length(path, found.len(), args)?;
    client.put_file(coflow, name, &file, args.offset, length).await.map_err(said)?;
    Ok(length)
}

async fn put_copy(
    client: &Client,
    coflow: u64,
    path: &Path,
    name: &str,
    args: &PutArgs,
) -> Result<u64, Failure> {
    let mut file = plain_file(client, path, args).await?;
    // Of the open file: by now the path may be another file's.
    let size = file.metadata()?.len();
    let length = length(path, size, args)?;
    file.seek(SeekFrom::Start(args.offset))?;
    let memory = client.memory_block(length).await;
    let mut memory = memory.map_err(|error| match error {
        Error::Memory(error) => Failure::Run(anyhow!(
            "no room for a copy of {}, of {}, in the agent's spool ({error}): make room there, or put it with --in-place",
            path.display(),
            Bytes(length)
        )),
        error => said(error),
    })?;
    let bar = progress::bytes(length, printable(name));
    copy(&mut file, &mut memory, &bar).map_err(|error| unread(path, &error))?;
    bar.finish_and_clear();
    client.put_memory(coflow, name, memory).await.map_err(said)?;
    Ok(length)
}

fn copy(file: &mut File, memory: &mut [u8], bar: &ProgressBar) -> std::io::Result<()> {
    for piece in memory.chunks_mut(PIECE_BYTES) {
        file.read_exact(piece)?;
        bar.inc(piece.len() as u64);
    }
    Ok(())
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
        _ => error.to_string(),
    };
    Failure::Run(anyhow!("cannot read {}: {why}", path.display()))
}

/// The file, or all that comes out of it, in a file without a name that goes with this process.
async fn plain_file(client: &Client, path: &Path, args: &PutArgs) -> Result<File, Failure> {
    let mut source: Box<dyn Read> = if path == Path::new(STANDARD_INPUT) {
        Box::new(std::io::stdin().lock())
    } else {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let found = file.metadata().map_err(|error| unreadable(path, &error))?;
        // Files in /proc say that they have no bytes, and have some.
        if found.is_file() && found.len() > 0 {
            return Ok(file);
        }
        Box::new(file)
    };
    let spool = client.describe().await.map_err(said)?.spool;
    let unwritten = || format!("cannot write to the spool {spool}");
    let mut copy = tempfile::tempfile_in(&spool).with_context(unwritten)?;
    let bar = progress::counter(path.display().to_string(), "bytes");
    // Bytes behind the block are not waited for.
    let wanted = args.length.map_or(u64::MAX, |length| args.offset.saturating_add(length));
    let mut left = wanted.min(MAX_BLOCK_BYTES);
    let mut piece = vec![0; PIECE_BYTES];
    while left > 0 {
        let most = left.min(PIECE_BYTES as u64) as usize;
        let count = match source.read(&mut piece[..most]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(|error| unread(path, &error))?,
        };
        if count == 0 {
            break;
        }
        copy.write_all(&piece[..count]).with_context(unwritten)?;
        left -= count as u64;
        bar.inc(count as u64);
    }
    bar.finish_and_clear();
    Ok(copy)
}

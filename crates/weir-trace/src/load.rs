//! What `--trace` names: a file in one of the known formats, or a synthetic workload.

use crate::coflow_benchmark::{self, MEGABYTE};
use crate::synthetic::{self, SYNTHETIC, SyntheticError};
use crate::text::without_mark;
use crate::{Job, ReadError, Workload, weir_format};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Why a workload could not be had.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no such file, or it may not be read.
    #[error("{path}: {source}")]
    Open {
        /// As it was given.
        path: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file is malformed.
    #[error("{path}: {source}")]
    Read {
        /// As it was given.
        path: String,
        /// Where in the file, and why.
        source: ReadError,
    },
    /// No synthetic workload has that name, or not with such parameters.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
}

type Input = BufReader<File>;

enum Kind {
    Benchmark(coflow_benchmark::Reader<Input>),
    Weir(weir_format::Reader<Input>),
    Made(std::vec::IntoIter<Job>),
}

/// A workload that is read job by job.
pub struct Source {
    name: String,
    path: String,
    hosts: u32,
    kind: Kind,
}

/// Opens what `--trace` names. `seed` is for synthetic workloads; files ignore it.
///
/// # Errors
/// The file cannot be opened or its first lines are malformed, or there is no synthetic workload of this name with
/// these parameters.
pub fn open(spec: &str, seed: u64) -> Result<Source, LoadError> {
    if let Some(name) = spec.strip_prefix(SYNTHETIC) {
        let workload = synthetic::generate(name, seed)?;
        let (name, hosts) = (workload.name, workload.hosts);
        return Ok(Source { path: name.clone(), name, hosts, kind: Kind::Made(workload.jobs.into_iter()) });
    }
    let opened = File::open(spec).and_then(|file| {
        // Opening a directory succeeds; reading it does not.
        let mut input = BufReader::with_capacity(MEGABYTE as usize, file);
        let is_ours = without_mark(input.fill_buf()?).starts_with(weir_format::MAGIC.as_bytes());
        Ok((input, is_ours))
    });
    let (input, is_ours) = opened.map_err(|source| LoadError::Open { path: spec.to_owned(), source })?;
    let malformed = |source| LoadError::Read { path: spec.to_owned(), source };
    let path = spec.to_owned();
    let file_name = Path::new(spec).file_name().map_or_else(|| spec.into(), |name| name.to_string_lossy());
    if is_ours {
        let reader = weir_format::Reader::new(input).map_err(malformed)?;
        let name = reader.name().unwrap_or(&file_name).to_owned();
        return Ok(Source { name, path, hosts: reader.hosts(), kind: Kind::Weir(reader) });
    }
    let reader = coflow_benchmark::Reader::new(input).map_err(malformed)?;
    let name = file_name.into_owned();
    Ok(Source { name, path, hosts: reader.hosts(), kind: Kind::Benchmark(reader) })
}

/// Reads all of what `--trace` names: see [`open`].
///
/// # Errors
/// As of [`open`], or a later line of the file is malformed or cannot be read.
pub fn load(spec: &str, seed: u64) -> Result<Workload, LoadError> {
    let source = open(spec, seed)?;
    let (name, hosts) = (source.name.clone(), source.hosts);
    Ok(Workload { name, hosts, jobs: source.collect::<Result<_, _>>()? })
}

impl Source {
    /// What the workload is called in results.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of hosts that the workload declares.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }
}

impl Iterator for Source {
    type Item = Result<Job, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let malformed = |source| LoadError::Read { path: self.path.clone(), source };
        match &mut self.kind {
            Kind::Benchmark(reader) => reader.next().map(|coflow| coflow.map(Job::bare).map_err(malformed)),
            Kind::Weir(reader) => reader.next().map(|job| job.map_err(malformed)),
            Kind::Made(jobs) => jobs.next().map(Ok),
        }
    }
}

/// File name of the public Facebook trace.
pub const PUBLIC_TRACE: &str = "FB2010-1Hr-150-0.txt";

/// Where the public Facebook trace is: in the folder `WEIR_TRACE_DIR` names, else in `shared/traces` beside
/// the working directory or a folder around it. Otherwise the places looked at.
///
/// # Errors
/// No file is at any of these places; the error lists them.
pub fn find_public_trace() -> Result<PathBuf, Vec<PathBuf>> {
    let mut places = Vec::new();
    if let Some(folder) = std::env::var_os("WEIR_TRACE_DIR") {
        places.push(Path::new(&folder).join(PUBLIC_TRACE));
    } else {
        // A test runs in its crate's folder, two levels below the workspace.
        for up in ["../", "../../", "../../../"] {
            places.push(Path::new(up).join("shared/traces").join(PUBLIC_TRACE));
        }
    }
    places.iter().find(|place| place.is_file()).cloned().ok_or(places)
}

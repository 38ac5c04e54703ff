//! Writing, one job at a time.

use super::{MAGIC, MAX_SECONDS, MAX_STAGES, PATTERNS, VERSION, is_name};
use crate::text::{MAX_FLOWS_PER_COFLOW, SeenIds};
use crate::{Job, Stage};
use std::collections::BTreeSet;
use std::io::{self, Write};
use weir_model::{CoflowSpec, FlowSpec, Pattern};

/// Sources on one line, at most.
const SOURCES_PER_LINE: usize = 1000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Why something cannot be written so that it reads back.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A reader would refuse it.
    #[error("{what}: {reason}")]
    Invalid {
        /// The job or coflow.
        what: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a file job by job.
pub struct Writer<W> {
    output: W,
    hosts: u32,
    jobs: u64,
    job_ids: SeenIds,
    coflow_ids: SeenIds,
}

impl<W: Write> Writer<W> {
    /// Writes the first lines.
    ///
    /// # Errors
    /// The name is not one line without spaces around it, or the output cannot be written.
    pub fn new(mut output: W, hosts: u32, name: Option<&str>) -> Result<Writer<W>, WriteError> {
        writeln!(output, "{MAGIC} {VERSION}\nhosts {hosts}")?;
        if let Some(name) = name {
            if !is_name(name) {
                let reason = "a name is one line without spaces around it";
                return Err(WriteError::Invalid { what: "the workload".to_owned(), reason });
            }
            writeln!(output, "name {name}")?;
        }
        Ok(Writer { output, hosts, jobs: 0, job_ids: SeenIds::default(), coflow_ids: SeenIds::default() })
    }

    /// Writes the next job. A refused job leaves nothing behind.
    ///
    /// # Errors
    /// The job cannot be said in the format (its name, stages, times, weights, flows, or an id that was written
    /// before), or the output cannot be written.
    pub fn write(&mut self, job: &Job) -> Result<(), WriteError> {
        self.check(job)?;
        self.jobs += 1;
        let output = &mut self.output;
        let arrival = Seconds(job.arrival.nanos());
        if let (true, [stage]) = (job.is_bare(), job.stages.as_slice()) {
            write!(output, "coflow {} {arrival}", job.id)?;
            return write_coflow(output, &stage.coflow);
        }
        write!(output, "job {} {arrival}", job.id)?;
        if let Some(name) = &job.name {
            write!(output, " name={name}")?;
        }
        writeln!(output)?;
        for stage in &job.stages {
            write_stage(output, stage)?;
        }
        Ok(())
    }

    /// Writes the last line and gives the output back.
    ///
    /// # Errors
    /// The output cannot be written or flushed.
    pub fn finish(mut self) -> Result<W, WriteError> {
        writeln!(self.output, "end {}", self.jobs)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn check(&mut self, job: &Job) -> Result<(), WriteError> {
        let refuse = |reason| WriteError::Invalid { what: format!("job {}", job.id), reason };
        let too_long = |nanos: u64| nanos / NANOS_PER_SEC > MAX_SECONDS;
        if !job.name.as_deref().is_none_or(is_name) {
            return Err(refuse("a name is one line without spaces around it"));
        }
        if job.stages.is_empty() || job.stages.len() > MAX_STAGES {
            return Err(refuse("it has no stage, or too many"));
        }
        if too_long(job.arrival.nanos()) || job.stages.iter().any(|stage| too_long(stage.compute.nanos())) {
            return Err(refuse("a time is too long"));
        }
        let mut stages = job.stages.iter().enumerate();
        if stages.any(|(index, stage)| stage.after.iter().any(|&other| other >= index)) {
            return Err(refuse("a stage waits for one that is not earlier"));
        }
        for coflow in job.stages.iter().map(|stage| &stage.coflow) {
            let refuse = |reason| WriteError::Invalid { what: format!("coflow {}", coflow.id), reason };
            if !(coflow.weight > 0.0 && coflow.weight.is_finite()) {
                return Err(refuse("its weight is not a finite number above 0"));
            }
            if coflow.deadline.is_some_and(|deadline| too_long(deadline.nanos())) {
                return Err(refuse("its deadline is too long"));
            }
            if coflow.flows.len() > MAX_FLOWS_PER_COFLOW {
                return Err(refuse("it has too many flows"));
            }
            let outside = |flow: &FlowSpec| flow.source.0 >= self.hosts || flow.destination.0 >= self.hosts;
            if coflow.flows.iter().any(|flow| outside(flow) || flow.size.0 == 0) {
                return Err(refuse("a flow has no bytes, or an end that is no host"));
            }
        }
        let ids = || job.stages.iter().map(|stage| stage.coflow.id.0);
        let mut own = BTreeSet::new();
        if self.job_ids.contains(job.id.0) || ids().any(|id| self.coflow_ids.contains(id) || !own.insert(id))
        {
            return Err(refuse("its id, or one of its coflows', was written before"));
        }
        // After all checks: a job that was refused may be written in another form, under the same ids.
        self.job_ids.insert(job.id.0);
        ids().for_each(|id| _ = self.coflow_ids.insert(id));
        Ok(())
    }
}

fn write_stage(output: &mut impl Write, stage: &Stage) -> Result<(), WriteError> {
    write!(output, "stage {}", stage.coflow.id)?;
    if stage.compute.nanos() > 0 {
        write!(output, " compute={}", Seconds(stage.compute.nanos()))?;
    }
    for (index, other) in stage.after.iter().enumerate() {
        write!(output, "{}{other}", if index == 0 { " after=" } else { "," })?;
    }
    write_coflow(output, &stage.coflow)
}

/// The rest of a coflow's line, and its flows.
fn write_coflow(output: &mut impl Write, coflow: &CoflowSpec) -> Result<(), WriteError> {
    if coflow.weight != 1.0 {
        // Rust prints the shortest decimal that reads back as the same number.
        write!(output, " weight={}", coflow.weight)?;
    }
    if let Some(deadline) = coflow.deadline {
        write!(output, " deadline={}", Seconds(deadline.nanos()))?;
    }
    if coflow.pattern != Pattern::Any {
        let name = PATTERNS.iter().find(|(_, pattern)| *pattern == coflow.pattern);
        write!(output, " pattern={}", name.map_or("any", |(name, _)| name))?;
    }
    writeln!(output)?;
    let alike =
        |a: &FlowSpec, b: &FlowSpec| (a.destination, a.size, a.group) == (b.destination, b.size, b.group);
    for flows in coflow.flows.chunk_by(alike).flat_map(|flows| flows.chunks(SOURCES_PER_LINE)) {
        for (index, flow) in flows.iter().enumerate() {
            write!(output, "{}{}", if index == 0 { "flow " } else { "," }, flow.source)?;
        }
        write!(output, " {} {}", flows[0].destination, flows[0].size.0)?;
        if flows[0].group > 0 {
            write!(output, " {}", flows[0].group)?;
        }
        writeln!(output)?;
    }
    Ok(())
}

/// Nanoseconds as seconds, without decimals that mean nothing.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, nanos) = (self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC);
        if nanos == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{nanos:09}").trim_end_matches('0'))
    }
}

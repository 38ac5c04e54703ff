//! Reading, one job at a time.

use super::{MAGIC, MAX_SECONDS, MAX_STAGES, PATTERNS, VERSION, is_name};
use crate::text::{Lines, MAX_FLOWS_PER_COFLOW, MAX_HOSTS, SeenIds, Total, Words, host, quote};
use crate::{Job, ReadError, Stage};
use std::io::BufRead;
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, JobId, Pattern, Span, Time};

const COMMENT: Option<char> = Some('#');
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Reads a file job by job.
pub struct Reader<R> {
    lines: Lines<R>,
    name: Option<String>,
    state: State,
    done: bool,
}

/// What was read so far.
struct State {
    hosts: u32,
    jobs: u64,
    job_ids: SeenIds,
    coflow_ids: SeenIds,
    total: Total,
    open: Option<OpenJob>,
}

/// The job that is being read, and where it began.
struct OpenJob {
    job: Job,
    line: usize,
    bare: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads up to the name.
    ///
    /// # Errors
    /// The input cannot be read, is of another version, or its number of hosts or its name is malformed.
    pub fn new(input: R) -> Result<Reader<R>, ReadError> {
        let mut lines = Lines::new(input);
        read_version(&mut lines)?;
        let hosts = read_hosts(&mut lines)?;
        let name = read_name(&mut lines)?;
        let (job_ids, coflow_ids, total) = (SeenIds::default(), SeenIds::default(), Total::default());
        let state = State { hosts, jobs: 0, job_ids, coflow_ids, total, open: None };
        Ok(Reader { lines, name, state, done: false })
    }

    /// Number of hosts that the file declares.
    pub fn hosts(&self) -> u32 {
        self.state.hosts
    }

    /// The workload's name, if the file states one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn next_job(&mut self) -> Result<Option<Job>, ReadError> {
        loop {
            let line = self.lines.line() + 1;
            let Some(mut words) = self.lines.next(COMMENT)? else {
                return Err(malformed(line, 1, "the file ends without `end`"));
            };
            let (column, keyword) = words.word("a keyword")?;
            match keyword {
                "flow" => self.state.read_flow(column, &mut words)?,
                "stage" => self.state.read_stage(column, &mut words)?,
                "coflow" | "job" => {
                    let complete = self.state.close()?;
                    // A job is complete once the next one begins, whose line is taken in before the job is handed out.
                    self.state.read_job(keyword == "coflow", &mut words)?;
                    if complete.is_some() {
                        return Ok(complete);
                    }
                }
                "end" => {
                    let complete = self.state.close()?;
                    self.done = true;
                    let column = words.column();
                    let promised = words.whole("the number of jobs", u64::MAX)?;
                    // The count tells a whole file from one that lost jobs on its way.
                    if promised != self.state.jobs {
                        let reason =
                            format!("{promised} jobs are promised, but the file has {}", self.state.jobs);
                        return Err(words.malformed(column, reason));
                    }
                    words.end()?;
                    self.read_past_end()?;
                    return Ok(complete);
                }
                _ => {
                    let reason = format!("unknown {}; known: coflow, job, stage, flow, end", quote(keyword));
                    return Err(words.malformed(column, reason));
                }
            }
        }
    }

    fn read_past_end(&mut self) -> Result<(), ReadError> {
        let Some(mut words) = self.lines.next(COMMENT)? else { return Ok(()) };
        let (column, word) = words.word("nothing")?;
        Err(words.malformed(column, format!("unexpected {} after `end`", quote(word))))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Job, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_job().transpose();
        // After an error nothing more is read: a line that is missing would make others mean
        // something else.
        self.done |= !matches!(next, Some(Ok(_)));
        next
    }
}

fn malformed(line: usize, column: usize, reason: impl Into<String>) -> ReadError {
    ReadError::Malformed { line, column, reason: reason.into() }
}

fn read_version<R: BufRead>(lines: &mut Lines<R>) -> Result<(), ReadError> {
    let Some(mut words) = lines.next(COMMENT)? else {
        return Err(malformed(1, 1, format!("the file is empty; `{MAGIC} {VERSION}` should be here")));
    };
    let (column, magic) = words.word("a version")?;
    if magic != MAGIC {
        return Err(words.malformed(column, format!("{} where `{MAGIC}` should be", quote(magic))));
    }
    let column = words.column();
    let version = words.whole("the version", u64::MAX)?;
    if version != VERSION {
        let reason = format!("version {version} of the format; this reader knows version {VERSION}");
        return Err(words.malformed(column, reason));
    }
    words.end()
}

fn read_hosts<R: BufRead>(lines: &mut Lines<R>) -> Result<u32, ReadError> {
    let line = lines.line() + 1;
    let Some(mut words) = lines.next(COMMENT)? else {
        return Err(malformed(line, 1, "the file ends where `hosts` should be"));
    };
    let (column, keyword) = words.word("`hosts`")?;
    if keyword != "hosts" {
        return Err(words.malformed(column, format!("{} where `hosts` should be", quote(keyword))));
    }
    let column = words.column();
    let hosts = words.whole("the number of hosts", u64::from(MAX_HOSTS))? as u32;
    if hosts == 0 {
        return Err(words.malformed(column, "a workload needs at least one host"));
    }
    words.end()?;
    Ok(hosts)
}

fn read_name<R: BufRead>(lines: &mut Lines<R>) -> Result<Option<String>, ReadError> {
    let Some(mut words) = lines.next(COMMENT)? else { return Ok(None) };
    if words.word("a keyword")?.1 != "name" {
        // The name may be missing: the line is that of the first job.
        lines.unread();
        return Ok(None);
    }
    let (column, name) = words.rest();
    if !is_name(name) {
        return Err(words.malformed(column, "a name should be here, without control characters"));
    }
    Ok(Some(name.to_owned()))
}

impl State {
    /// The job read so far is complete.
    fn close(&mut self) -> Result<Option<Job>, ReadError> {
        let Some(OpenJob { mut job, line, .. }) = self.open.take() else { return Ok(None) };
        if job.stages.is_empty() {
            return Err(malformed(line, 1, format!("job {} has no stage", job.id)));
        }
        job.set_arrivals();
        Ok(Some(job))
    }

    fn read_job(&mut self, bare: bool, words: &mut Words<'_>) -> Result<(), ReadError> {
        let column = words.column();
        let id = words.whole("the id", u64::MAX)?;
        let arrival = Time::ZERO + read_seconds(words, "the arrival")?;
        if !self.job_ids.insert(id) {
            let what = if bare { "coflow" } else { "job" };
            return Err(words.malformed(column, format!("{what} {id} appears twice")));
        }
        self.jobs += 1;
        let mut job = Job { id: JobId(id), arrival, name: None, stages: Vec::new() };
        if bare {
            let coflow = CoflowSpec::new(CoflowId(id), arrival, Vec::new());
            let mut stage = Stage { compute: Span::ZERO, after: Vec::new(), coflow };
            self.note_coflow(column, id, words)?;
            while let Some(option) = read_option(words)? {
                if !option.apply_to_coflow(words, &mut stage.coflow)? {
                    return Err(option.unknown(words, "weight, deadline, pattern"));
                }
            }
            job.stages.push(stage);
        } else if let Some(option) = read_option(words)? {
            if option.key != "name" {
                return Err(option.unknown(words, "name"));
            }
            // The name goes on to the end of the line, spaces included.
            let (_, more) = words.rest_from(option.value_column);
            if !is_name(more) {
                return Err(words.malformed(option.value_column, "a name should be here"));
            }
            job.name = Some(more.to_owned());
        }
        self.open = Some(OpenJob { job, line: words.line(), bare });
        Ok(())
    }

    fn note_coflow(&mut self, column: usize, id: u64, words: &Words<'_>) -> Result<(), ReadError> {
        if self.coflow_ids.insert(id) {
            Ok(())
        } else {
            Err(words.malformed(column, format!("coflow {id} appears twice")))
        }
    }

    fn read_stage(&mut self, keyword: usize, words: &mut Words<'_>) -> Result<(), ReadError> {
        let column = words.column();
        let id = words.whole("the coflow id", u64::MAX)?;
        self.note_coflow(column, id, words)?;
        let Some(OpenJob { job, bare: false, .. }) = &mut self.open else {
            return Err(words.malformed(keyword, "a stage before the first job"));
        };
        if job.stages.len() == MAX_STAGES {
            return Err(words.malformed(keyword, format!("more than {MAX_STAGES} stages")));
        }
        let coflow = CoflowSpec::new(CoflowId(id), job.arrival, Vec::new());
        let mut stage = Stage { compute: Span::ZERO, after: Vec::new(), coflow };
        while let Some(option) = read_option(words)? {
            match option.key {
                "compute" => stage.compute = option.seconds(words, "the compute time")?,
                "after" => stage.after = option.stages(words, job.stages.len())?,
                _ if option.apply_to_coflow(words, &mut stage.coflow)? => {}
                _ => return Err(option.unknown(words, "compute, after, weight, deadline, pattern")),
            }
        }
        job.stages.push(stage);
        Ok(())
    }

    fn read_flow(&mut self, keyword: usize, words: &mut Words<'_>) -> Result<(), ReadError> {
        let stage = self.open.as_mut().and_then(|open| open.job.stages.last_mut());
        let Some(stage) = stage else {
            return Err(words.malformed(keyword, "a flow before the first coflow or stage"));
        };
        let flows = &mut stage.coflow.flows;
        let (mut column, sources) = words.word("the sources")?;
        let (at, destination) = words.word("the destination")?;
        let destination = host(words, at, destination, "the destination", self.hosts)?;
        let at = words.column();
        let size = Bytes(words.whole("the number of bytes", u64::MAX)?);
        if size == Bytes(0) {
            return Err(words.malformed(at, "a flow of 0 bytes"));
        }
        let group = match words.next() {
            Some((at, word)) => words.whole_of(at, word, "the group", u64::from(u32::MAX))? as u32,
            None => 0,
        };
        words.end()?;
        let before = flows.len();
        for source in sources.split(',') {
            let from = host(words, column, source, "a source", self.hosts)?;
            column += source.len() + 1;
            flows.push(FlowSpec { source: from, destination, size, group });
        }
        if flows.len() > MAX_FLOWS_PER_COFLOW {
            return Err(words.malformed(keyword, format!("more than {MAX_FLOWS_PER_COFLOW} flows")));
        }
        self.total.add(size, flows.len() - before).map_err(|reason| words.malformed(at, reason))
    }
}

/// `key=value` and where it stands.
struct KeyValue<'a> {
    column: usize,
    word: &'a str,
    key: &'a str,
    value_column: usize,
    value: &'a str,
}

fn read_option<'a>(words: &mut Words<'a>) -> Result<Option<KeyValue<'a>>, ReadError> {
    let Some((column, word)) = words.next() else { return Ok(None) };
    let Some((key, value)) = word.split_once('=') else {
        return Err(words.malformed(column, format!("{} is not key=value", quote(word))));
    };
    Ok(Some(KeyValue { column, word, key, value_column: column + key.len() + 1, value }))
}

impl KeyValue<'_> {
    fn unknown(&self, words: &Words<'_>, known: &str) -> ReadError {
        words.malformed(self.column, format!("unknown {}; known here: {known}", quote(self.word)))
    }

    /// Whether the key belongs to coflows.
    fn apply_to_coflow(&self, words: &Words<'_>, coflow: &mut CoflowSpec) -> Result<bool, ReadError> {
        match self.key {
            "weight" => {
                coflow.weight = match self.value.parse() {
                    Ok(weight) if weight > 0.0 && f64::is_finite(weight) => weight,
                    _ => return Err(self.wrong(words, "the weight", "not a finite number above 0")),
                }
            }
            "deadline" => coflow.deadline = Some(self.seconds(words, "the deadline")?),
            "pattern" => coflow.pattern = self.pattern(words)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn wrong(&self, words: &Words<'_>, what: &str, why: &str) -> ReadError {
        words.malformed(self.value_column, format!("{what} is {}, {why}", quote(self.value)))
    }

    fn pattern(&self, words: &Words<'_>) -> Result<Pattern, ReadError> {
        let found = PATTERNS.iter().find(|(name, _)| *name == self.value);
        found.map(|&(_, pattern)| pattern).ok_or_else(|| {
            let known: Vec<&str> = PATTERNS.iter().map(|&(name, _)| name).collect();
            let reason = format!("the pattern is {}; known: {}", quote(self.value), known.join(", "));
            words.malformed(self.value_column, reason)
        })
    }

    fn seconds(&self, words: &Words<'_>, what: &str) -> Result<Span, ReadError> {
        seconds(words, self.value_column, self.value, what)
    }

    fn stages(&self, words: &Words<'_>, earlier: usize) -> Result<Vec<usize>, ReadError> {
        let mut column = self.value_column;
        let mut stages = Vec::new();
        for word in self.value.split(',') {
            let stage = words.whole_of(column, word, "a stage", u64::MAX)? as usize;
            // Earlier stages only, so that no job can have a cycle.
            if stage >= earlier {
                let reason = format!("stage {stage} is not an earlier stage of the job");
                return Err(words.malformed(column, reason));
            }
            column += word.len() + 1;
            stages.push(stage);
        }
        Ok(stages)
    }
}

fn read_seconds(words: &mut Words<'_>, what: &str) -> Result<Span, ReadError> {
    let (column, word) = words.word(what)?;
    seconds(words, column, word, what)
}

/// Seconds with at most nine decimals as exact nanoseconds.
fn seconds(words: &Words<'_>, column: usize, word: &str, what: &str) -> Result<Span, ReadError> {
    let parsed = || -> Option<u64> {
        let (whole, decimals) = word.split_once('.').unwrap_or((word, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(decimals) || decimals.len() > 9 {
            return None;
        }
        let whole: u64 = whole.parse().ok().filter(|&whole| whole <= MAX_SECONDS)?;
        // Padded to nine digits and without floating point: the nanoseconds are exactly those that the file says.
        Some(whole * NANOS_PER_SEC + format!("{decimals:0<9}").parse::<u64>().ok()?)
    };
    match parsed() {
        Some(nanos) => Ok(Span::from_nanos(nanos)),
        None => {
            let reason = format!("{what} is {}, not seconds with at most nine decimals", quote(word));
            Err(words.malformed(column, reason))
        }
    }
}

//! The schema of `--json`, version 1, field by field in docs/json.md. Times are seconds; a completion time (CCT) counts from arrival to the
//! last byte.

use super::{Cut, FlowRow, Provenance, mean, percentile};
use serde::Serialize;
use weir_model::{Rate, Span};
use weir_sim::{CoflowRecord, JobRecord};

/// Everything one invocation gives back.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// Version of this schema.
    pub schema: u32,
    /// What they were made with.
    pub made_by: Provenance,
    /// Name of the trace or scenario.
    pub trace: String,
    /// Rate of the hosts' links, each direction, in bits per second.
    pub link_rate_bps: u64,
    /// What was cut out of the trace; null where it was run as it is.
    pub cut: Option<Cut>,
    /// One per policy and mode, in the order asked for.
    pub runs: Vec<Run>,
}

impl Results {
    /// Results without runs yet.
    pub fn new(trace: impl Into<String>, link_rate: Rate, seed: Option<u64>) -> Results {
        let made_by = Provenance::of_this_run(seed);
        // Rates are floating-point numbers of bytes: one that is off in its last digit would lose a
        // whole bit a second by truncation.
        let link_rate_bps = link_rate.bits_per_sec().round() as u64;
        Results { schema: 1, made_by, trace: trace.into(), link_rate_bps, cut: None, runs: Vec::new() }
    }
}

/// How the numbers of a run came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By the fluid simulator.
    Simulated,
    /// By moving real bytes.
    Live,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Simulated => "simulated",
            Mode::Live => "live",
        })
    }
}

/// One policy over the whole workload.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The policy, as it was asked for; `tcp` for none.
    pub policy: String,
    /// Whether it was simulated or bytes were moved.
    pub mode: Mode,
    /// Statistics over all coflows of the run.
    pub summary: Summary,
    /// One row per coflow, in the order of the workload.
    pub coflows: Vec<CoflowRow>,
    /// Absent where every job is a bare coflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobRow>,
    /// Absent unless `--flows` was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowRow>,
}

/// One job of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JobRow {
    /// The job, as the workload numbers it.
    pub id: u64,
    /// When its first coflow could begin, since the run's start.
    pub arrival_s: f64,
    /// Completion time, from the job's arrival to the last byte of its last coflow; null if one was refused.
    pub jct_s: Option<f64>,
    /// Coflows of the job, refused ones included.
    pub coflows: usize,
}

/// One coflow of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CoflowRow {
    /// The coflow, as the workload numbers it.
    pub id: u64,
    /// When it arrived, since the run's start.
    pub arrival_s: f64,
    /// Not a number, and null in the file, if it was refused.
    pub cct_s: f64,
    /// Completion time in an empty fabric (Gamma).
    pub isolation_s: f64,
    /// Number of flows of the coflow.
    pub width: usize,
    /// Payload of all of its flows, headers not counted.
    pub bytes: u64,
    /// Bin of Varys' Table 4, 1 to 4.
    pub bin: u8,
    /// Whether the policy let it in; policies without admission let everything in.
    pub admitted: bool,
    /// From its arrival; null without one.
    pub deadline_s: Option<f64>,
    /// Whether it met its deadline; null without one.
    pub met: Option<bool>,
}

impl CoflowRow {
    /// A row from a record of the simulator (or one like it) and the coflow's deadline.
    pub fn new(record: &CoflowRecord, deadline: Option<Span>) -> CoflowRow {
        CoflowRow {
            id: record.id.0,
            arrival_s: record.arrival.as_secs(),
            // In JSON this becomes null: a coflow that was refused has no completion time.
            cct_s: if record.admitted { record.cct.as_secs() } else { f64::NAN },
            isolation_s: record.isolation.as_secs(),
            width: record.width,
            bytes: record.bytes.0,
            bin: record.bin,
            admitted: record.admitted,
            deadline_s: deadline.map(Span::as_secs),
            met: deadline.map(|deadline| record.admitted && record.cct <= deadline),
        }
    }

    /// Completion time over isolation time; 1 for a coflow that needs no time.
    pub fn slowdown(&self) -> f64 {
        if self.isolation_s > 0.0 { self.cct_s / self.isolation_s } else { 1.0 }
    }
}

/// Statistics over the coflows of a run that were let in; not numbers, and null in the file, without any.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of coflows, those refused included.
    pub coflows: usize,
    /// Coflows that were let in; all that follows is of these.
    pub admitted: usize,
    /// Arithmetic mean of completion times.
    pub avg_cct_s: f64,
    /// Median of completion times, interpolated.
    pub p50_cct_s: f64,
    /// 95th percentile of completion times, interpolated.
    pub p95_cct_s: f64,
    /// 99th percentile of completion times, interpolated.
    pub p99_cct_s: f64,
    /// Mean of completion time over isolation time.
    pub avg_slowdown: f64,
    /// When the last byte arrived.
    pub makespan_s: f64,
    /// Coflows that met their deadline; null if none has one.
    pub deadlines_met: Option<usize>,
    /// Coflows that were let in and missed their deadline; null if none has one.
    pub admitted_late: Option<usize>,
    /// Of the jobs that were complete; absent where every job is a bare coflow.
    #[serde(flatten)]
    pub jobs: Option<JobSummary>,
    /// Processor time the run took (of this process and those it started).
    pub cpu_s: f64,
}

/// Statistics over the jobs of a run that were complete.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct JobSummary {
    /// Number of jobs, those with a refused coflow included.
    pub jobs: usize,
    /// Arithmetic mean of completion times of jobs.
    pub avg_jct_s: f64,
    /// 95th percentile of completion times of jobs, interpolated.
    pub p95_jct_s: f64,
}

impl Run {
    /// A run with the statistics of its coflows.
    pub fn new(policy: impl Into<String>, mode: Mode, coflows: Vec<CoflowRow>, cpu_s: f64) -> Run {
        let completed = || coflows.iter().filter(|row| row.admitted);
        let mut ccts: Vec<f64> = completed().map(|row| row.cct_s).collect();
        ccts.sort_by(f64::total_cmp);
        let slowdowns: Vec<f64> = completed().map(CoflowRow::slowdown).collect();
        let stated = coflows.iter().any(|row| row.met.is_some());
        let count = |wanted: bool, admitted: bool| {
            let rows = coflows.iter().filter(|row| row.met == Some(wanted) && row.admitted == admitted);
            // Nothing where no coflow has a deadline: a 0 would read as if all were missed.
            stated.then(|| rows.count())
        };
        let summary = Summary {
            coflows: coflows.len(),
            admitted: ccts.len(),
            avg_cct_s: mean(&ccts),
            p50_cct_s: percentile(&ccts, 0.5),
            p95_cct_s: percentile(&ccts, 0.95),
            p99_cct_s: percentile(&ccts, 0.99),
            avg_slowdown: mean(&slowdowns),
            // `max` passes over what is not a number, so that only a run without coflows keeps it.
            makespan_s: completed().map(|row| row.arrival_s + row.cct_s).fold(f64::NAN, f64::max),
            deadlines_met: count(true, true),
            admitted_late: count(false, true),
            jobs: None,
            cpu_s,
        };
        Run { policy: policy.into(), mode, summary, coflows, jobs: Vec::new(), flows: Vec::new() }
    }

    /// The same with its jobs, of which there are none where every job is a bare coflow.
    pub fn with_jobs(mut self, jobs: &[JobRecord]) -> Run {
        let row = |job: &JobRecord| JobRow {
            id: job.id.0,
            arrival_s: job.arrival.as_secs(),
            jct_s: job.jct.map(Span::as_secs),
            coflows: job.coflows,
        };
        self.jobs = jobs.iter().map(row).collect();
        let mut jcts: Vec<f64> = self.jobs.iter().filter_map(|job| job.jct_s).collect();
        jcts.sort_by(f64::total_cmp);
        let (avg_jct_s, p95_jct_s) = (mean(&jcts), percentile(&jcts, 0.95));
        self.summary.jobs =
            (!jobs.is_empty()).then_some(JobSummary { jobs: jobs.len(), avg_jct_s, p95_jct_s });
        self
    }

    /// The coflows that were let in: they have a completion time.
    pub fn completed(&self) -> impl Iterator<Item = &CoflowRow> {
        self.coflows.iter().filter(|row| row.admitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u64, cct_s: f64, met: Option<bool>) -> CoflowRow {
        CoflowRow {
            id,
            arrival_s: id as f64,
            cct_s,
            isolation_s: 1.0,
            width: 1,
            bytes: 10,
            bin: 1,
            admitted: true,
            deadline_s: met.map(|_| 3.0),
            met,
        }
    }

    #[test]
    fn summary_counts_from_arrivals_to_last_bytes() {
        // Ends at 1 + 4 = 5 and 2 + 2 = 4.
        let run = Run::new("fair", Mode::Simulated, vec![row(1, 4.0, None), row(2, 2.0, None)], 0.5);
        let Summary { avg_cct_s, p50_cct_s, avg_slowdown, makespan_s, deadlines_met, .. } = run.summary;
        assert_eq!((avg_cct_s, p50_cct_s, avg_slowdown, makespan_s), (3.0, 3.0, 3.0, 5.0));
        assert_eq!(deadlines_met, None);
        let run = Run::new("x", Mode::Live, vec![row(1, 4.0, Some(false)), row(2, 2.0, Some(true))], 0.5);
        assert_eq!((run.summary.deadlines_met, run.summary.admitted_late), (Some(1), Some(1)));
    }

    #[test]
    fn refused_coflows_have_no_completion_time_and_miss_their_deadline() {
        let refused = CoflowRow { admitted: false, cct_s: f64::NAN, ..row(1, 0.0, Some(false)) };
        let run = Run::new("x", Mode::Simulated, vec![refused, row(2, 2.0, Some(true))], 0.5);
        let Summary { coflows, admitted, avg_cct_s, makespan_s, .. } = run.summary;
        assert_eq!((coflows, admitted, avg_cct_s, makespan_s), (2, 1, 2.0, 4.0));
        assert_eq!((run.summary.deadlines_met, run.summary.admitted_late), (Some(1), Some(0)));
        let text = serde_json::to_string(&run).unwrap();
        assert!(text.contains(r#""id":1,"arrival_s":1.0,"cct_s":null,"#), "{text}");
    }

    #[test]
    fn jobs_are_summed_up_where_there_are_any() {
        let job = |id, jct: Option<u64>| JobRecord {
            id: weir_model::JobId(id),
            arrival: weir_model::Time::from_millis(500),
            jct: jct.map(Span::from_millis),
            coflows: 2,
        };
        let run = Run::new("x", Mode::Simulated, vec![row(1, 4.0, None)], 0.5);
        let run = run.with_jobs(&[job(1, Some(2000)), job(2, Some(4000)), job(3, None)]);
        let text = serde_json::to_string(&run).unwrap();
        assert!(
            text.contains(r#""admitted_late":null,"jobs":3,"avg_jct_s":3.0,"p95_jct_s":3.9,"cpu_s""#),
            "{text}"
        );
        assert!(text.contains(r#""jobs":[{"id":1,"arrival_s":0.5,"jct_s":2.0,"coflows":2},"#), "{text}");
        assert!(text.ends_with(r#"{"id":3,"arrival_s":0.5,"jct_s":null,"coflows":2}]}"#), "{text}");
    }

    #[test]
    fn json_has_the_fields_of_the_schema() {
        let mut results = Results::new("t.txt", "1gbit".parse().unwrap(), Some(7));
        results.made_by =
            Provenance { command: vec!["sim".to_owned()], version: "1", commit: "c", seed: Some(7) };
        results.runs.push(Run::new("fair", Mode::Simulated, vec![row(1, 4.0, None)], 0.5));
        let text = serde_json::to_string(&results).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"schema":1,"made_by":{"command":["sim"],"version":"1","commit":"c","seed":7},"trace":"t.txt","link_rate_bps":1000000000,"cut":null,"runs":[{"policy":"fair","#,
                r#""mode":"simulated","summary":{"coflows":1,"admitted":1,"avg_cct_s":4.0,"p50_cct_s":4.0,"#,
                r#""p95_cct_s":4.0,"p99_cct_s":4.0,"avg_slowdown":4.0,"makespan_s":5.0,"#,
                r#""deadlines_met":null,"admitted_late":null,"cpu_s":0.5},"coflows":[{"id":1,"arrival_s":1.0,"cct_s":4.0,"#,
                r#""isolation_s":1.0,"width":1,"bytes":10,"bin":1,"admitted":true,"deadline_s":null,"met":null}]}]}"#
            )
        );
    }
}

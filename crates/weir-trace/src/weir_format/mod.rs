//! Our own format, version 1: jobs, stages, explicit flows, weights, deadlines, patterns.
//!
//! Text, one thing per line; blank lines and lines that begin with `#` mean nothing. Times are seconds with
//! at most nine decimals, so that every nanosecond has its text. docs/trace-format.md shows examples.
//!
//! ```text
//! weir-trace 1
//! hosts COUNT
//! name TEXT                                                      (may be missing)
//! coflow ID ARRIVAL [weight=W] [deadline=S] [pattern=P]          a bare coflow: a job of one stage
//! job ID ARRIVAL [name=TEXT TO THE END OF THE LINE]
//! stage COFLOW-ID [compute=S] [after=INDEX,..] [weight=W] [deadline=S] [pattern=P]   of the last job
//! flow SOURCE[,SOURCE..] DESTINATION BYTES [GROUP]               of the last coflow or stage
//! end JOBS
//! ```
//!
//! `end` says how many jobs (bare coflows included) came before it, so that a cut file is found out.
//! [`Reader`] and [`Writer`] hold one job at a time. A reader refuses any version but its own.

mod reader;
mod writer;

pub use reader::Reader;
pub use writer::{WriteError, Writer};

use weir_model::Pattern;

/// First word of every file.
pub const MAGIC: &str = "weir-trace";
/// The version read and written here.
pub const VERSION: u64 = 1;
/// Most stages a job may have.
pub const MAX_STAGES: usize = 1 << 16;
/// Longest time in a file, in seconds: more than a century.
pub const MAX_SECONDS: u64 = 1 << 32;

const PATTERNS: [(&str, Pattern); 5] = [
    ("shuffle", Pattern::Shuffle),
    ("broadcast", Pattern::Broadcast),
    ("aggregation", Pattern::Aggregation),
    ("all-to-all", Pattern::AllToAll),
    ("any", Pattern::Any),
];

/// Whether a text can stand at the end of a line: not empty, on one line, without spaces around it.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Job, Stage};
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, JobId, Span, Time};

    const HOSTS: u32 = 40;

    fn read(text: &[u8]) -> Result<Vec<Job>, crate::ReadError> {
        Reader::new(text)?.collect()
    }

    fn written(jobs: &[Job]) -> String {
        let mut writer = Writer::new(Vec::new(), HOSTS, Some("a test")).unwrap();
        jobs.iter().for_each(|job| writer.write(job).unwrap());
        String::from_utf8(writer.finish().unwrap()).unwrap()
    }

    fn flow() -> impl Strategy<Value = FlowSpec> {
        let size = prop_oneof![1..4u64, 1..1u64 << 40];
        (0..HOSTS, 0..4u32, size, 0..3u32).prop_map(|(source, destination, size, group)| FlowSpec {
            source: HostId(source),
            destination: HostId(destination),
            size: Bytes(size),
            group,
        })
    }

    fn nanos() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..MAX_SECONDS * 1_000_000_000, (0..MAX_SECONDS).prop_map(|s| s * 1_000_000_000)]
    }

    fn stage() -> impl Strategy<Value = Stage> {
        let weight = prop_oneof![Just(1.0), 1e-300..1e300f64];
        let pattern = (0..PATTERNS.len()).prop_map(|index| PATTERNS[index].1);
        (vec(flow(), 0..12), nanos(), vec(any::<usize>(), 0..3), weight, option::of(nanos()), pattern)
            .prop_map(|(flows, compute, after, weight, deadline, pattern)| {
                let deadline = deadline.map(Span::from_nanos);
                let base = CoflowSpec::new(CoflowId(0), Time::ZERO, flows);
                let coflow = CoflowSpec { weight, deadline, pattern, ..base };
                Stage { compute: Span::from_nanos(compute), after, coflow }
            })
    }

    /// Jobs as a reader gives them: ids unique, stages wait for earlier ones, arrivals set.
    fn jobs() -> impl Strategy<Value = Vec<Job>> {
        let name = option::of("[a-z=#,]([ -~]{0,8}[a-z])?");
        let job = (nanos(), name, vec(stage(), 1..5));
        vec(job, 0..6).prop_map(|jobs| {
            let mut coflows = 0..;
            let job = |(id, (arrival, name, mut stages)): (u64, (u64, Option<String>, Vec<Stage>))| {
                for (index, stage) in stages.iter_mut().enumerate() {
                    stage.coflow.id = CoflowId(coflows.next().unwrap());
                    stage.after.iter_mut().for_each(|other| *other %= index.max(1));
                    stage.after.sort_unstable();
                    stage.after.dedup();
                    if index == 0 {
                        stage.after.clear();
                    }
                }
                let mut job = Job { id: JobId(id), arrival: Time::from_nanos(arrival), name, stages };
                job.set_arrivals();
                job
            };
            (100..).zip(jobs).map(job).collect()
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(jobs in jobs()) {
            let text = written(&jobs);
            prop_assert_eq!(&read(text.as_bytes()).unwrap(), &jobs);
            prop_assert_eq!(written(&read(text.as_bytes()).unwrap()), text);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
            let _ = read(&[b"weir-trace 1\nhosts 4\n", bytes.as_slice()].concat());
        }

        #[test]
        fn a_changed_byte_never_panics(jobs in jobs(), at in any::<prop::sample::Index>(), byte: u8) {
            let mut bytes = written(&jobs).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = read(&bytes);
        }

        #[test]
        fn a_cut_file_is_found_out(jobs in jobs(), at in any::<prop::sample::Index>()) {
            let text = written(&jobs);
            let cut = &text.as_bytes()[..at.index(text.trim_end().len())];
            // `end 12` cut to `end 1` is found out by the count.
            prop_assert!(read(cut).is_err());
        }
    }

    #[test]
    fn a_small_file_reads_as_documented() {
        let text = "weir-trace 1\n# two things\nhosts 4\nname example\n\ncoflow 7 0.5 weight=2 deadline=1.25\n\
                    flow 0,2 1 1000 3\njob 9 1 name=daily report\nstage 1 compute=2.5 pattern=shuffle\n\
                    flow 3 3 7\nstage 2 after=0\nend 2\n";
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        assert_eq!((reader.hosts(), reader.name()), (4, Some("example")));
        let bare = reader.next().unwrap().unwrap();
        assert!(bare.is_bare());
        let coflow = &bare.stages[0].coflow;
        assert_eq!((coflow.id.0, coflow.arrival, coflow.weight), (7, Time::from_millis(500), 2.0));
        assert_eq!(coflow.deadline, Some(Span::from_millis(1250)));
        let flows: Vec<_> =
            coflow.flows.iter().map(|f| (f.source.0, f.destination.0, f.size.0, f.group)).collect();
        assert_eq!(flows, [(0, 1, 1000, 3), (2, 1, 1000, 3)]);
        let job = reader.next().unwrap().unwrap();
        assert_eq!((job.id, job.name.as_deref(), job.stages.len()), (JobId(9), Some("daily report"), 2));
        assert_eq!(
            (job.stages[0].compute, job.stages[0].coflow.pattern),
            (Span::from_millis(2500), Pattern::Shuffle)
        );
        assert_eq!((&job.stages[1].after, job.stages[1].coflow.arrival), (&vec![0], Time::from_millis(3500)));
        assert!(reader.next().is_none());
    }

    #[test]
    fn malformed_files_say_where_and_why() {
        let head = "weir-trace 1\nhosts 4\n";
        for (body, expected) in [
            ("flow 0 1 5\nend 0\n", "line 3, column 1: a flow before the first coflow or stage"),
            ("stage 1\nend 0\n", "line 3, column 1: a stage before the first job"),
            ("coflow 1 0\nstage 2\nend 1\n", "line 4, column 1: a stage before the first job"),
            ("coflow 1 x\n", "line 3, column 10: the arrival is `x`, not seconds with at most nine decimals"),
            (
                "coflow 1 0.0000000001\n",
                "line 3, column 10: the arrival is `0.0000000001`, not seconds with at most nine decimals",
            ),
            (
                "coflow 1 0 wait=3\n",
                "line 3, column 12: unknown `wait=3`; known here: weight, deadline, pattern",
            ),
            ("coflow 1 0 weight=-1\n", "line 3, column 19: the weight is `-1`, not a finite number above 0"),
            (
                "coflow 1 0 pattern=star\n",
                "line 3, column 20: the pattern is `star`; known: shuffle, broadcast, aggregation, all-to-all, any",
            ),
            ("coflow 1 0\nflow 0,4 1 5\n", "line 4, column 8: a source is `4`, more than 3"),
            ("coflow 1 0\nflow 0 1 0\n", "line 4, column 10: a flow of 0 bytes"),
            (
                "coflow 1 0\nflow 0 1 99999999999999999999\n",
                "line 4, column 10: the number of bytes is `99999999999999999999`, not a whole number",
            ),
            ("coflow 1 0\nflow 0 1 5 0 9\n", "line 4, column 14: unexpected `9` after the end"),
            ("coflow 1 0\ncoflow 1 0\n", "line 4, column 8: coflow 1 appears twice"),
            ("job 1 0\nend 1\n", "line 3, column 1: job 1 has no stage"),
            ("job 1 0\nstage 1 after=0\n", "line 4, column 15: stage 0 is not an earlier stage of the job"),
            ("coflow 1 0\nend 2\n", "line 4, column 5: 2 jobs are promised, but the file has 1"),
            ("coflow 1 0\n", "line 4, column 1: the file ends without `end`"),
            ("end 0\ncoflow 1 0\n", "line 4, column 1: unexpected `coflow` after `end`"),
            ("cofow 1 0\n", "line 3, column 1: unknown `cofow`; known: coflow, job, stage, flow, end"),
        ] {
            let error = read(format!("{head}{body}").as_bytes()).unwrap_err().to_string();
            assert_eq!(error, expected, "{body:?}");
        }
        for (text, expected) in [
            ("", "line 1, column 1: the file is empty; `weir-trace 1` should be here"),
            ("weir-trace 2\n", "line 1, column 12: version 2 of the format; this reader knows version 1"),
            ("weir-trace 1\nends 4\n", "line 2, column 1: `ends` where `hosts` should be"),
            ("weir-trace 1\nhosts 0\n", "line 2, column 7: a workload needs at least one host"),
            ("weir-trace 1\n", "line 2, column 1: the file ends where `hosts` should be"),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap_err().to_string(), expected, "{text:?}");
        }
        assert_eq!(
            read(b"weir-trace 1\nhosts \xff\n").unwrap_err().to_string(),
            "line 2, column 7: not UTF-8 text"
        );
    }

    #[test]
    fn what_could_not_be_read_back_is_not_written() {
        let mut writer = Writer::new(Vec::new(), 2, None).unwrap();
        let flow = FlowSpec { source: HostId(0), destination: HostId(2), size: Bytes(1), group: 0 };
        let mut coflow = CoflowSpec::new(CoflowId(1), Time::ZERO, vec![flow]);
        assert!(writer.write(&Job::bare(coflow.clone())).is_err());
        coflow.flows[0].destination = HostId(1);
        let mut job = Job::bare(coflow);
        job.name = Some("two\nlines".to_owned());
        assert!(writer.write(&job).is_err());
        job.name = None;
        assert!(writer.write(&job).is_ok());
        assert!(writer.write(&job).is_err(), "its ids are taken");
        // A job that is refused for one of its coflows takes no other id.
        let [mut first, second] = [2, 3].map(|id| {
            let mut stage = job.stages[0].clone();
            stage.coflow.id = CoflowId(id);
            Job { id: JobId(id), stages: vec![stage], ..job.clone() }
        });
        first.stages.push(job.stages[0].clone());
        assert!(writer.write(&first).is_err(), "coflow 1 is there");
        first.stages[1] = first.stages[0].clone();
        assert!(writer.write(&first).is_err(), "coflow 2 is there twice");
        first.stages.pop();
        assert!(writer.write(&first).is_ok() && writer.write(&second).is_ok());
        assert!(Writer::new(Vec::new(), 2, Some(" ")).is_err());
    }
}

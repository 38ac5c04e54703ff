//! The coflow-benchmark format, in which the public Facebook trace is stored.
//!
//! Text. Line 1: number of ports, number of coflows. Then one line per coflow: id, arrival in
//! milliseconds, number of mappers, their ports, number of reducers, `port:megabytes` for each. Ports
//! count from 0; a megabyte is 2^20 bytes. Every reducer gets its bytes in equal parts from every mapper,
//! each rounded to the nearest whole byte, at least 1. A mapper and a reducer on one port make a flow too;
//! it uses both directions of the port.
//!
//! [`Reader`] holds one coflow at a time. The format has no weights, deadlines or jobs.

use crate::text::{Lines, MAX_FLOWS_PER_COFLOW, MAX_HOSTS, SeenIds, Total, Words, host, quote};
use std::io::{BufRead, Write};
use weir_model::{Bytes, CoflowId, CoflowSpec, FlowSpec, HostId, Pattern, Time};

pub use crate::text::{MAX_LINE_BYTES, ReadError};

/// Bytes in a megabyte of this format.
pub const MEGABYTE: u64 = 1 << 20;

/// Why a workload cannot be written in this format.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Its flows are not all mappers to all reducers with equal parts per reducer.
    #[error("coflow {0} is not a full shuffle with equal parts per reducer")]
    NotAShuffle(CoflowId),
    /// The arrival is not a whole millisecond.
    #[error("coflow {0} does not arrive at a whole millisecond")]
    Arrival(CoflowId),
    /// A weight or deadline has no place in the format.
    #[error("coflow {0} has a weight or a deadline, which this format cannot hold")]
    Extras(CoflowId),
    /// A part is too large for a number of megabytes to give back every byte.
    #[error("coflow {0} has a flow whose bytes this format cannot hold exactly")]
    Size(CoflowId),
    /// The file could not be written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Reads a trace coflow by coflow.
pub struct Reader<R> {
    lines: Lines<R>,
    hosts: u32,
    coflows: usize,
    read: usize,
    ids: SeenIds,
    total: Total,
    failed: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// The input cannot be read, or its first line is not a number of ports, at least 1, and a number of coflows.
    pub fn new(input: R) -> Result<Reader<R>, ReadError> {
        let mut lines = Lines::new(input);
        let Some(mut words) = lines.next(None)? else {
            let reason = "the file is empty; the number of ports should be here".to_owned();
            return Err(ReadError::Malformed { line: 1, column: 1, reason });
        };
        let hosts = words.whole("the number of ports", u64::from(MAX_HOSTS))? as u32;
        let coflows = words.whole("the number of coflows", 1 << 32)? as usize;
        words.end()?;
        if hosts == 0 {
            return Err(words.malformed(1, "a trace needs at least one port"));
        }
        let (ids, total) = (SeenIds::default(), Total::default());
        Ok(Reader { lines, hosts, coflows, read: 0, ids, total, failed: false })
    }

    /// Number of ports (hosts, or racks in rack-level traces).
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Number of coflows the first line promises; fewer or more is an error.
    pub fn coflows(&self) -> usize {
        self.coflows
    }

    fn next_coflow(&mut self) -> Result<Option<CoflowSpec>, ReadError> {
        let Some(mut words) = self.lines.next(None)? else {
            if self.read == self.coflows {
                return Ok(None);
            }
            let reason = format!("the file ends after {} of {} coflows", self.read, self.coflows);
            return Err(ReadError::Malformed { line: self.lines.line(), column: 1, reason });
        };
        if self.read == self.coflows {
            return Err(words.malformed(1, format!("the first line promises {} coflows only", self.coflows)));
        }
        let coflow = read_coflow(&mut words, self.hosts, &mut self.total)?;
        if !self.ids.insert(coflow.id.0) {
            return Err(words.malformed(1, format!("coflow {} appears twice", coflow.id)));
        }
        self.read += 1;
        Ok(Some(coflow))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<CoflowSpec, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.next_coflow().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

fn read_coflow(words: &mut Words<'_>, hosts: u32, sum: &mut Total) -> Result<CoflowSpec, ReadError> {
    let id = words.whole("the coflow id", u64::MAX)?;
    // At most half of the nanoseconds that 64 bits hold.
    let arrival = words.whole("the arrival in milliseconds", u64::MAX / 2_000_000)?;
    let count = words.whole("the number of mappers", u64::from(MAX_HOSTS))?;
    let mut mappers = Vec::new();
    for _ in 0..count {
        let (column, word) = words.word("a mapper's port")?;
        mappers.push(host(words, column, word, "a mapper's port", hosts)?);
    }
    let count = words.whole("the number of reducers", u64::from(MAX_HOSTS))?;
    let mut flows = Vec::new();
    // A group per reducer, not per port: two reducers on one port stay two tasks.
    for group in 0..count as u32 {
        let (column, destination, total) = read_reducer(words, hosts)?;
        // At least 1 byte: a flow of no bytes is not a flow.
        let size = Bytes(((total / mappers.len() as f64).round() as u64).max(1));
        if flows.len() + mappers.len() > MAX_FLOWS_PER_COFLOW {
            return Err(words.malformed(column, format!("more than {MAX_FLOWS_PER_COFLOW} flows")));
        }
        sum.add(size, mappers.len()).map_err(|reason| words.malformed(column, reason))?;
        flows.extend(mappers.iter().map(|&source| FlowSpec { source, destination, size, group }));
    }
    words.end()?;
    let mut coflow = CoflowSpec::new(CoflowId(id), Time::from_millis(arrival), flows);
    coflow.pattern = Pattern::Shuffle;
    Ok(coflow)
}

/// `port:megabytes`, the second as bytes, and the column.
fn read_reducer(words: &mut Words<'_>, hosts: u32) -> Result<(usize, HostId, f64), ReadError> {
    let (column, word) = words.word("a reducer")?;
    let expected = |what: &str| format!("a reducer is {}, not port:megabytes ({what})", quote(word));
    let Some((port, size)) = word.split_once(':') else {
        return Err(words.malformed(column, expected("no colon")));
    };
    let port: u32 = match port.parse() {
        Ok(port) if port < hosts => port,
        _ => return Err(words.malformed(column, expected(&format!("ports are 0 to {}", hosts - 1)))),
    };
    match size.parse::<f64>() {
        // NaN is in no range, so it is refused here too.
        Ok(size) if (0.0..1e12).contains(&size) => Ok((column, HostId(port), size * MEGABYTE as f64)),
        _ => {
            let column = column + word.len() - size.len();
            Err(words.malformed(column, expected("a size from 0 to 10^12")))
        }
    }
}

/// Writes coflows in this format, one at a time.
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Writes the first line; exactly `coflows` coflows must follow.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(mut output: W, hosts: u32, coflows: usize) -> Result<Writer<W>, WriteError> {
        writeln!(output, "{hosts} {coflows}")?;
        Ok(Writer { output })
    }

    /// Writes the next coflow.
    ///
    /// # Errors
    /// The format cannot hold the coflow (no full shuffle, an arrival between milliseconds, a weight, a deadline, or
    /// a size), and nothing of it was written; or the output cannot be written, and a part of a line may have been.
    pub fn write(&mut self, coflow: &CoflowSpec) -> Result<(), WriteError> {
        let Shuffle { mappers, reducers } = shuffle_of(coflow).ok_or(WriteError::NotAShuffle(coflow.id))?;
        if !coflow.arrival.nanos().is_multiple_of(1_000_000) {
            return Err(WriteError::Arrival(coflow.id));
        }
        if coflow.weight != 1.0 || coflow.deadline.is_some() {
            return Err(WriteError::Extras(coflow.id));
        }
        let written = |(port, part)| {
            let megabytes = shortest_megabytes(part, mappers.len()).ok_or(WriteError::Size(coflow.id))?;
            Ok(format!(" {port}:{megabytes}"))
        };
        // Before the first byte goes out: of a coflow that the format cannot hold nothing is
        // written.
        let reducers = reducers.into_iter().map(written).collect::<Result<Vec<_>, WriteError>>()?;
        let output = &mut self.output;
        write!(output, "{} {} {}", coflow.id, coflow.arrival.nanos() / 1_000_000, mappers.len())?;
        for mapper in &mappers {
            write!(output, " {mapper}")?;
        }
        write!(output, " {}", reducers.len())?;
        for reducer in reducers {
            output.write_all(reducer.as_bytes())?;
        }
        writeln!(output)?;
        Ok(())
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// The output cannot be flushed.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Writes coflows in this format.
///
/// # Errors
/// The format cannot hold one of the coflows (see [`WriteError`]), or the output cannot be written.
pub fn write(hosts: u32, coflows: &[CoflowSpec], output: impl Write) -> Result<(), WriteError> {
    let mut writer = Writer::new(output, hosts, coflows.len())?;
    for coflow in coflows {
        writer.write(coflow)?;
    }
    writer.finish().map(|_| ())
}

/// Text that reads back as parts of `part` bytes from `mappers` mappers: one decimal, as the format's own
/// files have, or more where needed; `None` where no number of megabytes is precise enough.
fn shortest_megabytes(part: Bytes, mappers: usize) -> Option<String> {
    let megabytes = part.0 as f64 * mappers as f64 / MEGABYTE as f64;
    // The same arithmetic as the reader's, so that what passes reads back to the byte.
    let reads_back = |text: &String| {
        let parts = text.parse::<f64>().map(|value| value * MEGABYTE as f64 / mappers as f64);
        parts.is_ok_and(|parts| (parts.round() as u64).max(1) == part.0)
    };
    [format!("{megabytes:.1}"), format!("{megabytes}")].into_iter().find(reads_back)
}

/// The mappers, and port and part of every reducer.
struct Shuffle {
    mappers: Vec<HostId>,
    reducers: Vec<(HostId, Bytes)>,
}

/// The coflow as a shuffle, if its flows are all mappers to all reducers.
fn shuffle_of(coflow: &CoflowSpec) -> Option<Shuffle> {
    let first = coflow.flows.first();
    // Flows have to stand reducer by reducer, each a group: the first group then has one flow per
    // mapper.
    let width = coflow.flows.iter().take_while(|flow| Some(flow.group) == first.map(|f| f.group)).count();
    let mappers: Vec<HostId> = coflow.flows[..width].iter().map(|flow| flow.source).collect();
    let mut reducers = Vec::new();
    // `chunks` panics for 0, which is the width of a coflow without flows.
    for flows in coflow.flows.chunks(width.max(1)) {
        let head = flows[0];
        let same = flows.iter().all(|flow| {
            (flow.destination, flow.size, flow.group) == (head.destination, head.size, head.group)
        });
        if !same || !flows.iter().map(|flow| &flow.source).eq(&mappers) {
            return None;
        }
        reducers.push((head.destination, head.size));
    }
    Some(Shuffle { mappers, reducers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<CoflowSpec>, ReadError> {
        Reader::new(text.as_bytes())?.collect()
    }

    #[test]
    fn reducers_get_equal_parts_from_every_mapper() {
        // 3 MB = 3145728 bytes in 2 parts: 1572864 each. 1 MB = 1048576 in 2: 524288.
        let coflows = read("4 1\n7 1500 2 0 3 2 1:3.0 3:1\n").unwrap();
        let sizes: Vec<_> =
            coflows[0].flows.iter().map(|f| (f.source.0, f.destination.0, f.size.0, f.group)).collect();
        assert_eq!(sizes, [(0, 1, 1572864, 0), (3, 1, 1572864, 0), (0, 3, 524288, 1), (3, 3, 524288, 1)]);
        assert_eq!((coflows[0].id, coflows[0].arrival), (CoflowId(7), Time::from_millis(1500)));
    }

    #[test]
    fn parts_round_to_the_nearest_byte() {
        // 1 MB in 3 parts: 349525.33 -> 349525.
        assert_eq!(read("4 1\n1 0 3 0 1 2 1 3:1.0").unwrap()[0].flows[2].size, Bytes(349525));
    }

    #[test]
    fn malformed_files_say_where_and_why() {
        for (text, expected) in [
            ("", "line 1, column 1: the file is empty; the number of ports should be here"),
            ("0 1", "line 1, column 1: a trace needs at least one port"),
            ("4 1 9", "line 1, column 5: unexpected `9` after the end"),
            ("4 1\n1 0 1 4 1 0:1", "line 2, column 7: a mapper's port is `4`, more than 3"),
            (
                "4 1\n1 x 1 0 1 0:1",
                "line 2, column 3: the arrival in milliseconds is `x`, not a whole number",
            ),
            ("4 1\n1 0 1 0 1 0", "line 2, column 11: a reducer is `0`, not port:megabytes (no colon)"),
            (
                "4 1\n1 0 1 0 1 0:-1",
                "line 2, column 13: a reducer is `0:-1`, not port:megabytes (a size from 0 to 10^12)",
            ),
            ("4 1\n1 0 1 0 2 0:1", "line 2, column 14: the line ends where a reducer should be"),
            ("4 2\n1 0 1 0 1 0:1\n", "line 3, column 1: the file ends after 1 of 2 coflows"),
            ("4 1\n1 0 1 0 1 0:1\n2 0 0 0\n", "line 3, column 1: the first line promises 1 coflows only"),
            ("4 2\n1 0 1 0 1 0:1\n1 0 0 0\n", "line 3, column 1: coflow 1 appears twice"),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let text = "5 3\n1 0 2 0 3 2 1:3.0 3:1.5\n2 20 3 0 1 2 1 3:1.0\n3 30 1 4 1 4:0.0\n";
        let coflows = read(text).unwrap();
        let mut written = Vec::new();
        write(5, &coflows, &mut written).unwrap();
        assert_eq!(String::from_utf8(written.clone()).unwrap(), text);
        assert_eq!(read(std::str::from_utf8(&written).unwrap()).unwrap(), coflows);
    }

    #[test]
    fn coflows_that_are_no_shuffle_are_refused() {
        let mut coflows = read("4 1\n1 0 2 0 1 2 2:1 3:1\n").unwrap();
        coflows[0].flows.pop();
        assert!(matches!(write(4, &coflows, Vec::new()), Err(WriteError::NotAShuffle(CoflowId(1)))));
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        let coflow = read("4 1\n1 0 2 0 1 2 2:1 3:1\n").unwrap().remove(0);
        let refused = |coflow: CoflowSpec| write(4, &[coflow], Vec::new()).unwrap_err();
        assert!(matches!(refused(CoflowSpec { weight: 2.0, ..coflow.clone() }), WriteError::Extras(_)));
        let arrival = Time::from_nanos(1);
        assert!(matches!(refused(CoflowSpec { arrival, ..coflow.clone() }), WriteError::Arrival(_)));
        let mut large = coflow;
        // Above 2^53 not every whole number is a number of megabytes in floating point.
        large.flows.iter_mut().for_each(|flow| flow.size = Bytes((1 << 60) + 1));
        assert!(matches!(refused(large.clone()), WriteError::Size(_)));
        // Of what is refused no part of a line is written, so that others may follow.
        let mut writer = Writer::new(Vec::new(), 4, 1).unwrap();
        assert!(writer.write(&large).is_err());
        assert_eq!(writer.finish().unwrap(), b"4 1\n");
    }

    proptest! {
        #[test]
        fn shuffles_read_back_as_they_were_written(shuffles in vec(shuffle(), 0..5)) {
            let coflows: Vec<CoflowSpec> = (0..).zip(shuffles).map(|(id, (arrival, mappers, reducers))| {
                let flows = (0..).zip(reducers).flat_map(|(group, (destination, size))| {
                    let flow = move |&source: &u32| FlowSpec {
                        source: HostId(source), destination: HostId(destination), size: Bytes(size), group,
                    };
                    mappers.iter().map(flow).collect::<Vec<_>>()
                });
                let mut coflow = CoflowSpec::new(CoflowId(id), Time::from_millis(arrival), flows.collect());
                coflow.pattern = Pattern::Shuffle;
                coflow
            }).collect();
            let mut text = Vec::new();
            write(9, &coflows, &mut text).unwrap();
            prop_assert_eq!(Reader::new(text.as_slice()).unwrap().collect::<Result<Vec<_>, _>>().unwrap(), coflows);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200), numbers in "[0-9 .:\n-]{0,80}") {
            for text in [bytes.as_slice(), numbers.as_bytes(), &[b"5 2\n", numbers.as_bytes()].concat()] {
                if let Ok(reader) = Reader::new(text) {
                    reader.for_each(drop);
                }
            }
        }
    }

    /// Arrival, mappers, and port and part of every reducer.
    fn shuffle() -> impl Strategy<Value = (u64, Vec<u32>, Vec<(u32, u64)>)> {
        (0..1u64 << 40, vec(0..9u32, 1..5), vec((0..9u32, 1..1u64 << 44), 1..5))
    }
}

//! Queues, links, windows and what flows received, over time, as lines of a table (CSV).
//!
//! A line has the end of an interval in seconds, what it is about, its number, and a value:
//!
//! | `what` | `number` | `value` |
//! |---|---|---|
//! | `flow` | of the flow | bytes that it received in the interval, for the first time |
//! | `window` | of the flow | its window now, in segments |
//! | `retransmitted` | of the flow | segments that it sent again in the interval |
//! | `timeouts` | of the flow | retransmission timeouts that it had in the interval |
//! | `queue` | of the port | bytes that wait there now |
//! | `link` | of the port | bytes that it sent in the interval, headers too |
//! | `dropped` | of the port | packets that it dropped in the interval |
//! | `marked` | of the port | packets that it marked in the interval |
//!
//! A line whose value is 0 is left out.

use crate::observer::{FlowSeen, Observer};
use crate::port::PortCounts;
use crate::time::Picos;
use std::collections::BTreeMap;
use std::io::{self, Write};
use weir_model::Bytes;

/// Writes a table of a run.
pub struct Recorder<W: Write> {
    output: W,
    every: Picos,
    received: BTreeMap<u64, u64>,
    before: BTreeMap<u32, PortCounts>,
    /// Segments sent again and timeouts of flows that had any, up to the last sample.
    repaired: BTreeMap<u64, (u32, u32)>,
    failed: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    /// Begins a table of intervals of this length.
    ///
    /// # Errors
    /// The head of the table cannot be written.
    pub fn new(mut output: W, every: Picos) -> io::Result<Recorder<W>> {
        writeln!(output, "time_s,what,number,value")?;
        Ok(Recorder {
            output,
            every,
            received: BTreeMap::new(),
            before: BTreeMap::new(),
            repaired: BTreeMap::new(),
            failed: None,
        })
    }

    /// Ends the table.
    ///
    /// # Errors
    /// A line could not be written.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failed {
            Some(error) => Err(error),
            None => self.output.flush(),
        }
    }

    fn repairs(&mut self, seen: &FlowSeen, now: Picos) {
        let all = (seen.retransmitted, seen.timeouts);
        if all == (0, 0) {
            return;
        }
        let before = self.repaired.insert(seen.flow, all).unwrap_or_default();
        self.line(now, "retransmitted", seen.flow, f64::from(all.0 - before.0));
        self.line(now, "timeouts", seen.flow, f64::from(all.1 - before.1));
    }

    fn line(&mut self, now: Picos, what: &str, number: u64, value: f64) {
        // An observer cannot stop a run: the first error is kept, and `finish` tells it.
        if value == 0.0 || self.failed.is_some() {
            return;
        }
        self.failed = writeln!(self.output, "{:.9},{what},{number},{value}", now.as_secs()).err();
    }
}

impl<W: Write> Observer for Recorder<W> {
    fn sample_every(&self) -> Option<Picos> {
        Some(self.every)
    }
    fn delivered(&mut self, flow: u64, bytes: u32, _: Picos) {
        *self.received.entry(flow).or_default() += u64::from(bytes);
    }
    fn sampled_port(&mut self, port: u32, queued: Bytes, counts: &PortCounts, now: Picos) {
        // Ports count from the beginning of the run: a line has what came since the last sample.
        let before = self.before.insert(port, *counts).unwrap_or_default();
        let port = u64::from(port);
        self.line(now, "queue", port, queued.0 as f64);
        self.line(now, "link", port, (counts.bytes - before.bytes) as f64);
        self.line(now, "dropped", port, (counts.dropped - before.dropped) as f64);
        self.line(now, "marked", port, (counts.marked - before.marked) as f64);
    }
    fn sampled_flow(&mut self, seen: &FlowSeen, now: Picos) {
        self.line(now, "window", seen.flow, seen.window);
        self.repairs(seen, now);
    }
    /// The last interval of a flow ends with it.
    fn ended(&mut self, seen: &FlowSeen, now: Picos) {
        self.repairs(seen, now);
        self.repaired.remove(&seen.flow);
    }
    fn sampled(&mut self, now: Picos) {
        for (flow, bytes) in std::mem::take(&mut self.received) {
            self.line(now, "flow", flow, bytes as f64);
        }
    }
}

//! Receivers: each gets one block, as the client library does.

use crate::events::{Call, Caller, Event, Reply};
use crate::world::World;
use weir_model::{Rate, Span, Time};
use weir_proto::data::{FRAME_BYTES, Identity, Request, Status};
use weir_proto::v1;

/// Longest wait of one call for a holder.
const LOCATE_WAIT_MS: u64 = 5_000;

/// A get.
#[derive(Debug)]
pub(crate) struct Get {
    pub(crate) job: usize,
    pub(crate) block: usize,
    pub(crate) host: u32,
    /// Holders that were not asked yet, the best last.
    holders: Vec<u32>,
    received: u64,
    identity: Identity,
    size: u64,
    pub(crate) transfer: Option<u64>,
    pub(crate) is_done: bool,
    /// The task will run, and get, once more: it was thought dead.
    runs_again: bool,
    /// It reads no faster than that, and nothing until then.
    reads: Option<Rate>,
    pub(crate) stands_until: Time,
}

impl Get {
    /// When it has read so many bytes that it may begin to read at a time.
    pub(crate) fn reads_by(&self, at: Time, bytes: u64) -> Time {
        let takes = self.reads.map(|rate| Span::from_secs_ceil(bytes as f64 / rate.bytes_per_sec()));
        at.max(self.stands_until) + takes.unwrap_or_default()
    }

    pub(crate) fn new(job: usize, block: usize, host: u32, runs_again: bool, reads: Option<Rate>) -> Get {
        Get {
            job,
            block,
            host,
            holders: Vec::new(),
            received: 0,
            identity: Identity::UNKNOWN,
            size: 0,
            transfer: None,
            is_done: false,
            runs_again,
            reads,
            stands_until: Time::ZERO,
        }
    }
}

impl World {
    /// A receiver looks for whom to ask.
    pub(crate) fn get(&mut self, number: usize) {
        let get = &self.gets[number];
        if self.jobs[get.job].is_over() {
            return;
        }
        let Some(coflow) = self.jobs[get.job].coflow.filter(|_| !get.is_done && get.transfer.is_none())
        else {
            return;
        };
        let (block, host) = (self.jobs[get.job].blocks[get.block].name.clone(), get.host);
        let request = v1::LocateRequest { coflow, block, wait_ms: LOCATE_WAIT_MS, host };
        self.call(Caller::Receiver(number), Call::Locate(request));
    }

    fn get_later(&mut self, number: usize, after: Span) {
        self.later(after, Event::Get { get: number });
    }

    pub(crate) fn receiver_hears(&mut self, number: usize, answer: Option<Reply>) {
        let Some(Reply::Located(reply)) = answer else {
            let after = self.millis(20, 200);
            return self.get_later(number, after);
        };
        if self.jobs[self.gets[number].job].is_over() {
            return;
        }
        if reply.ended || !reply.refused.is_empty() {
            let job = self.gets[number].job;
            return self.violate(format!("the coflow of job {job}, which is live, has ended: {reply:?}"));
        }
        let mut holders: Vec<u32> = reply.holders.iter().map(|holder| holder.host).collect();
        holders.reverse();
        self.gets[number].holders = holders;
        self.ask_next(number);
    }

    /// Asks the next holder, or looks for others after a while.
    fn ask_next(&mut self, number: usize) {
        let get = &mut self.gets[number];
        let Some(from) = get.holders.pop() else {
            let after = self.millis(5, 100);
            return self.get_later(number, after);
        };
        let job = &self.jobs[get.job];
        let request = Request {
            coflow: job.coflow.unwrap_or_default(),
            offset: get.received,
            destination: get.host,
            group: 0,
            identity: if get.received > 0 { get.identity } else { Identity::UNKNOWN },
            block: job.blocks[get.block].name.clone(),
        };
        let to = get.host;
        let transfer = self.open(number, from, to, request);
        self.gets[number].transfer = Some(transfer);
    }

    /// An agent answers. Whether the receiver has all, as it has of an empty block.
    pub(crate) fn receiver_is_answered(
        &mut self,
        number: usize,
        answer: Result<(Identity, u64), Status>,
    ) -> bool {
        let get = &mut self.gets[number];
        if self.jobs[get.job].is_over() {
            return false;
        }
        let (job, of) = (get.job, get.block);
        let block = &self.jobs[job].blocks[of];
        match answer {
            Ok((identity, size)) if (identity, size) == (block.identity, block.size) => {
                (get.identity, get.size) = (identity, size);
                return self.has_all(number);
            }
            Ok(other) => {
                let name = block.name.clone();
                self.violate(format!("get {number} of {name} is given another block: {other:?}"));
            }
            Err(Status::NoSuchBlock | Status::Busy) => {
                get.transfer = None;
                self.ask_next(number);
            }
            Err(Status::Changed) if self.put_again(job, of) => {
                self.gets[number].transfer = None;
                self.ask_next(number);
            }
            Err(status) => self.violate(format!("get {number} is answered {status:?}")),
        }
        false
    }

    /// Whether a receiver has all; then it is done.
    fn has_all(&mut self, number: usize) -> bool {
        let get = &mut self.gets[number];
        if get.received < get.size {
            return false;
        }
        get.transfer = None;
        self.report.gets += 1;
        if std::mem::take(&mut get.runs_again) {
            (get.received, get.size, get.identity) = (0, 0, Identity::UNKNOWN);
            let after = self.millis(0, 200);
            self.get_later(number, after);
            return true;
        }
        get.is_done = true;
        let job = get.job;
        self.got(job);
        true
    }

    /// Bytes come. Whether the receiver has all now.
    pub(crate) fn receiver_takes(&mut self, number: usize, offset: u64, bytes: u64) -> bool {
        let get = &mut self.gets[number];
        if offset != get.received || get.is_done || offset + bytes > get.size {
            let (received, size) = (get.received, get.size);
            self.violate(format!(
                "get {number} has {received} of {size} bytes and is given {bytes} from {offset} on"
            ));
            return false;
        }
        get.received += bytes;
        self.has_all(number)
    }

    /// The connection is over before all was there: what was verified stays.
    pub(crate) fn receiver_is_left(&mut self, number: usize, transfer: u64) {
        let get = &mut self.gets[number];
        if get.transfer != Some(transfer) {
            return;
        }
        get.transfer = None;
        get.received -= get.received % FRAME_BYTES;
        let after = self.millis(1, 50);
        self.get_later(number, after);
    }
}

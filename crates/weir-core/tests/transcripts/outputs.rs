//! What an executor keeps for its receivers, without files: outputs of map tasks, whose bytes follow from seeds.

use crate::text::{Event, bytes};
use std::collections::BTreeMap;
use weir_core::agent::Gathered;
use weir_proto::data::{Identity, Status};
use weir_proto::gather::{GatherRange, GatherRequest};

/// The output of a map task.
#[derive(Clone)]
struct Output {
    seed: u8,
    lengths: Vec<u64>,
    /// How many outputs were written before it.
    version: usize,
}

/// Which bytes a gather has: its shuffle, its ranges, and the versions of the outputs that these are of.
type Kind = (u32, Vec<GatherRange>, Vec<usize>);

/// The outputs of one executor.
#[derive(Default)]
pub(crate) struct Outputs {
    by_task: BTreeMap<(u32, u64), Output>,
    written: usize,
    /// The identity of a gather is its place among those that were found.
    found: Vec<Kind>,
}

impl Outputs {
    /// Something happens to the executor: it may write.
    pub(crate) fn happens(&mut self, event: &Event) {
        if let Event::Writes { shuffle, map, seed, lengths } = event {
            let (seed, lengths, version) = (*seed, lengths.clone(), self.written);
            self.by_task.insert((*shuffle, *map), Output { seed, lengths, version });
            self.written += 1;
        }
    }

    /// The block that is made for a gather: what there is of it, and its bytes. As weir-daemon's `stores.rs` finds them in files.
    pub(crate) fn find(&mut self, request: &GatherRequest) -> Result<(Gathered, Vec<u8>), Status> {
        let (mut table, mut ranges, mut versions) = (Vec::new(), Vec::new(), Vec::new());
        for range in &request.ranges {
            let output = self.by_task.get(&(request.shuffle, range.map)).ok_or(Status::NoSuchBlock)?;
            let (first, end) = (range.first as usize, range.end as usize);
            let lengths = output.lengths.get(first..end).ok_or(Status::Unreadable)?;
            let start: u64 = output.lengths[..first].iter().sum();
            let length: u64 = lengths.iter().sum();
            table.extend(length.to_le_bytes());
            ranges.extend(bytes(output.seed, start, length));
            versions.push(output.version);
        }
        let kind = (request.shuffle, request.ranges.clone(), versions);
        let known = self.found.iter().position(|found| *found == kind);
        let place = known.unwrap_or_else(|| {
            self.found.push(kind);
            self.found.len() - 1
        });
        table.extend(ranges);
        let identity = Identity([0x11 * (place as u8 + 1); 16]);
        Ok((Gathered { size: table.len() as u64, identity }, table))
    }
}

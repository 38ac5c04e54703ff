//! What ended gets leave for later ones: connections and buffers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

/// Idle connections kept for one holder or relay.
const MAX_IDLE_PER_HOLDER: usize = 32;
/// Buffers kept for later gets.
const MAX_IDLE_BUFFERS: usize = 64;

/// Connections by holder or relay, and buffers of a frame.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Idle>);

/// A connection that an ended get left.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) stream: TcpStream,
    /// How many bytes wake its reader, as the kernel was told last.
    pub(crate) wakes_at: usize,
}

#[derive(Debug, Default)]
struct Idle {
    streams: BTreeMap<SocketAddr, Vec<Left>>,
    buffers: Vec<Vec<u8>>,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take_stream(&self, holder: SocketAddr) -> Option<Left> {
        self.idle().streams.get_mut(&holder)?.pop()
    }

    pub(crate) fn give_stream(&self, holder: SocketAddr, stream: Left) {
        let mut idle = self.idle();
        let streams = idle.streams.entry(holder).or_default();
        if streams.len() < MAX_IDLE_PER_HOLDER {
            streams.push(stream);
        }
    }

    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        self.idle().buffers.pop().unwrap_or_default()
    }

    pub(crate) fn give_buffer(&self, buffer: Vec<u8>) {
        let mut idle = self.idle();
        if idle.buffers.len() < MAX_IDLE_BUFFERS {
            idle.buffers.push(buffer);
        }
    }
}

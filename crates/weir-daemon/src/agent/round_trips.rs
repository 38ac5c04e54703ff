//! How long a round trip to other hosts takes where nothing waits in queues.

use std::collections::BTreeMap;
use std::net::{IpAddr, TcpStream};
use weir_model::Span;

/// Hosts of which it is remembered. Beyond that it is found out anew.
const MOST_HOSTS: usize = 4096;

/// The least that was seen of each host. A connection that is made while queues are full has seen nothing else.
#[derive(Debug, Default)]
pub(super) struct RoundTrips(BTreeMap<IpAddr, Span>);

impl RoundTrips {
    /// The least to the host at the other end of a connection; 0 where the kernel has none.
    pub(super) fn least(&mut self, stream: &TcpStream) -> Span {
        let Ok(peer) = stream.peer_addr() else { return Span::ZERO };
        let seen = weir_net::tcp_path(stream).map_or(Span::ZERO, |path| path.round_trip);
        self.note(peer.ip(), seen)
    }

    fn note(&mut self, host: IpAddr, seen: Span) -> Span {
        if seen == Span::ZERO {
            return self.0.get(&host).copied().unwrap_or(Span::ZERO);
        }
        if self.0.len() >= MOST_HOSTS && !self.0.contains_key(&host) {
            self.0.clear();
        }
        let least = self.0.entry(host).or_insert(seen);
        *least = seen.min(*least);
        *least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_each_host_is_remembered_of_so_many_hosts() {
        let mut round_trips = RoundTrips::default();
        let host = |number: u32| IpAddr::from(number.to_be_bytes());
        let mut note = |number, millis| round_trips.note(host(number), Span::from_millis(millis));
        assert_eq!(note(1, 0), Span::ZERO);
        assert_eq!(
            [note(1, 300), note(1, 4), note(1, 0), note(1, 90)],
            [300, 4, 4, 4].map(Span::from_millis)
        );
        assert_eq!(note(2, 7), Span::from_millis(7));
        (3..=MOST_HOSTS as u32).for_each(|number| _ = note(number, 1));
        assert_eq!(note(1, 90), Span::from_millis(4));
        assert_eq!([note(9999, 5), note(1, 90)], [5, 90].map(Span::from_millis));
    }
}

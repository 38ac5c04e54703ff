//! D3's sender (Wilson, Ballani, Karagiannis, Rowstron, SIGCOMM 2011, section 4): asks for the rate that ends a flow in
//! time, once a round trip, and sends at the rate that it is given.

use super::{Acked, Allowance, Ask, Control, Loss};
use crate::packet::{HEADER_BYTES, SEGMENT_BYTES};
use crate::time::Picos;
use weir_model::{Bytes, Rate};

const SEGMENT_WIRE: f64 = (SEGMENT_BYTES + HEADER_BYTES) as f64;
/// Of the time that is left a request does not count so many round trips: one until the rate is given, one for the last
/// segment to arrive (section 4.1).
const LOST_ROUND_TRIPS: f64 = 2.0;
/// Room in flight beyond rate times round trip, so that a round trip that grows does not stop a paced flow.
const ROOM: (f64, f64) = (2.0, 2.0);

/// What a flow does that cannot meet its deadline any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hopeless {
    /// Ends without having sent all: the paper quenches it.
    Stop,
    /// Goes on like a flow without a deadline.
    Share,
}

/// Asks, and goes at what it is given.
pub(crate) struct AsksRate {
    deadline: Option<Picos>,
    hopeless: Hopeless,
    link: Rate,
    base: Rate,
    round_trip: Picos,
    /// What was given; nothing while the flow pauses.
    rate: Rate,
    given_up: bool,
}

impl AsksRate {
    /// A flow on a link of `link`, in a network of this round trip, that pauses at the base rate.
    pub(crate) fn new(
        deadline: Option<Picos>,
        hopeless: Hopeless,
        link: Rate,
        base: Rate,
        round_trip: Picos,
    ) -> AsksRate {
        AsksRate { deadline, hopeless, link, base, round_trip, rate: Rate::ZERO, given_up: false }
    }
}

impl Control for AsksRate {
    fn allowance(&self) -> Allowance {
        if self.is_paused() {
            return Allowance { window: 1.0, gap: Picos::ZERO };
        }
        // With its header, as D3's rates are those of the wire.
        let gap = SEGMENT_WIRE / self.rate.bytes_per_sec();
        Allowance { window: ROOM.0 * self.round_trip.as_secs() / gap + ROOM.1, gap: Picos::from_secs(gap) }
    }

    /// `r = (remaining - rate rtt) / (left - 2 rtt)` for deadlines, nothing for others. Where that asks for more than the
    /// link, the link is asked for as long as it would do: the paper gives up there already, although the two round trips
    /// are an allowance.
    fn ask(&mut self, unsent: Bytes, now: Picos) -> Ask {
        let Some(deadline) = self.deadline.filter(|_| !self.given_up) else { return Ask::Rate(Rate::ZERO) };
        let left = deadline.since(now).as_secs();
        let (unsent, link) = (unsent.0 as f64, self.link.bytes_per_sec());
        if unsent > link * left {
            self.given_up = true;
            return if self.hopeless == Hopeless::Stop { Ask::Leave } else { Ask::Rate(Rate::ZERO) };
        }
        let round_trip = self.round_trip.as_secs();
        let then = (unsent - self.rate.bytes_per_sec() * round_trip).max(0.0);
        let time = left - LOST_ROUND_TRIPS * round_trip;
        // Compared before dividing: `time` is zero or less when fewer than two round trips are left.
        let rate = if then > link * time { link } else { then / time };
        Ask::Rate(Rate::from_bytes_per_sec(if then > 0.0 { rate } else { 0.0 }))
    }

    fn on_given(&mut self, rate: Rate) {
        // A port gives the base rate where nothing else is left. A flow that gets no more sends
        // headers alone, one a round trip, and goes on asking.
        self.rate = if rate > self.base { rate } else { Rate::ZERO };
    }
    fn is_paused(&self) -> bool {
        self.rate == Rate::ZERO
    }
    fn on_ack(&mut self, acked: &Acked) {
        self.round_trip = acked.smoothed_rtt;
    }
    fn on_loss(&mut self, _: &Loss) {}
    fn on_timeout(&mut self, _: &Loss, _: bool) {
        self.rate = Rate::ZERO;
    }
    fn has_given_up(&self) -> bool {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1000 MB/s and 100 us.
    fn flow(deadline_us: u64, hopeless: Hopeless) -> AsksRate {
        let mb = |rate| Rate::from_bytes_per_sec(rate * 1e6);
        let deadline = Some(Picos::from_micros(deadline_us));
        AsksRate::new(deadline, hopeless, mb(1000.0), mb(0.4), Picos::from_micros(100))
    }

    fn mb_asked(flow: &mut AsksRate, unsent: u64, now_us: u64) -> f64 {
        match flow.ask(Bytes(unsent), Picos::from_micros(now_us)) {
            Ask::Rate(rate) => (rate.bytes_per_sec() / 1e5).round() / 10.0,
            Ask::Leave => f64::NAN,
        }
    }

    #[test]
    fn a_deadline_asks_for_what_is_left_over_the_time_that_is() {
        let mut flow = flow(1_200, Hopeless::Stop);
        // 400 kB in 1200 - 2 * 100 us.
        assert_eq!(mb_asked(&mut flow, 400_000, 0), 400.0);
        // At 500 MB/s another 50 kB go before the next rate counts: 250 kB in 1000 - 200 us.
        flow.on_given(Rate::from_bytes_per_sec(500e6));
        assert_eq!(mb_asked(&mut flow, 300_000, 200), 312.5);
        // What goes at the present rate needs nothing more; without a deadline nothing is asked for.
        assert_eq!(mb_asked(&mut flow, 50_000, 200), 0.0);
        assert_eq!(
            AsksRate { deadline: None, ..flow }.ask(Bytes(1 << 40), Picos::ZERO),
            Ask::Rate(Rate::ZERO)
        );
    }

    #[test]
    fn a_flow_asks_for_its_link_until_that_would_not_do() {
        // 900 kB at 1000 MB/s are 900 us: with 1000 us left all is asked for, with 899 it is over.
        assert_eq!(mb_asked(&mut flow(1_000, Hopeless::Stop), 900_000, 0), 1000.0);
        assert_eq!(flow(899, Hopeless::Stop).ask(Bytes(900_000), Picos::ZERO), Ask::Leave);
        let mut shares = flow(899, Hopeless::Share);
        assert_eq!(shares.ask(Bytes(900_000), Picos::ZERO), Ask::Rate(Rate::ZERO));
        assert!(shares.has_given_up());
    }

    #[test]
    fn the_base_rate_is_a_pause() {
        let mut flow = flow(1_200, Hopeless::Stop);
        assert!(flow.is_paused());
        flow.on_given(Rate::from_bytes_per_sec(0.4e6));
        assert!(flow.is_paused());
        // A segment of 1500 bytes each 15 us at 100 MB/s.
        flow.on_given(Rate::from_bytes_per_sec(100e6));
        assert!(!flow.is_paused());
        assert_eq!(flow.allowance().gap, Picos::from_micros(15));
    }
}

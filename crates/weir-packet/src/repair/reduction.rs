//! Proportional rate reduction (PRR, RFC 9937): while losses are repaired, what goes out follows what arrives, down to the
//! smaller window.

/// A recovery under way.
#[derive(Debug)]
pub(super) struct Reduction {
    /// Segments in flight when it began.
    flight: u32,
    /// Segments that have arrived since, and that have gone.
    delivered: u32,
    gone: u32,
    /// Segments that may go now.
    pub(super) allowed: u32,
}

impl Reduction {
    pub(super) fn new(flight: u32) -> Reduction {
        Reduction { flight: flight.max(1), delivered: 0, gone: 0, allowed: 0 }
    }

    /// `delivered` segments arrived; `in_flight` are on their way, and `window` may be in the end. `advances`: the first
    /// hole was closed, and no further loss showed.
    pub(super) fn on_delivered(&mut self, delivered: u32, in_flight: u32, window: u32, advances: bool) {
        self.delivered += delivered;
        self.allowed = if in_flight > window {
            // SndCnt = ceil(prr_delivered * ssthresh / RecoverFS) - prr_out. The product of two 32-bit counts needs 64 bits.
            let share = u64::from(self.delivered) * u64::from(window);
            (share.div_ceil(u64::from(self.flight)) as u32).saturating_sub(self.gone)
        } else {
            // At or below the new window: what arrived may go, and one more where the RFC calls the acknowledgement safe; never beyond the window.
            let owed = self.delivered.saturating_sub(self.gone).max(delivered) + u32::from(advances);
            owed.min(window - in_flight)
        };
        // The first lost segment goes at once.
        if self.gone == 0 {
            self.allowed = self.allowed.max(1);
        }
    }

    pub(super) fn on_sent(&mut self) {
        self.gone += 1;
        self.allowed = self.allowed.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the RFC's appendix in numbers of ours: 20 in flight, the first lost, to 10: one of two arrivals lets one
    /// go, and in the end ten are in flight.
    #[test]
    fn what_goes_is_the_share_of_what_arrives() {
        let mut reduction = Reduction::new(20);
        let mut in_flight = 20 - 3 - 1;
        let mut gone = Vec::new();
        for arrived in [3].into_iter().chain(std::iter::repeat_n(1, 16)) {
            if arrived == 1 {
                in_flight -= 1;
            }
            reduction.on_delivered(arrived, in_flight, 10, false);
            gone.push(reduction.allowed);
            while reduction.allowed > 0 {
                reduction.on_sent();
                in_flight += 1;
            }
        }
        assert_eq!(gone.iter().sum::<u32>(), 10, "{gone:?}");
        assert!(gone[1..].iter().all(|&sent| sent <= 1), "{gone:?}");
        assert_eq!(in_flight, 10);
    }

    /// So many are lost that less is in flight than may be: one goes for each that arrives, and one more if that was safe.
    #[test]
    fn below_the_window_it_grows_back_no_faster_than_slow_start() {
        let mut reduction = Reduction::new(20);
        reduction.on_delivered(3, 4, 10, false);
        assert_eq!(reduction.allowed, 3);
        (0..3).for_each(|_| reduction.on_sent());
        reduction.on_delivered(1, 6, 10, true);
        assert_eq!(reduction.allowed, 2);
        reduction.on_delivered(1, 10, 10, true);
        assert_eq!(reduction.allowed, 0);
    }
}

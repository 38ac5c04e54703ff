//! Queues of the switch's ports.

use crate::error::BedError;

/// Queues of a port for data, if it has more than one.
pub const QUEUES: usize = 8;

/// The least DSCP of the control class (CS6).
const CONTROL_DSCP: u8 = 48;

/// What a port has for data, below its control class. A host's own uplink has one queue unless said: TCP keeps it short, and a
/// network card may send what its host gives it in that order, or have queues of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Queues {
    /// One queue for all data.
    #[default]
    One,
    /// Eight of strict priority, the first first. A packet is in the queue that has its DSCP, and in the last one if none
    /// has. The DSCPs differ, and are below 48, where the control class begins.
    ByDscp([u8; QUEUES]),
}

impl Queues {
    /// How HTB calls the class of a queue, as `skb->priority` has it: major number 1 in the upper half.
    ///
    /// # Panics
    /// If there is no such queue.
    #[must_use]
    pub fn htb_class(queue: usize) -> u32 {
        assert!(queue < QUEUES, "there is no queue {queue}");
        0x0001_0020 + queue as u32
    }

    pub(crate) fn check(&self) -> Result<(), BedError> {
        let Queues::ByDscp(dscps) = self else { return Ok(()) };
        for (queue, dscp) in dscps.iter().enumerate() {
            if *dscp >= CONTROL_DSCP {
                let reason = format!("queue {queue} has DSCP {dscp}; below {CONTROL_DSCP} are possible");
                return Err(BedError::Config(reason));
            }
            if dscps[..queue].contains(dscp) {
                return Err(BedError::Config(format!("queue {queue} and one before it have DSCP {dscp}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscps_of_the_control_class_and_those_of_two_queues_are_refused() {
        let with = |queue: usize, dscp| {
            let mut dscps = [40, 36, 32, 28, 24, 20, 16, 12];
            dscps[queue] = dscp;
            Queues::ByDscp(dscps).check().is_err()
        };
        assert!(!with(0, 40) && !with(7, 0) && !with(0, 47));
        assert!(with(0, 48) && with(3, 63) && with(3, 255));
        assert!(with(7, 40) && with(0, 12));
    }
}

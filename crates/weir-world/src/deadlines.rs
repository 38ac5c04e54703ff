//! Coflows with deadlines: what their drivers are told, and what becomes of those that are refused.

use crate::events::{Call, Caller, Event, Reply};
use crate::jobs::Stage;
use crate::world::World;
use rand::RngExt;
use weir_proto::v1;

/// One job of so many has a deadline.
const WITH_DEADLINE: u32 = 6;

/// The deadline that a job asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) ms: u64,
    /// It is not to move if it is refused.
    pub(crate) stops: bool,
    /// What its driver was told last.
    told: v1::Admission,
}

impl World {
    pub(crate) fn some_deadline(&mut self) -> Option<Deadline> {
        // Powers of two from 2 ms to about a second, so that short ones are as
        // frequent as long ones.
        let (ms, stops) = (1 << self.rng.random_range(1..11), self.rng.random());
        let told = v1::Admission::Undecided;
        (self.rng.random_range(0..WITH_DEADLINE) == 0).then_some(Deadline { ms, stops, told })
    }

    /// A driver with a deadline asks what became of it.
    pub(crate) fn ask_admission(&mut self, number: usize) {
        let job = &self.jobs[number];
        if let (Some(coflow), Some(_), Stage::Moving) = (job.coflow, job.deadline, job.stage) {
            let wait_ms = self.rng.random_range(0..2_000);
            let request = v1::AdmissionRequest { coflow, wait_ms };
            self.call(Caller::Admission(number), Call::AwaitAdmission(request));
        }
    }

    pub(crate) fn admission_hears(&mut self, number: usize, answer: Option<Reply>) {
        let nothing_failed = self.report.faults == 0;
        let job = &mut self.jobs[number];
        let (Some(deadline), Stage::Moving) = (&mut job.deadline, job.stage) else { return };
        if let Some(Reply::Decided(reply)) = answer {
            let (before, now) = (deadline.told, reply.admission());
            deadline.told = now;
            if nothing_failed && before != v1::Admission::Undecided && before != now {
                return self.violate(format!(
                    "job {number} is told {now:?} of its deadline, and was told {before:?}"
                ));
            }
        }
        let after = self.millis(50, 500);
        self.later(after, Event::AsksAdmission { job: number });
    }

    /// A receiver hears that its coflow was refused: all give up, and the driver ends it. False if it was to go on.
    pub(crate) fn is_refused(&mut self, number: usize) -> bool {
        let job = &mut self.jobs[number];
        if !job.deadline.is_some_and(|deadline| deadline.stops) {
            return false;
        }
        if job.stage == Stage::Moving {
            (job.stage, job.was_refused) = (Stage::Unregistering, true);
            // A clone: to drop a receiver takes the whole world, of which the job is a part.
            for get in job.gets.clone() {
                self.drop_receiver(get);
                self.gets[get].is_done = true;
            }
            let after = self.millis(0, 50);
            self.later(after, Event::Drive { job: number });
        }
        true
    }
}

//! Whether a coflow with a deadline was let in.

use crate::{Client, Error, retry};
use std::time::{Duration, Instant};
use weir_proto::v1;

/// Longest wait of one call; repeated until the caller's own limit.
const WAIT: Duration = Duration::from_secs(5);
/// Least time between two calls: a coordinator for which too many wait answers at once that nothing is decided.
const PAUSE: Duration = Duration::from_millis(200);

/// What became of a coflow's deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It has none, so nothing had to be decided.
    NoDeadline,
    /// The coflow was let in. Under a policy that promises deadlines, as `varys-deadline`, it will be met; others let in all.
    Admitted,
    /// It cannot be met. Unless the coflow was registered to stop then, its bytes move at TCP's share.
    Refused {
        /// Which link lacks how much.
        reason: String,
    },
    /// The coflow has ended, or is not known.
    Ended,
}

impl Client {
    /// Waits until it is decided whether a coflow is let in, or `None` once `limit` has passed. It is decided
    /// once the announced flows were asked for, so ask while receivers get blocks. A refused coflow may be
    /// registered again, as a new one, with a later deadline.
    ///
    /// # Errors
    /// The client has no coordinator, or that refuses or gives no answer within 10 s. A coflow that is not decided in time is no error.
    pub async fn admission(&self, coflow: u64, limit: Duration) -> Result<Option<Admission>, Error> {
        let (client, end) = (self.coordinator()?, crate::get::limit_from_now(limit));
        loop {
            let asked = Instant::now();
            let wait = end.saturating_duration_since(asked).min(WAIT);
            let request = v1::AdmissionRequest { coflow, wait_ms: wait.as_millis() as u64 };
            let reply = retry(self.coordinator_name(), || {
                let mut client = client.clone();
                async move { client.await_admission(request).await }
            })
            .await?;
            match reply.admission() {
                _ if reply.ended => return Ok(Some(Admission::Ended)),
                v1::Admission::NoDeadline => return Ok(Some(Admission::NoDeadline)),
                v1::Admission::Admitted => return Ok(Some(Admission::Admitted)),
                v1::Admission::Refused => return Ok(Some(Admission::Refused { reason: reply.reason })),
                v1::Admission::Undecided if Instant::now() >= end => return Ok(None),
                v1::Admission::Undecided => {
                    tokio::time::sleep_until((asked + PAUSE).min(end).into()).await;
                }
            }
        }
    }

    /// Why a coflow was refused, as far as that can be learned at once.
    pub(crate) async fn refusal(&self, coflow: u64) -> String {
        match self.admission(coflow, Duration::ZERO).await {
            Ok(Some(Admission::Refused { reason })) => reason,
            _ => "its deadline cannot be met".to_owned(),
        }
    }
}

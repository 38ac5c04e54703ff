//! Sessions with a coordinator or controller: one after another, for as long as the process lives.

use std::time::Duration;
use tonic::{Code, Status};
use weir_net::Address;

/// First and longest pause between attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Longest pause after a session was refused: a peer that refuses is there, and will most likely refuse again.
const REFUSED_RETRY: Duration = Duration::from_secs(8);
/// So many attempts, a second or so, may fail after the start before they are worth a warning.
const STARTING_FAILURES: u64 = 8;

/// How to have one session.
pub(crate) trait Attach {
    /// Whom it is with, for messages.
    const PEER: &'static str;

    /// One session, until it ends. Says whether it was established; whichever way it ends then is worth a quick retry.
    fn attach(
        &self,
        address: Address,
        established: &mut bool,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Attaches to one of several servers: to the next one if it cannot be reached, to the same one if a session was lost.
/// Never returns unless there is no server; abort the task to end it.
pub(crate) async fn keep<A: Attach>(servers: Vec<Address>, sessions: A) {
    let mut pause = RETRY.0;
    let mut turn = servers.iter().cloned().cycle();
    let mut failures: u64 = 0;
    let mut ever = false;
    let Some(mut address) = turn.next() else { return };
    loop {
        let mut established = false;
        let ended = sessions.attach(address.clone(), &mut established).await;
        // The first failure is told, and then each doubling of their number: not every one of them.
        failures = if established { 0 } else { failures + 1 };
        let told = established || failures.is_power_of_two();
        // Daemons are often started together and in any order: the first failures are worth no warning.
        let is_starting = !ever && failures < STARTING_FAILURES;
        ever |= established;
        match &ended {
            _ if !told => {}
            Ok(()) => tracing::info!(%address, "the {} closed the session; connecting again", A::PEER),
            Err(status) if is_refusal(status) => {
                tracing::error!(%address, failures, "the {} refused the session: {}", A::PEER, said(status));
            }
            Err(status) if established => {
                tracing::warn!(%address, "lost the {}: {}; connecting again", A::PEER, said(status));
            }
            Err(status) if is_starting => {
                tracing::info!(%address, failures, "no session with the {} yet: {}", A::PEER, said(status));
            }
            Err(status) => {
                tracing::warn!(%address, failures, "no session with the {}: {}", A::PEER, said(status));
            }
        }
        if established {
            pause = RETRY.0;
        } else {
            address = turn.next().unwrap_or(address);
        }
        tokio::time::sleep(pause).await;
        // A pause that grew with refusals shrinks again with the first failure of another kind.
        let longest = if ended.is_err_and(|status| is_refusal(&status)) { REFUSED_RETRY } else { RETRY.1 };
        pause = (pause * 2).min(longest);
    }
}

/// Why a session failed, in words: some failures of the transport have none of their own.
fn said(status: &Status) -> &str {
    if status.message().is_empty() { status.code().description() } else { status.message() }
}

/// Whether the peer had the session's reason to say no, rather than not being there.
fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::FailedPrecondition | Code::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_words_of_its_own_is_told_in_those_of_its_code() {
        assert_eq!(said(&Status::new(Code::Unavailable, "")), "The service is currently unavailable");
        assert_eq!(said(&Status::new(Code::Unavailable, "gone to lunch")), "gone to lunch");
    }
}

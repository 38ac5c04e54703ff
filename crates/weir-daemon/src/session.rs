//! Sessions with whoever says what is to be done: one after another, for as long as the process lives.

use std::net::SocketAddr;
use std::time::Duration;
use tonic::{Code, Status};

/// First and longest pause between attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// How to have one session.
pub(crate) trait Attach {
    /// Whom it is with, for messages.
    const PEER: &'static str;

    /// One session, until it ends. Says whether it was established; whichever way it ends then is worth a quick retry.
    fn attach(
        &self,
        address: SocketAddr,
        established: &mut bool,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// Attaches to one of several servers: to the next one if it cannot be reached, to the same one if a session was lost.
/// Never returns unless there is no server; abort the task to end it.
pub(crate) async fn keep<A: Attach>(servers: Vec<SocketAddr>, sessions: A) {
    let mut pause = RETRY.0;
    let mut turn = servers.iter().copied().cycle();
    let Some(mut address) = turn.next() else { return };
    loop {
        let mut established = false;
        let ended = sessions.attach(address, &mut established).await;
        if let Err(status) = ended {
            tracing::debug!(%address, %status, "no session with the {}", A::PEER);
            if status.code() == Code::FailedPrecondition {
                tracing::error!(%address, "refused: {}", status.message());
            }
        }
        if established {
            pause = RETRY.0;
        } else {
            address = turn.next().unwrap_or(address);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

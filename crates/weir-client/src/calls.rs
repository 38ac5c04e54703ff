//! What a get asks the coordinator and its host's agent.

use crate::{Client, error};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_core::receiver::{Located, RelaysOfHost};
use weir_model::Span;
use weir_proto::v1;

/// How long the agent is waited for to say which relays there are, and when it is asked again if it did not.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);
const DESCRIBE_AGAIN: Duration = Duration::from_secs(10);

/// Something that ends with a `T`. The mutex is never locked: it makes readers that keep one fit to be shared.
pub(crate) struct Underway<T>(Mutex<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Underway<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Underway<T> {
        Underway(Mutex::new(Box::pin(future)))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut().poll(context)
    }
}

/// A question that a get waits for.
pub(crate) type Call = Underway<Answer>;

pub(crate) enum Answer {
    Located(Located),
    /// Relays of the host, and a number drawn for this flow.
    Described(Option<RelaysOfHost>, u32),
    Explained(String),
}

/// Agents that hold a block.
pub(crate) async fn locate(client: Client, coflow: u64, block: String, wait: Span) -> Answer {
    let wait_ms = wait.nanos() / 1_000_000;
    let request = v1::LocateRequest { coflow, block, wait_ms, host: client.config.host };
    let Ok(coordinator) = client.coordinator() else { return Answer::Located(Located::NoCoordinator) };
    Answer::Located(match client.locator.locate(coordinator, request).await {
        Ok(reply) => located(reply).await,
        Err(status) if error::is_transient(&status) => {
            Located::Unavailable(format!("coordinator: {}", error::said(&status)))
        }
        Err(status) => Located::Denied(status.message().to_owned()),
    })
}

async fn located(reply: v1::LocateReply) -> Located {
    if reply.ended {
        return Located::Ended;
    }
    if !reply.refused.is_empty() {
        return Located::Refused(reply.refused);
    }
    let mut holders: Vec<SocketAddr> = Vec::new();
    let mut unresolved = None;
    for holder in &reply.holders {
        // The first address of a name: agents listen on one.
        match tokio::net::lookup_host(&holder.data_address).await {
            Ok(mut found) => holders.extend(found.next()),
            Err(error) => unresolved = Some(format!("holder {}: {error}", holder.data_address)),
        }
    }
    // One holder is enough: a name that is not known here hides no other.
    match unresolved.filter(|_| holders.is_empty()) {
        Some(why) => Located::Unavailable(why),
        None => Located::Holders(holders),
    }
}

/// Why a coflow was refused.
pub(crate) async fn explain(client: Client, coflow: u64) -> Answer {
    Answer::Explained(client.refusal(coflow).await)
}

/// What is known of the relays of this host.
#[derive(Debug, Default)]
pub(crate) enum Relays {
    /// The agent was not asked yet.
    #[default]
    Unknown,
    /// The agent did not say; it is asked again from then on.
    Failed(Instant),
    /// The agent said: none, or the site and its relays.
    Known(Option<RelaysOfHost>),
}

/// Relays that this host uses, if it uses any.
pub(crate) async fn describe(client: Client) -> Answer {
    match client.relays_of_host().await {
        Some(relays) => Answer::Described(Some(relays), rand::random()),
        None => Answer::Described(None, 0),
    }
}

impl Client {
    async fn relays_of_host(&self) -> Option<RelaysOfHost> {
        let mut agent = self.agent().ok()?;
        // Held while the agent is asked: gets that begin meanwhile wait for that answer, and do not ask too.
        let mut relays = self.relays.lock().await;
        let due = match &*relays {
            Relays::Unknown => true,
            Relays::Failed(again) => *again <= Instant::now(),
            Relays::Known(_) => false,
        };
        if due {
            let described = tokio::time::timeout(DESCRIBE_LIMIT, agent.describe(v1::DescribeRequest {}));
            *relays = match described.await {
                Ok(Ok(reply)) => Relays::Known(reply.into_inner().relays.and_then(usable)),
                Ok(Err(_)) | Err(_) => Relays::Failed(Instant::now() + DESCRIBE_AGAIN),
            };
        }
        match &*relays {
            Relays::Known(known) => known.clone(),
            Relays::Unknown | Relays::Failed(_) => None,
        }
    }
}

fn usable(relays: v1::RelaysOfHost) -> Option<RelaysOfHost> {
    let addresses: Vec<_> = relays.addresses.iter().filter_map(|address| address.parse().ok()).collect();
    (!addresses.is_empty()).then_some(RelaysOfHost { site: relays.site, addresses })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_that_is_not_known_here_hides_no_other_holder() {
        let located = |addresses: &[&str]| {
            let holder =
                |address: &&str| v1::Holder { data_address: (*address).to_owned(), ..v1::Holder::default() };
            located(v1::LocateReply {
                holders: addresses.iter().map(holder).collect(),
                ..v1::LocateReply::default()
            })
        };
        // Without a port no name is asked for: the test needs no server of names.
        let Located::Holders(holders) = located(&["no-port", "127.0.0.1:7"]).await else { panic!("hidden") };
        assert_eq!(holders, ["127.0.0.1:7".parse().unwrap()]);
        let Located::Unavailable(why) = located(&["no-port"]).await else { panic!("it has no address") };
        assert!(why.starts_with("holder no-port: "), "{why}");
    }
}

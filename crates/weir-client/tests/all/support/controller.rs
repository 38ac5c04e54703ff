//! A controller that does as the test says: it lists the relays that came, and hands out rules when told to.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};
use weir_proto::v1;
use weir_proto::v1::relay_control_server::{RelayControl, RelayControlServer};
use weir_proto::v1::{from_relay, to_relay};

#[derive(Default)]
struct State {
    /// All that relays said, with the name of each.
    said: Vec<(String, from_relay::Kind)>,
    sessions: BTreeMap<String, mpsc::Sender<Result<v1::ToRelay, Status>>>,
    listed: BTreeMap<String, v1::RelayEntry>,
    /// By relay; they outlast its sessions.
    rules: BTreeMap<String, v1::Rules>,
}

#[derive(Clone, Default)]
pub(crate) struct Controller(Arc<Mutex<State>>);

impl Controller {
    /// Begins to serve; where.
    pub(crate) async fn start() -> (Controller, SocketAddr) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (controller, address) = (Controller::default(), listener.local_addr().unwrap());
        let server = tonic::transport::Server::builder()
            .add_service(RelayControlServer::new(controller.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        (controller, address)
    }

    /// This rule, and no other, at a relay.
    pub(crate) fn set_rule(&self, relay: &str, rule: v1::Rule) {
        let mut state = self.0.lock().unwrap();
        let rules = state.rules.entry(relay.to_owned()).or_default();
        // The empty set that a session begins with is epoch 1.
        let epoch = rules.epoch.max(1) + 1;
        *rules = v1::Rules { epoch, complete: true, set: vec![rule], withdrawn: Vec::new() };
        let message = v1::ToRelay { kind: Some(to_relay::Kind::Rules(rules.clone())) };
        if let Some(session) = state.sessions.get(relay) {
            // A relay that is gone hears it when it is back.
            let _ = session.try_send(Ok(message));
        }
    }

    /// Waits for something that a relay says.
    pub(crate) async fn heard<T>(
        &self,
        what: &str,
        mut find: impl FnMut(&str, &from_relay::Kind) -> Option<T>,
    ) -> T {
        let found = async {
            loop {
                let found = self.0.lock().unwrap().said.iter().find_map(|(relay, kind)| find(relay, kind));
                if let Some(found) = found {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(20), found).await {
            Ok(found) => found,
            Err(_) => panic!("no relay said {what}: {:?}", self.0.lock().unwrap().said),
        }
    }

    /// How many flows relays said were opened.
    pub(crate) fn opened(&self) -> usize {
        let state = self.0.lock().unwrap();
        state.said.iter().filter(|(_, kind)| matches!(kind, from_relay::Kind::FlowOpened(_))).count()
    }

    /// Whether some flow of a coflow went by relays to its end.
    pub(crate) fn has_carried(&self, coflow: u64) -> bool {
        let whole = |kind: &from_relay::Kind| match kind {
            from_relay::Kind::FlowEnded(end) => {
                end.complete && end.key.is_some_and(|key| key.coflow == coflow)
            }
            _ => false,
        };
        self.0.lock().unwrap().said.iter().any(|(_, kind)| whole(kind))
    }

    /// Waits until so many relays can reach each other.
    pub(crate) async fn all_up(&self, relays: usize) {
        self.heard("that all are up", {
            let mut up = std::collections::BTreeSet::new();
            move |from, kind| {
                if let from_relay::Kind::NextHop(v1::NextHopState { relay, up: true }) = kind {
                    up.insert((from.to_owned(), relay.clone()));
                }
                (up.len() == relays * (relays - 1)).then_some(())
            }
        })
        .await;
    }
}

impl State {
    fn tell_all(&mut self, kind: &to_relay::Kind) {
        let message = v1::ToRelay { kind: Some(kind.clone()) };
        self.sessions.retain(|_, session| session.try_send(Ok(message.clone())).is_ok());
    }

    fn list(&self) -> to_relay::Kind {
        to_relay::Kind::Relays(v1::RelayList { relays: self.listed.values().cloned().collect() })
    }
}

#[tonic::async_trait]
impl RelayControl for Controller {
    type AttachStream = Pin<Box<dyn Stream<Item = Result<v1::ToRelay, Status>> + Send>>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::FromRelay>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        let mut messages = request.into_inner();
        let Some(from_relay::Kind::Hello(hello)) = messages.message().await?.and_then(|first| first.kind)
        else {
            return Err(Status::invalid_argument("no Hello"));
        };
        let (session, outbound) = mpsc::channel(64);
        let name = hello.relay.clone();
        {
            let mut state = self.0.lock().unwrap();
            let (site, data_address) = (hello.site, hello.data_address.clone());
            state.listed.insert(name.clone(), v1::RelayEntry { relay: name.clone(), site, data_address });
            state.said.push((name.clone(), from_relay::Kind::Hello(hello)));
            let mut rules = state.rules.get(&name).cloned().unwrap_or_default();
            rules.epoch = rules.epoch.max(1);
            let rules = to_relay::Kind::Rules(rules);
            session.try_send(Ok(v1::ToRelay { kind: Some(rules) })).unwrap();
            state.sessions.insert(name.clone(), session);
            let list = state.list();
            state.tell_all(&list);
        }
        let state = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Some(Ok(message)) = messages.next().await {
                if let Some(kind) = message.kind {
                    state.lock().unwrap().said.push((name.clone(), kind));
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn describe(
        &self,
        _request: Request<v1::DescribeControllerRequest>,
    ) -> Result<Response<v1::ControllerStatus>, Status> {
        Err(Status::unimplemented("tests look at what relays said"))
    }
}

/// Flows of a coflow go to these relays, with these weights; none: straight on.
pub(crate) fn rule(coflow: u64, relays: &[(&str, f64)], rank: u64) -> v1::Rule {
    let next_hop = |&(relay, weight): &(&str, f64)| v1::NextHop {
        to: Some(v1::next_hop::To::Relay(relay.to_owned())),
        weight,
    };
    v1::Rule {
        prefix: Some(v1::FlowPrefix { coflow: Some(coflow), reducer: None, mapper: None }),
        next_hops: relays.iter().map(next_hop).collect(),
        rank,
        weight: 1.0,
        entering: false,
    }
}

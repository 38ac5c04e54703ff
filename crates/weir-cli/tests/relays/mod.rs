//! A relay that speaks the contract with its controller and moves no bytes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use weir_proto::v1;
use weir_proto::v1::from_relay::Kind as From;
use weir_proto::v1::relay_control_client::RelayControlClient;
use weir_proto::v1::to_relay::Kind as To;

/// Pause between attempts to attach.
const RETRY: Duration = Duration::from_millis(30);
/// How long something expected may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What a relay was told, applied as a relay does.
#[derive(Default)]
struct Told {
    /// Ranks of rules for coflows.
    ranks: BTreeMap<u64, u64>,
    relays: Vec<String>,
    /// Epochs of the rules of each session.
    sessions: Vec<Vec<u64>>,
    keepalives: u64,
    /// What no controller may say.
    wrong: Vec<String>,
}

impl Told {
    fn apply(&mut self, message: v1::ToRelay) {
        match message.kind {
            Some(To::Rules(rules)) => self.apply_rules(&rules),
            Some(To::Relays(list)) => {
                self.relays = list.relays.into_iter().map(|entry| entry.relay).collect();
            }
            Some(To::Keepalive(_)) => self.keepalives += 1,
            None => self.wrong.push("a message of no kind".to_owned()),
        }
    }

    fn apply_rules(&mut self, rules: &v1::Rules) {
        let epochs = self.sessions.last_mut().expect("a session");
        if epochs.last().is_some_and(|&last| rules.epoch <= last) {
            self.wrong.push(format!("epoch {} after {epochs:?}", rules.epoch));
        }
        if rules.complete != epochs.is_empty() {
            self.wrong.push(format!("complete: {}, after {epochs:?}", rules.complete));
        }
        epochs.push(rules.epoch);
        if rules.complete {
            self.ranks.clear();
        }
        let coflow = |prefix: &v1::FlowPrefix| prefix.coflow.filter(|_| prefix.reducer.is_none());
        for rule in &rules.set {
            if let Some(coflow) = rule.prefix.as_ref().and_then(coflow) {
                self.ranks.insert(coflow, rule.rank);
            }
        }
        for coflow in rules.withdrawn.iter().filter_map(coflow) {
            self.ranks.remove(&coflow);
        }
    }

    fn order(&self) -> Vec<u64> {
        let mut order: Vec<(u64, u64)> = self.ranks.iter().map(|(&coflow, &rank)| (rank, coflow)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, coflow)| coflow).collect()
    }
}

/// What a relay says, and what it was told.
#[derive(Default)]
struct Shared {
    flows: BTreeMap<u64, v1::RelayFlowOpened>,
    session: Option<mpsc::Sender<v1::FromRelay>>,
    told: Told,
}

/// A relay. It attaches to the first of its servers that there is, and again after every failure.
pub(crate) struct Relay {
    name: String,
    site: u32,
    shared: Arc<Mutex<Shared>>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(crate) fn start(name: &str, site: u32, servers: Vec<SocketAddr>) -> Relay {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let task = tokio::spawn(attach_for_ever(name.to_owned(), site, servers, shared.clone()));
        Relay { name: name.to_owned(), site, shared, task }
    }

    /// A flow of a coflow enters here.
    pub(crate) fn open(&self, coflow: u64, destination_site: u32, bytes: u64) {
        let key = Some(v1::FlowKey { coflow, reducer: 0, mapper: self.site });
        let opened =
            v1::RelayFlowOpened { key, source_site: self.site, destination_site, bytes, bytes_moved: 0 };
        let mut shared = self.shared.lock().unwrap();
        shared.flows.insert(coflow, opened);
        shared.say(From::FlowOpened(opened));
    }

    /// That flow is complete.
    pub(crate) fn end(&self, coflow: u64) {
        let mut shared = self.shared.lock().unwrap();
        let flow = shared.flows.remove(&coflow).unwrap();
        shared.say(From::FlowEnded(v1::RelayFlowEnded {
            key: flow.key,
            bytes_moved: flow.bytes,
            complete: true,
        }));
    }

    /// Waits until this is the order of coflows here.
    pub(crate) async fn expect_order(&self, expected: &[u64]) {
        self.wait(&format!("order {expected:?}"), |told| told.order() == expected).await;
    }

    /// Waits until it knows these relays.
    pub(crate) async fn expect_relays(&self, expected: &[&str]) {
        self.wait(&format!("relays {expected:?}"), |told| told.relays == expected).await;
    }

    /// Waits for so many more keepalives.
    pub(crate) async fn expect_keepalives(&self, more: u64) {
        let before = self.shared.lock().unwrap().told.keepalives;
        self.wait("keepalives", |told| told.keepalives >= before + more).await;
    }

    /// The order of coflows here.
    pub(crate) fn order(&self) -> Vec<u64> {
        self.shared.lock().unwrap().told.order()
    }

    /// Epochs of all rules it was told, session by session.
    pub(crate) fn epochs(&self) -> Vec<Vec<u64>> {
        self.shared.lock().unwrap().told.sessions.clone()
    }

    async fn wait(&self, what: &str, reached: impl Fn(&Told) -> bool) {
        let limit = Instant::now() + LIMIT;
        loop {
            {
                let told = &self.shared.lock().unwrap().told;
                assert!(told.wrong.is_empty(), "relay {} was told {:?}", self.name, told.wrong);
                if reached(told) {
                    return;
                }
                let order = told.order();
                assert!(
                    Instant::now() < limit,
                    "relay {}: no {what}; {order:?}, {:?}",
                    self.name,
                    told.relays
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Without a session it is said by the next one's Hello.
    fn say(&mut self, kind: From) {
        if let Some(session) = &self.session {
            session.try_send(v1::FromRelay { kind: Some(kind) }).ok();
        }
    }
}

async fn attach_for_ever(name: String, site: u32, servers: Vec<SocketAddr>, shared: Arc<Mutex<Shared>>) {
    for &server in servers.iter().cycle() {
        let _ = attach(&name, site, server, &shared).await;
        shared.lock().unwrap().session = None;
        tokio::time::sleep(RETRY).await;
    }
}

/// One session, until either side ends it.
async fn attach(
    name: &str,
    site: u32,
    server: SocketAddr,
    shared: &Mutex<Shared>,
) -> Result<(), tonic::Status> {
    let mut client = RelayControlClient::new(weir_net::coordinator_channel(server));
    let (sender, outbound) = mpsc::channel(1_024);
    {
        let mut shared = shared.lock().unwrap();
        let hello = v1::RelayHello {
            version: 1,
            relay: name.to_owned(),
            site,
            data_address: format!("127.0.0.1:{}", 40_000 + site),
            flows: shared.flows.values().copied().collect(),
            session: 0,
        };
        sender.try_send(v1::FromRelay { kind: Some(From::Hello(hello)) }).unwrap();
        shared.session = Some(sender);
    }
    let mut inbound = client.attach(ReceiverStream::new(outbound)).await?.into_inner();
    shared.lock().unwrap().told.sessions.push(Vec::new());
    while let Some(message) = inbound.message().await? {
        shared.lock().unwrap().told.apply(message);
    }
    Ok(())
}

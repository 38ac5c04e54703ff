//! Coflows with deadlines over real sockets on loopback: let in, or refused and answered.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::time::Duration;
use weir_client::{Admission, Client, ClientConfig, CoflowOptions, GetError, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};

/// So slow that 4 MB take 4 s.
const LINK: Rate = Rate::from_bytes_per_sec(1e6);
const LIMIT: Duration = Duration::from_secs(20);

/// A coordinator with deadlines and the agents of two hosts; clients of both. The directory goes with the value.
struct Cluster {
    clients: [Client; 2],
    agents: Vec<SocketAddr>,
    _dir: tempfile::TempDir,
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

impl Cluster {
    fn start() -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let listener = weir_net::control_listener(any_port()).unwrap();
        let coordinator = listener.local_addr().unwrap();
        let fabric = Fabric::big_switch(2, LINK).unwrap();
        let options = CoordinatorOptions::new(fabric, weir_policy::find("varys-deadline").unwrap());
        tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
        let mut agents = Vec::new();
        for host in 0..2 {
            let listener = weir_net::data_listener(any_port()).unwrap();
            agents.push(listener.local_addr().unwrap());
            let mut options = AgentOptions::new(host, dir.path().join(host.to_string()));
            options.coordinator = Some(coordinator.into());
            tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
        }
        let clients = [0, 1].map(|host: u32| {
            let agent = Some(dir.path().join(host.to_string()).join("agent.sock"));
            Client::new(ClientConfig { coordinator: Some(coordinator.into()), agent, host })
        });
        Cluster { clients, agents, _dir: dir }
    }

    /// Registers a coflow of one block of 4 MB and puts it.
    async fn offer(&self, deadline_ms: u64, stop_if_refused: bool) -> u64 {
        let options = CoflowOptions { flows: 1, deadline_ms, stop_if_refused, ..CoflowOptions::default() };
        let coflow = self.clients[0].register(options).await.unwrap();
        self.clients[0].put_bytes(coflow, "b", &vec![7; 4_000_000]).await.unwrap();
        coflow
    }

    async fn get(&self, coflow: u64, holders: Vec<SocketAddr>) -> Result<usize, GetError> {
        let options = GetOptions { time_limit: LIMIT, holders, ..GetOptions::default() };
        Ok(self.clients[1].get_bytes(coflow, "b", options).await?.len())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_coflow_still_moves_and_its_driver_hears_why() {
    let cluster = Cluster::start();
    let coflow = cluster.offer(1000, false).await;
    let (got, admission) =
        tokio::join!(cluster.get(coflow, Vec::new()), cluster.clients[0].admission(coflow, LIMIT));
    assert_eq!(got.unwrap(), 4_000_000);
    let Some(Admission::Refused { reason }) = admission.unwrap() else { panic!("4 s do not fit into 1 s") };
    assert!(reason.contains("needed"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_of_a_refused_coflow_that_stops_are_answered_with_the_reason() {
    let cluster = Cluster::start();
    let coflow = cluster.offer(1000, true).await;
    // One is sent away while it receives, or before; the others are told when they ask: by the agent, which the
    // first of them knows, and by the coordinator.
    for holders in [Vec::new(), vec![cluster.agents[0]], Vec::new()] {
        let error = cluster.get(coflow, holders).await.unwrap_err();
        let GetError::CoflowRefused { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("needed"), "{reason}");
    }
    let admission = cluster.clients[0].admission(coflow, LIMIT).await.unwrap();
    assert!(matches!(admission, Some(Admission::Refused { .. })), "{admission:?}");
    assert!(cluster.clients[0].unregister(coflow).await.unwrap().is_some());
    assert_eq!(cluster.clients[0].admission(coflow, LIMIT).await.unwrap(), Some(Admission::Ended));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coflow_with_time_enough_is_let_in() {
    let cluster = Cluster::start();
    let coflow = cluster.offer(60_000, true).await;
    assert_eq!(
        cluster.clients[0].admission(coflow, Duration::ZERO).await.unwrap(),
        None,
        "nobody asked for it"
    );
    let (got, admission) =
        tokio::join!(cluster.get(coflow, Vec::new()), cluster.clients[0].admission(coflow, LIMIT));
    assert_eq!((got.unwrap(), admission.unwrap()), (4_000_000, Some(Admission::Admitted)));
    let without = cluster.clients[0].register(CoflowOptions::default()).await.unwrap();
    let admission = cluster.clients[0].admission(without, LIMIT).await.unwrap();
    assert_eq!(admission, Some(Admission::NoDeadline));
}

//! What a driver expects of its coflow, over real sockets on loopback.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate};

/// So slow that 1 MB takes 1 s.
const LINK: Rate = Rate::from_bytes_per_sec(1e6);
const LIMIT: Duration = Duration::from_secs(30);

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Clients of the hosts 0 and 1 under varys. The directory goes with the value.
fn cluster() -> ([Client; 2], tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let listener = weir_net::control_listener(any_port()).unwrap();
    let coordinator = listener.local_addr().unwrap();
    let fabric = Fabric::big_switch(2, LINK).unwrap();
    let options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
    tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
    for host in 0..2 {
        let listener = weir_net::data_listener(any_port()).unwrap();
        let mut options = AgentOptions::new(host, dir.path().join(host.to_string()));
        options.coordinator = Some(coordinator.into());
        tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
    }
    let clients = [0, 1].map(|host: u32| {
        let agent = Some(dir.path().join(host.to_string()).join("agent.sock"));
        Client::new(ClientConfig { coordinator: Some(coordinator.into()), agent, host })
    });
    (clients, dir)
}

/// One coflow asks for 1 MB of 20, the other for all its 2 MB. The first to be asked for shows less, and waits all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coflow_of_which_more_is_to_come_waits_for_one_that_is_smaller() {
    let ([driver, receiver], _dir) = cluster();
    let mut coflows = Vec::new();
    for bytes in [1_000_000, 2_000_000] {
        let coflow = driver.register(CoflowOptions::default()).await.unwrap();
        driver.put_bytes(coflow, "b", &vec![7; bytes]).await.unwrap();
        coflows.push(coflow);
    }
    driver.expect(coflows[0], &[(0, 20_000_000)]).await.unwrap();
    let get = |coflow: u64| {
        let (receiver, options) = (&receiver, GetOptions { time_limit: LIMIT, ..GetOptions::default() });
        async move {
            receiver.get_bytes(coflow, "b", options).await.unwrap();
            Instant::now()
        }
    };
    let (large, small) = tokio::join!(get(coflows[0]), get(coflows[1]));
    assert!(small < large, "{:?} too late", small - large);
    assert!(driver.expect(12345, &[]).await.is_err(), "no such coflow");
}

//! An agent whose coordinator's words come later and later, over real sockets: what is old renews no lease.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
use weir_daemon::agent::AgentOptions;
use weir_daemon::coordinator::CoordinatorOptions;
use weir_model::{Fabric, Rate, Span};

/// Planned at this, a block takes ten seconds; unplanned, over loopback, no time to speak of.
const BYTES_PER_SEC: f64 = 1e6;
const BLOCK_BYTES: usize = 10_000_000;
/// So much longer than what came before it each word is on its way, until it takes the most.
const LATER: f64 = 0.5;
const LATEST: Duration = Duration::from_secs(4);

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A way to the coordinator whose answers are later and later once it grows worse: there is never a gap of a lease.
struct Way {
    address: SocketAddr,
    worse_since: Arc<Mutex<Option<Instant>>>,
}

impl Way {
    async fn to(target: SocketAddr) -> Way {
        let listener = TcpListener::bind(any_port()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let worse_since = Arc::new(Mutex::new(None));
        let since = worse_since.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(target).await.unwrap();
                // Neither end has the other wait for more to say.
                near.set_nodelay(true).unwrap();
                far.set_nodelay(true).unwrap();
                let (near_in, mut near_out) = near.into_split();
                let (far_in, mut far_out) = far.into_split();
                let (mut near_in, mut far_in) = (near_in, far_in);
                tokio::spawn(async move { tokio::io::copy(&mut near_in, &mut far_out).await });
                let (sender, mut due) = tokio::sync::mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
                let since = since.clone();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 65_536];
                    while let Ok(read @ 1..) = far_in.read(&mut bytes).await {
                        let worse: Option<Instant> = *since.lock().unwrap();
                        let delay =
                            worse.map_or(Duration::ZERO, |at| at.elapsed().mul_f64(LATER).min(LATEST));
                        let _ = sender.send((Instant::now() + delay, bytes[..read].to_vec()));
                    }
                });
                tokio::spawn(async move {
                    while let Some((at, bytes)) = due.recv().await {
                        tokio::time::sleep_until(at).await;
                        if near_out.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Way { address, worse_since }
    }
}

/// An agent that the coordinator's word has not reached yet sends as TCP has it send: waits for that word, as the agent's
/// metrics show it.
async fn wait_for_lease(metrics: SocketAddr) {
    let has_lease = async || -> std::io::Result<bool> {
        let mut text = String::new();
        let mut stream = TcpStream::connect(metrics).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").await?;
        stream.read_to_string(&mut text).await?;
        Ok(text.lines().any(|line| line == "weir_agent_lease 1.0"))
    };
    let held = async {
        while !has_lease().await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), held).await.expect("a word of the coordinator within 20 s");
}

/// Gets the block; how long that took, from when the way grew worse if it did.
async fn get(worse: bool) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let listener = weir_net::control_listener(any_port()).unwrap();
    let coordinator = listener.local_addr().unwrap();
    let fabric = Fabric::big_switch(2, Rate::from_bytes_per_sec(BYTES_PER_SEC)).unwrap();
    let options = CoordinatorOptions::new(fabric, weir_policy::find("varys").unwrap());
    tokio::spawn(weir_daemon::coordinator::serve(options, listener, std::future::pending()));
    let way = Way::to(coordinator).await;
    let spool = dir.path().join("spool");
    let mut options = AgentOptions::new(0, spool.clone());
    options.coordinator = Some(way.address.into());
    // A busy machine may plan late; what is asked here is what comes after a plan.
    options.first_plan_wait = Span::from_millis(10_000);
    let metrics = std::net::TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    options.metrics = Some(metrics);
    let listener = weir_net::data_listener(any_port()).unwrap();
    tokio::spawn(weir_daemon::agent::serve(options, listener, std::future::pending()));
    let at = |host, agent| Client::new(ClientConfig { coordinator: Some(coordinator.into()), agent, host });
    let (task, receiver) = (at(0, Some(spool.join("agent.sock"))), at(1, None));
    let coflow = task.register(CoflowOptions::default()).await.unwrap();
    task.put_bytes(coflow, "b", &vec![7; BLOCK_BYTES]).await.unwrap();
    wait_for_lease(metrics).await;
    let options = GetOptions { time_limit: Duration::from_secs(30), ..GetOptions::default() };
    let mut reader = receiver.get(coflow, "b", options);
    // It moves, by its plan.
    reader.next().await.unwrap().unwrap();
    let began = Instant::now();
    if worse {
        *way.worse_since.lock().unwrap() = Some(began);
    }
    while reader.next().await.unwrap().is_some() {}
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_fails_open_though_old_words_of_its_coordinator_keep_coming() {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (planned, late) = tokio::join!(get(false), get(true));
        seen.push((planned, late));
        // Where nothing was late a lease ended all the same: the machine stood still for longer, and nothing is learned.
        if planned.as_secs_f64() > 0.9 * BLOCK_BYTES as f64 / BYTES_PER_SEC {
            // A lease is a second, and its words come four times in one: within two what arrives next is too old to renew it,
            // and the flow goes as TCP has it go.
            assert!(late < planned.mul_f64(0.8), "{late:?}, and {planned:?} where nothing was late");
            return;
        }
    }
    panic!("leases end though nothing is late: {seen:?}");
}

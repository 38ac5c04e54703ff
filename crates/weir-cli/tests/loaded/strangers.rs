//! Peers that say what nobody should: nonsense, lies, and calls beyond every bound.

use super::bed::{Bed, HOSTS};
use super::plan::Stranger;
use crate::support::chance::Chance;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use weir_proto::data::{FRAME_BYTES, Identity, Request};
use weir_proto::v1;
use weir_proto::v1::agent_client::AgentClient;
use weir_proto::v1::agent_event::Kind;
use weir_proto::v1::coordinator_client::CoordinatorClient;

/// How long one of them stays at most.
const STAY: Duration = Duration::from_secs(2);
/// A coflow that a stranger registers, and nobody renews.
const ORPHAN_LEASE_MS: u64 = 3_000;
/// No process gives ids from here on.
const NEVER_GIVEN: u64 = 1 << 63;

/// Whom a stranger troubles.
#[derive(Clone)]
pub(crate) struct Victims {
    coordinator: SocketAddr,
    agents: Vec<SocketAddr>,
    socket: PathBuf,
    /// Coflows of the round, with a block of each.
    coflows: Vec<(u64, String)>,
}

impl Victims {
    pub(crate) fn new(bed: &Bed, coflows: Vec<(u64, String)>, host: u32) -> Victims {
        let socket = bed.spool(host).join("agent.sock");
        Victims { coordinator: bed.coordinator, agents: bed.agents.clone(), socket, coflows }
    }

    /// Troubles them for a while. Whatever becomes of it is nobody's concern but theirs.
    pub(crate) async fn trouble(self, who: Stranger, seed: u64) {
        let chance = &mut Chance::new(seed);
        let stay = async {
            match who {
                Stranger::Noise => self.noise(chance).await,
                Stranger::Liar => _ = self.lie(chance).await,
                Stranger::Calls => _ = self.call(chance).await,
                Stranger::Requests => self.request(chance).await,
            }
        };
        let _ = timeout(STAY, stay).await;
    }

    fn any(&self, chance: &mut Chance) -> SocketAddr {
        let all: Vec<SocketAddr> = self.agents.iter().copied().chain([self.coordinator]).collect();
        chance.of(&all)
    }

    /// An id that may mean something to somebody.
    fn id(&self, chance: &mut Chance) -> u64 {
        let known: Vec<u64> = self.coflows.iter().map(|&(id, _)| id).collect();
        match chance.below(3) {
            0 => chance.of(&[0, 1, u64::MAX, u64::MAX - 1, NEVER_GIVEN]),
            1 => chance.next() | NEVER_GIVEN,
            _ => chance.of(&known),
        }
    }

    async fn noise(&self, chance: &mut Chance) {
        let mut open = Vec::new();
        for _ in 0..chance.between(20, 150) {
            let Ok(mut stream) = TcpStream::connect(self.any(chance)).await else { continue };
            let mut bytes = match chance.below(4) {
                0 => Vec::new(),
                1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
                2 => b"WEIR\x02".to_vec(),
                _ => b"WEIR\x01\xff".to_vec(),
            };
            bytes.extend((0..chance.below(2_000)).map(|_| chance.next() as u8));
            if chance.percent(70) {
                let _ = stream.write_all(&bytes).await;
            }
            open.push(stream);
        }
        if let Ok(mut local) = UnixStream::connect(&self.socket).await {
            let _ = local.write_all(&chance.next().to_le_bytes().repeat(100)).await;
            sleep(STAY / 4).await;
        }
        sleep(STAY / 2).await;
    }

    async fn lie(&self, chance: &mut Chance) -> Result<(), tonic::Status> {
        let mut client = self.client().await?;
        let (sender, messages) = tokio::sync::mpsc::channel(16);
        let host = chance.of(&[HOSTS, HOSTS, HOSTS + 1, 0, u32::MAX]);
        let blocks: Vec<_> = self
            .coflows
            .iter()
            .map(|(coflow, block)| v1::BlockAdded {
                coflow: *coflow,
                block: block.clone(),
                size: 1_000,
                identity: chance.next().to_le_bytes().repeat(2),
            })
            .collect();
        let hello = v1::Hello {
            version: 1,
            host,
            data_address: "127.0.0.1:1".to_owned(),
            incarnation: chance.next(),
            blocks,
            ended_ranges: vec![v1::IdRange { first: NEVER_GIVEN, last: u64::MAX }],
            more: chance.percent(30),
            spool_identity: chance.next(),
            ..v1::Hello::default()
        };
        let message = |kind| v1::AgentMessage { events: vec![v1::AgentEvent { kind: Some(kind) }] };
        let _ = sender.send(message(Kind::Hello(hello))).await;
        let mut inbound =
            client.attach(tokio_stream::wrappers::ReceiverStream::new(messages)).await?.into_inner();
        for _ in 0..chance.between(1, 200) {
            if sender.send(message(self.event(chance))).await.is_err() {
                break;
            }
        }
        // It reads some of what it is told, and then nothing any more.
        for _ in 0..chance.below(20) {
            if inbound.message().await?.is_none() {
                break;
            }
        }
        sleep(STAY / 2).await;
        Ok(())
    }

    fn event(&self, chance: &mut Chance) -> Kind {
        let (coflow, flow, any) = (self.id(chance), chance.below(4), chance.next());
        let bytes = chance.of(&[0, 1, FRAME_BYTES, 1 << 43, u64::MAX]);
        let rate = chance.of(&[0.0, -1.0, 1e6, 1e300, f64::NAN, f64::INFINITY]);
        match chance.below(9) {
            0 => Kind::BlockAdded(v1::BlockAdded {
                coflow,
                block: format!("{any}"),
                size: bytes,
                identity: Vec::new(),
            }),
            1 | 2 => Kind::FlowOpened(v1::FlowOpened {
                flow,
                coflow,
                block: format!("{any}"),
                destination: chance.of(&[0, 1, HOSTS, u32::MAX]),
                size: bytes,
                offset: any % FRAME_BYTES,
                group: 0,
            }),
            3 => Kind::FlowClosed(v1::FlowClosed {
                flow,
                sent: bytes,
                done: any & 1 == 1,
                again: any & 2 == 2,
            }),
            4 => Kind::Progress(v1::Progress { flows: vec![v1::FlowProgress { flow, sent: bytes }] }),
            5 => Kind::Attained(v1::Attained { coflows: vec![v1::CoflowAttained { coflow, bytes }] }),
            6 => Kind::Limits(v1::FlowLimits { flows: vec![v1::FlowLimit { flow, bytes_per_s: rate }] }),
            7 => Kind::Interface(v1::InterfaceReport {
                interval_ns: any,
                sent: bytes,
                received: chance.next(),
                own: vec![v1::HostBytes { host: HOSTS, bytes }],
            }),
            _ => Kind::BlockGone(v1::BlockGone { coflow, block: format!("{any}") }),
        }
    }

    async fn client(&self) -> Result<CoordinatorClient<tonic::transport::Channel>, tonic::Status> {
        let connected = CoordinatorClient::connect(format!("http://{}", self.coordinator)).await;
        connected.map_err(|error| tonic::Status::unavailable(error.to_string()))
    }

    async fn call(&self, chance: &mut Chance) -> Result<(), tonic::Status> {
        let mut client = self.client().await?;
        for _ in 0..chance.between(5, 40) {
            let (coflow, long) = (chance.next() | NEVER_GIVEN, "x".repeat(chance.below(3_000_000) as usize));
            let ids = (0..chance.below(2_000)).map(|_| chance.next() | NEVER_GIVEN).collect();
            // Each may be refused; those after it are made all the same.
            let _ = match chance.below(7) {
                0 => client.seal(v1::SealRequest { coflow }).await.map(drop),
                1 => client.unregister(v1::UnregisterRequest { coflow }).await.map(drop),
                2 => client.renew(v1::RenewRequest { coflows: ids }).await.map(drop),
                3 => client.await_admission(v1::AdmissionRequest { coflow, wait_ms: 100 }).await.map(drop),
                4 => {
                    let request = v1::LocateRequest { coflow, block: long, wait_ms: 100, host: u32::MAX };
                    client.locate(request).await.map(drop)
                }
                5 => {
                    let options = v1::CoflowOptions {
                        name: long,
                        parents: ids,
                        deadline_ms: u64::MAX,
                        ..Default::default()
                    };
                    let request = v1::RegisterRequest { options: Some(options), request_key: chance.next() };
                    client.register(request).await.map(drop)
                }
                _ => {
                    let parents = self.coflows.iter().map(|&(id, _)| id).collect();
                    let options = v1::CoflowOptions {
                        parents,
                        weight: chance.of(&[0.0, 1e-300, 1e300]),
                        lease_ms: ORPHAN_LEASE_MS,
                        ..v1::CoflowOptions::default()
                    };
                    let request = v1::RegisterRequest { options: Some(options), request_key: chance.next() };
                    client.register(request).await.map(drop)
                }
            };
        }
        Ok(())
    }

    async fn request(&self, chance: &mut Chance) {
        let mut open = Vec::new();
        for _ in 0..chance.between(5, 40) {
            let known = chance.of(&(0..self.coflows.len()).collect::<Vec<_>>());
            let (coflow, block) = self.coflows[known].clone();
            let request = Request {
                coflow: if chance.percent(50) { coflow } else { self.id(chance) },
                offset: chance.of(&[0, 1, FRAME_BYTES, 1 << 43, u64::MAX]),
                destination: chance.of(&[0, HOSTS, u32::MAX]),
                group: chance.next() as u32,
                identity: chance.of(&[Identity::UNKNOWN, Identity::drawn([7; 16])]),
                block: if chance.percent(50) { block } else { "y".repeat(255) },
            };
            let Ok(mut stream) = TcpStream::connect(chance.of(&self.agents)).await else { continue };
            let _ = stream.write_all(&request.encode()).await;
            if chance.percent(30) {
                let _ = timeout(STAY / 20, stream.read(&mut [0; 4096])).await;
            }
            open.push(stream);
        }
        let _ = self.put(chance).await;
        // What is sent them they do not read.
        sleep(STAY / 2).await;
    }

    /// Puts of what is not there, or nobody may put.
    async fn put(&self, chance: &mut Chance) -> Result<(), tonic::Status> {
        let mut client = AgentClient::new(weir_net::agent_channel(self.socket.clone()));
        for _ in 0..10 {
            let request = v1::PutRequest {
                coflow: self.id(chance),
                block: "z".repeat(chance.between(1, 300) as usize),
                path: chance.of(&["/etc/passwd", "journal.jsonl", "../lock", "", "/dev/zero"]).to_owned(),
                offset: chance.next(),
                size: chance.next(),
                spooled: chance.percent(50),
                frame_checksums: vec![7; chance.below(5) as usize],
                identity: vec![1; chance.below(20) as usize],
            };
            let _ = client.put(request).await;
        }
        Ok(())
    }
}

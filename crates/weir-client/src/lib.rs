//! The client library: register, put, get, seal, unregister, status.
//!
//! A driver registers a coflow; senders put blocks at the agent of their host; receivers get them by
//! name. Bytes go straight from the sender's agent to the receiver, are verified frame by frame, and a
//! broken transfer goes on where it stopped. Between sites they may come by way of relays, if the agents of both
//! hosts are told of some. Every call has a time limit. Without a coordinator, `get`
//! still works if it is told who holds the block ([`GetOptions::holders`]).
//!
//! What moves otherwise can be hinted: `weir_client::hint(&socket, Hint::Known(Bytes(1_000_000)))?` tells `weir tag` what a TCP socket
//! sends next.
//!
//! The library decides nothing about order or rates and keeps no state but pooled connections.
//!
//! ```no_run
//! use std::path::Path;
//! use weir_client::{Client, ClientConfig, CoflowOptions, GetOptions};
//!
//! async fn shuffle() -> anyhow::Result<()> {
//!     // Every task: the agent of this host says which host this is, and where the coordinator is.
//!     let client = Client::new(ClientConfig::of_agent("/var/lib/weir/agent.sock").await?);
//!
//!     // The driver declares the coflow, and gives its id to the tasks.
//!     let options = CoflowOptions { name: "shuffle 7".into(), flows: 2, ..Default::default() };
//!     let coflow = client.register(options).await?;
//!
//!     // Senders offer blocks: from memory, or a range of a file. Then they may exit.
//!     client.put_bytes(coflow, "map-0/reduce-0", b"some bytes").await?;
//!     client.put_file(coflow, "map-0/reduce-1", Path::new("/data/map-0"), 4096, 1 << 20).await?;
//!
//!     // Receivers ask by name, before or after the put: as a whole, or as it arrives.
//!     let whole = client.get_bytes(coflow, "map-0/reduce-0", GetOptions::default()).await?;
//!     let mut parts = client.get(coflow, "map-0/reduce-1", GetOptions::default());
//!     let mut received = whole.len();
//!     while let Some(part) = parts.next().await? {
//!         received += part.len();
//!     }
//!     // Or as a stream (tokio's AsyncRead), which a slow reader slows down: nothing piles up.
//!     let mut stream = client.get_stream(coflow, "map-0/reduce-1", GetOptions::default());
//!     tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
//!
//!     // The driver ends it; blocks go.
//!     let record = client.unregister(coflow).await?;
//!     println!("{received} bytes, {:?}", record.map(|record| record.cct_s));
//!     Ok(())
//! }
//! ```

mod admission;
mod calls;
mod config;
mod content;
mod error;
mod get;
mod leases;
mod links;
mod locator;
mod memory;
mod pool;
mod stream;

pub use admission::Admission;
pub use config::ClientConfig;
pub use error::{Error, GetError};
pub use get::{BlockReader, GetOptions};
pub use memory::MemoryBlock;
pub use stream::BlockStream;
pub use weir_model::Hint;
pub use weir_net::{Address, AddressError, hint};
pub use weir_proto::host::Host;
pub use weir_proto::v1::Admission as AdmissionState;
pub use weir_proto::v1::{
    BlockHolders, Changed, CoflowOptions, CoflowRecord, CoflowStatus, DescribeReply, DrainReply, HostAway,
    Pattern, StatusReply,
};
pub use weir_proto::v1::{CoflowPlace, ControllerStatus, LinkState};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tonic::transport::Channel;
use weir_proto::data::Identity;
use weir_proto::v1::agent_client::AgentClient;
use weir_proto::v1::coordinator_client::CoordinatorClient;
use weir_proto::v1::relay_control_client::RelayControlClient;
use weir_proto::{limits, v1};

/// How long a control call may take before it fails, retries included.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Pause between attempts of a control call.
const CALL_RETRY: Duration = Duration::from_millis(50);

/// A connection to Weir; clones share it.
#[derive(Clone)]
pub struct Client {
    config: ClientConfig,
    coordinator: Option<CoordinatorClient<Channel>>,
    agent: Option<AgentClient<Channel>>,
    spool: Arc<Mutex<Option<PathBuf>>>,
    owned: Arc<leases::Owned>,
    pool: Arc<pool::Pool>,
    locator: Arc<locator::Locator>,
    relays: Arc<Mutex<calls::Relays>>,
}

/// Number and name of a host, as requests have them.
fn named(host: &Host) -> (u32, String) {
    match host {
        Host::Number(number) => (*number, String::new()),
        Host::Name(name) => (0, name.clone()),
    }
}

impl Client {
    /// Prepares a client. Nothing is connected yet, so this works while the peers are still starting.
    /// Must be called within a tokio runtime.
    pub fn new(config: ClientConfig) -> Client {
        let bound = limits::MAX_CONTROL_MESSAGE_BYTES;
        let coordinator = config.coordinator.clone().map(|address| {
            CoordinatorClient::new(weir_net::coordinator_channel(address)).max_decoding_message_size(bound)
        });
        let agent = config.agent.clone().map(|path| {
            AgentClient::new(weir_net::agent_channel(path)).max_encoding_message_size(limits::MAX_PUT_BYTES)
        });
        Client {
            config,
            coordinator,
            agent,
            spool: Arc::default(),
            owned: Arc::default(),
            pool: Arc::default(),
            locator: Arc::default(),
            relays: Arc::default(),
        }
    }

    /// Declares a coflow and returns its id. Repeated until the coordinator answers or 10 s have passed;
    /// a repetition never registers twice.
    ///
    /// The coflow has a lease ([`CoflowOptions::lease_ms`], else the coordinator's). This client and its clones renew it,
    /// at a third of the lease, for as long as one of them lives; without them it lives on for as long as blocks of it are put and got, and then
    /// for its lease.
    ///
    /// # Errors
    /// The client has no coordinator; it refuses, as where an option is out of range; or it gives no answer within 10 s.
    pub async fn register(&self, options: CoflowOptions) -> Result<u64, Error> {
        let asked_ms = options.lease_ms;
        let request =
            v1::RegisterRequest { options: Some(options), request_key: rand::random_range(1..=u64::MAX) };
        let client = self.coordinator()?;
        let reply = retry(self.coordinator_name(), || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.register(request).await }
        })
        .await?;
        // A coordinator of a version that does not tell the lease in force keeps what was asked for.
        let lease_ms = if reply.lease_ms > 0 { reply.lease_ms } else { asked_ms };
        self.owned.add(&client, reply.coflow, lease_ms);
        Ok(reply.coflow)
    }

    /// Renews the lease of a coflow that another process registered, for as long as this client or a clone of it lives: work that
    /// is long before its put or get then does not outlast the coflow. Repeated until the coordinator answers or 10 s have passed;
    /// what has ended stays ended, and is no error.
    ///
    /// # Errors
    /// The client has no coordinator, or that refuses or gives no answer within 10 s.
    pub async fn keep(&self, coflow: u64) -> Result<(), Error> {
        let client = self.coordinator()?;
        let reply = retry(self.coordinator_name(), || {
            let mut client = client.clone();
            async move { client.renew(v1::RenewRequest { coflows: vec![coflow] }).await }
        })
        .await?;
        if reply.ended.is_empty() {
            self.owned.add(&client, coflow, reply.lease_ms);
        }
        Ok(())
    }

    /// Says that no more flows will join the coflow.
    ///
    /// # Errors
    /// The client has no coordinator, or that does not know the coflow or gives no answer within 10 s.
    pub async fn seal(&self, coflow: u64) -> Result<(), Error> {
        let client = self.coordinator()?;
        retry(self.coordinator_name(), || {
            let mut client = client.clone();
            async move { client.seal(v1::SealRequest { coflow }).await }
        })
        .await?;
        Ok(())
    }

    /// Says how many bytes of the coflow are still to come, by the hosts that they come from, before receivers ask for them: it
    /// counts for the coflow's order among others, where the policy looks at sizes. In place of what was said before.
    ///
    /// # Errors
    /// The client has no coordinator, or that does not know the coflow, is told too much, or gives no answer within 10 s.
    pub async fn expect(&self, coflow: u64, sources: &[(u32, u64)]) -> Result<(), Error> {
        let client = self.coordinator()?;
        let from =
            |&(host, bytes): &(u32, u64)| v1::ExpectedFrom { host, bytes, ..v1::ExpectedFrom::default() };
        let sources: Vec<_> = sources.iter().map(from).collect();
        retry(self.coordinator_name(), || {
            let (mut client, sources) = (client.clone(), sources.clone());
            async move { client.expect(v1::ExpectRequest { coflow, sources }).await }
        })
        .await?;
        Ok(())
    }

    /// Ends a coflow: its blocks may go and what still moves is stopped. Returns its record, or `None`
    /// if the coordinator did not know it.
    ///
    /// # Errors
    /// The client has no coordinator, or that refuses or gives no answer within 10 s.
    pub async fn unregister(&self, coflow: u64) -> Result<Option<CoflowRecord>, Error> {
        let client = self.coordinator()?;
        let reply = retry(self.coordinator_name(), || {
            let mut client = client.clone();
            async move { client.unregister(v1::UnregisterRequest { coflow }).await }
        })
        .await?;
        self.owned.remove(coflow);
        Ok(reply.record)
    }

    /// What moves now, and what each coflow waits for.
    ///
    /// # Errors
    /// The client has no coordinator, or that cannot be reached or gives no answer within 10 s. The call is not repeated.
    pub async fn status(&self) -> Result<StatusReply, Error> {
        self.ask_status(0).await
    }

    /// The same of one coflow: it is among the live ones, or it is complete and its record is there, or
    /// [`StatusReply::ended`] says that it has ended. Of none of these the coordinator has not heard yet.
    ///
    /// # Errors
    /// As [`Client::status`]. A coflow that is not known is no error.
    pub async fn status_of(&self, coflow: u64) -> Result<StatusReply, Error> {
        self.ask_status(coflow).await
    }

    /// The blocks of a coflow, by name, and which hosts hold each; `None` if the coflow has ended.
    ///
    /// # Errors
    /// The client has no coordinator, that refuses or gives no answer within 10 s, or a part of its list does not follow the one before.
    pub async fn blocks(&self, coflow: u64) -> Result<Option<Vec<BlockHolders>>, Error> {
        let client = self.coordinator()?;
        let (mut blocks, mut after) = (Vec::new(), String::new());
        loop {
            let request = v1::ListBlocksRequest { coflow, after: after.clone() };
            let reply = retry(self.coordinator_name(), || {
                let (mut client, request) = (client.clone(), request.clone());
                async move { client.list_blocks(request).await }
            })
            .await?;
            if reply.ended {
                return Ok(None);
            }
            blocks.extend(reply.blocks);
            if reply.more_after.is_empty() {
                return Ok(Some(blocks));
            }
            if reply.more_after <= request.after {
                return Err(Error::Refused("the coordinator's list of blocks does not go on".to_owned()));
            }
            after = reply.more_after;
        }
    }

    async fn ask_status(&self, coflow: u64) -> Result<StatusReply, Error> {
        let mut client = self.coordinator()?;
        let call = client.status(v1::StatusRequest { coflow });
        match tokio::time::timeout(CALL_LIMIT, call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => Err(Error::of(&self.coordinator_name(), &status)),
            Err(_) => Err(Error::TimeLimit),
        }
    }

    /// Puts `size` bytes of a file from `offset` as a block. The file stays where it is and must not
    /// change until the coflow has ended; it must be below a directory the agent may serve.
    ///
    /// # Errors
    /// The client has no agent, the path is not UTF-8, or the agent refuses the put or gives no answer within 10 s.
    pub async fn put_file(
        &self,
        coflow: u64,
        block: &str,
        path: &Path,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        self.put_file_as(coflow, block, path, (offset, size), Identity::drawn(rand::random())).await
    }

    /// As [`Client::put_file`], and reads the file's bytes once: their hash lets receivers go on with the block at any
    /// holder that put the same bytes, and verify it as a whole ([`GetOptions::verify_whole`]).
    ///
    /// # Errors
    /// As [`Client::put_file`]; besides, the file cannot be read, or ends before the block does.
    pub async fn put_file_hashed(
        &self,
        coflow: u64,
        block: &str,
        path: &Path,
        offset: u64,
        size: u64,
    ) -> Result<(), Error> {
        let file = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || content::of_file(&file, offset, size)).await;
        let identity = hashed.map_err(std::io::Error::other).flatten().map_err(Error::File)?;
        self.put_file_as(coflow, block, path, (offset, size), identity).await
    }

    async fn put_file_as(
        &self,
        coflow: u64,
        block: &str,
        path: &Path,
        (offset, size): (u64, u64),
        identity: Identity,
    ) -> Result<(), Error> {
        // A relative path counts from this process's folder, which is not the agent's.
        let path = std::path::absolute(path).map_err(Error::File)?;
        let path = path.to_str().ok_or(Error::Path)?.to_owned();
        let (block, identity, frame_checksums) = (block.to_owned(), identity.to_wire(), Vec::new());
        let spooled = false;
        self.put(v1::PutRequest { coflow, block, path, offset, size, spooled, frame_checksums, identity })
            .await
    }

    /// Memory of `size` bytes to write a block into. Hand it over with [`Client::put_memory`]; nothing
    /// is copied then, and the task may exit.
    ///
    /// # Errors
    /// The client has no agent, that gives no answer within 10 s, or its spool has no room for a file of this size.
    pub async fn memory_block(&self, size: u64) -> Result<MemoryBlock, Error> {
        Ok(MemoryBlock::create(&self.spool().await?, size)?)
    }

    /// Puts a block from memory.
    ///
    /// # Errors
    /// The memory's file cannot be given its name in the spool, or the agent refuses the put or gives no answer within 10 s.
    pub async fn put_memory(&self, coflow: u64, block: &str, mut memory: MemoryBlock) -> Result<(), Error> {
        memory.give_name()?;
        let (size, frame_checksums) = (memory.len() as u64, memory.frame_checksums());
        let (block, path) = (block.to_owned(), memory.name().to_owned());
        let (offset, spooled) = (0, true);
        let identity = content::of_bytes(&memory).to_wire();
        let put = v1::PutRequest { coflow, block, path, offset, size, spooled, frame_checksums, identity };
        let put = self.put(put).await;
        // A put that was refused is over; one that was not answered may still be on its way.
        if !matches!(put, Err(Error::Refused(_) | Error::NoAgent)) {
            memory.hand_over();
        }
        put
    }

    /// Copies `bytes` into a block and puts it.
    ///
    /// # Errors
    /// As [`Client::memory_block`] and [`Client::put_memory`].
    pub async fn put_bytes(&self, coflow: u64, block: &str, bytes: &[u8]) -> Result<(), Error> {
        let mut memory = self.memory_block(bytes.len() as u64).await?;
        memory.copy_from_slice(bytes);
        self.put_memory(coflow, block, memory).await
    }

    /// Has the agent of another host put one of its files as a block, if it shares it (`weir agent --share`). Returns the size.
    ///
    /// # Errors
    /// The client has no coordinator, that or the host's agent refuses, no agent of that host is there, or no answer comes within 10 s.
    pub async fn offer(&self, coflow: u64, block: &str, host: &Host, path: &str) -> Result<u64, Error> {
        let client = self.coordinator()?;
        let identity = Identity::drawn(rand::random()).to_wire();
        let (block, path) = (block.to_owned(), path.to_owned());
        let (host, host_name) = named(host);
        let request = v1::OfferRequest { coflow, block, host, path, identity, host_name };
        let reply = retry(self.coordinator_name(), || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.offer(request).await }
        })
        .await?;
        Ok(reply.size)
    }

    /// Has a host take no more blocks, so that it can be stopped once the coflows that it serves have ended; or takes that
    /// back. Says what it holds and serves.
    ///
    /// # Errors
    /// No coordinator is configured or reachable, or the host has no agent there.
    pub async fn drain(&self, host: &Host, undo: bool) -> Result<DrainReply, Error> {
        let client = self.coordinator()?;
        let (host, host_name) = named(host);
        let request = v1::DrainRequest { host, host_name, undo };
        let reply = retry(self.coordinator_name(), || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.drain(request).await }
        });
        reply.await
    }

    /// Has the coordinator list a host no longer that is away for good. Returns its name.
    ///
    /// # Errors
    /// No coordinator is configured or reachable; no such host is away there.
    pub async fn forget(&self, host: &Host) -> Result<String, Error> {
        let client = self.coordinator()?;
        let (host, host_name) = named(host);
        let request = v1::ForgetRequest { host, host_name };
        let reply = retry(self.coordinator_name(), || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.forget(request).await }
        });
        Ok(reply.await?.name)
    }

    /// Changes settings of the coordinator, by their names in its file of settings: all of them, or none. They hold until it reads
    /// its settings again, or starts anew. Returns those that have another value now.
    ///
    /// # Errors
    /// No coordinator is configured or reachable; or it refused, and nothing was changed.
    pub async fn change(&self, settings: &[(String, String)]) -> Result<Vec<Changed>, Error> {
        let client = self.coordinator()?;
        let setting =
            |(name, value): &(String, String)| v1::Setting { name: name.clone(), value: value.clone() };
        let request = v1::ChangeRequest { settings: settings.iter().map(setting).collect() };
        let reply = retry(self.coordinator_name(), || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.change(request).await }
        });
        Ok(reply.await?.changed)
    }

    async fn put(&self, put: v1::PutRequest) -> Result<(), Error> {
        let client = self.agent()?;
        retry(self.agent_name(), || {
            let (mut client, put) = (client.clone(), put.clone());
            async move { client.put(put).await }
        })
        .await?;
        Ok(())
    }

    async fn spool(&self) -> Result<PathBuf, Error> {
        let mut spool = self.spool.lock().await;
        if let Some(path) = &*spool {
            return Ok(path.clone());
        }
        Ok(spool.insert(PathBuf::from(self.describe().await?.spool)).clone())
    }

    /// Facts about this host's agent, and how long control took there.
    ///
    /// # Errors
    /// The client has no agent, or that refuses or gives no answer within 10 s.
    pub async fn describe(&self) -> Result<DescribeReply, Error> {
        let client = self.agent()?;
        retry(self.agent_name(), || {
            let mut client = client.clone();
            async move { client.describe(v1::DescribeRequest {}).await }
        })
        .await
    }

    /// The coordinator's address as error messages show it.
    fn coordinator_name(&self) -> String {
        self.config.coordinator.as_ref().map_or_else(String::new, |at| format!("the coordinator at {at}"))
    }

    fn agent_name(&self) -> String {
        self.config.agent.as_ref().map_or_else(String::new, |at| format!("the agent at {}", at.display()))
    }

    fn coordinator(&self) -> Result<CoordinatorClient<Channel>, Error> {
        self.coordinator.clone().ok_or(Error::NoCoordinator)
    }

    fn agent(&self) -> Result<AgentClient<Channel>, Error> {
        self.agent.clone().ok_or(Error::NoAgent)
    }
}

/// What a controller of relays knows: its relays, coflows in their order, and how fast links between sites were.
///
/// # Errors
/// The controller refuses, cannot be reached, or gives no answer within 10 s.
pub async fn controller_status(controller: impl Into<Address>) -> Result<ControllerStatus, Error> {
    let controller = controller.into();
    let name = format!("the controller at {controller}");
    let client = RelayControlClient::new(weir_net::coordinator_channel(controller))
        .max_decoding_message_size(limits::MAX_RELAY_MESSAGE_BYTES);
    retry(name, || {
        let mut client = client.clone();
        async move { client.describe(v1::DescribeControllerRequest {}).await }
    })
    .await
}

/// Repeats a call that may be repeated while its peer is away, within [`CALL_LIMIT`]. `peer`: as errors name it.
async fn retry<T, F>(peer: String, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
{
    let end = Instant::now() + CALL_LIMIT;
    let mut obstacle = None;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, call()).await {
            Ok(Ok(reply)) => return Ok(reply.into_inner()),
            Ok(Err(status)) if error::is_transient(&status) && left > CALL_RETRY => {
                obstacle = Some(Error::of(&peer, &status));
                tokio::time::sleep(CALL_RETRY).await;
            }
            Ok(Err(status)) => return Err(Error::of(&peer, &status)),
            Err(_) => return Err(obstacle.unwrap_or(Error::TimeLimit)),
        }
    }
}

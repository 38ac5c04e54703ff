//! Who a command talks to: the agent of this host by its socket, and the coordinator.

use anyhow::{Context, anyhow};
use clap::Args;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use weir_client::{Address, Client, ClientConfig, Error, GetError};
use weir_console::Failure;
use weir_proto::limits::MAX_BLOCK_NAME_BYTES;

/// Where an agent that runs as a service of the system has its socket.
const DEFAULT_AGENT: &str = "/run/weir/agent.sock";
/// Where a coordinator listens by default.
const DEFAULT_COORDINATOR: &str = "127.0.0.1:7070";

/// How long a connection may take until the client, which is more patient, is left to it.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Who a command talks to, and how it answers.
#[derive(Args, Clone)]
pub(crate) struct Peers {
    /// Socket of this host's agent; WEIR_AGENT or /run/weir/agent.sock unless said
    #[arg(long, value_name = "SOCKET")]
    agent: Option<PathBuf>,
    /// The coordinator; WEIR_COORDINATOR or the one of this host's agent unless said
    #[arg(long, value_name = "HOST:PORT")]
    coordinator: Option<Address>,
    /// Answer with one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Peers {
    /// The coordinator's address: as was said, or as this host's agent says, or that of a coordinator on this machine.
    pub(crate) async fn coordinator_address(&self) -> Result<Address, Failure> {
        if let Some(address) = self.coordinator_said()? {
            return Ok(address);
        }
        if self.agent_said().is_none() && !Path::new(DEFAULT_AGENT).exists() {
            return Ok(DEFAULT_COORDINATOR.parse()?);
        }
        let config = self.of_agent().await?;
        config.coordinator.ok_or_else(|| {
            let path = config.agent.unwrap_or_default();
            Failure::Input(format!(
                "the agent at {} has no coordinator; say which with --coordinator",
                path.display()
            ))
        })
    }

    /// A client that reaches the coordinator alone.
    pub(crate) async fn with_coordinator(&self) -> Result<Client, Failure> {
        let address = self.coordinator_address().await?;
        reach("coordinator", &address).await?;
        Ok(Client::new(ClientConfig { coordinator: Some(address), agent: None, host: 0 }))
    }

    /// A client of this host's agent, which reaches the coordinator too if there is one.
    pub(crate) async fn with_agent(&self) -> Result<Client, Failure> {
        let config = self.of_agent().await?;
        let coordinator = self.coordinator_said()?.or_else(|| config.coordinator.clone());
        Ok(Client::new(ClientConfig { coordinator, ..config }))
    }

    /// A client that gets: of this host's agent, or, where it is said which host this is, of the coordinator alone.
    pub(crate) async fn with_host(
        &self,
        host: Option<u32>,
        needs_coordinator: bool,
    ) -> Result<Client, Failure> {
        let client = match host {
            None => self.with_agent().await?,
            Some(host) => {
                let coordinator =
                    if needs_coordinator { Some(self.coordinator_address().await?) } else { None };
                Client::new(ClientConfig { coordinator, agent: None, host })
            }
        };
        Ok(client)
    }

    fn agent_said(&self) -> Option<PathBuf> {
        self.agent.clone().or_else(|| variable("WEIR_AGENT").map(PathBuf::from))
    }

    fn coordinator_said(&self) -> Result<Option<Address>, Failure> {
        match &self.coordinator {
            Some(address) => Ok(Some(address.clone())),
            None => parsed("WEIR_COORDINATOR"),
        }
    }

    /// What this host's agent says.
    async fn of_agent(&self) -> Result<ClientConfig, Failure> {
        let path = self.agent_said().unwrap_or_else(|| PathBuf::from(DEFAULT_AGENT));
        // A client would try for long, because the agent may be starting.
        tokio::net::UnixStream::connect(&path)
            .await
            .with_context(|| {
                format!(
                    "no agent answers at {}: say with --agent or WEIR_AGENT where its socket is",
                    path.display()
                )
            })
            .map_err(Failure::Unanswered)?;
        ClientConfig::of_agent(path).await.map_err(said)
    }
}

/// Why a call failed, with the exit code that says whether it may be tried again.
pub(crate) fn said(error: Error) -> Failure {
    // As text: it names its cause itself.
    let text = anyhow!("{error}");
    match error {
        Error::Unreachable(_) | Error::TimeLimit => Failure::Unanswered(text),
        Error::Refused(_) => Failure::Refused(text),
        _ => Failure::Run(text),
    }
}

/// Whether a block may have that name.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    if (1..=MAX_BLOCK_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let bytes = name.len();
    Err(Failure::Input(format!("the block's name has {bytes} bytes; names have 1 to {MAX_BLOCK_NAME_BYTES}")))
}

/// The same of a get.
pub(crate) fn said_of_get(error: GetError) -> Failure {
    match error {
        GetError::TimeLimit { .. } => Failure::Unanswered(error.into()),
        GetError::CoflowEnded(_)
        | GetError::CoflowRefused { .. }
        | GetError::Refused(_)
        | GetError::NotLocated(_)
        | GetError::Gone { .. } => Failure::Refused(error.into()),
        GetError::Changed { .. } | GetError::WrongHash { .. } | GetError::Sink(_) => {
            Failure::Run(error.into())
        }
    }
}

/// An environment variable that is set to something.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The variable's value, parsed; `None` if it is not set or empty.
fn parsed<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>, Failure> {
    let Some(value) = variable(name) else { return Ok(None) };
    let text = value.to_string_lossy();
    text.parse().map(Some).map_err(|error| Failure::Input(format!("{name}={text}: {error}")))
}

/// The coflow that a command is about, if any is said.
pub(crate) fn coflow_of(coflow: Option<u64>) -> Result<Option<u64>, Failure> {
    if coflow.is_some() { Ok(coflow) } else { parsed("WEIR_COFLOW") }
}

/// The coflow that a command is about.
pub(crate) fn coflow_or_refuse(coflow: Option<u64>) -> Result<u64, Failure> {
    coflow_of(coflow)?.ok_or_else(|| {
        Failure::Input(
            "no coflow: give the id that `weir register` printed, or set WEIR_COFLOW to it".to_owned(),
        )
    })
}

/// Runs a command that waits for its peers.
pub(crate) fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Finds out at once, and in the words of the operating system, that no process listens there: a client tries for longer,
/// because the process that it asks may be starting.
pub(crate) async fn reach(who: &str, address: &Address) -> Result<(), Failure> {
    let connecting = tokio::net::TcpStream::connect(address.as_str());
    match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
        Ok(Err(error)) => Err(silent(who, address, &error)),
        Ok(Ok(_)) | Err(_) => Ok(()),
    }
}

/// No process answers there, which is said with the reason.
pub(crate) fn silent(who: &str, address: &Address, error: &dyn std::error::Error) -> Failure {
    Failure::Unanswered(anyhow::anyhow!("no {who} answers at {address}: {error}"))
}

//! The store of a controller of several processes: one Redis server, version 7, not a cluster of them.
//!
//! Every call is a script, which Redis runs with nothing in between. What the scripts do is [`super::Ledger`]'s; tests
//! hold both to the same. It is no matter whether Redis keeps anything over a restart.

use super::{
    MAX_NUMBER, MAX_QUEUED_NOTICES, Notice, PAUSE, Renewal, Report, SERVER_LIFETIME, Snapshot, Store,
};
use super::{StoreError, decode_tally, encode_tally};
use crate::decision::{Decision, Proposal};
use crate::records::Documents;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisError, Script, ScriptInvocation};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio_stream::StreamExt;
use weir_model::Span;
use weir_policy::order::tally::Tally;

/// How long connecting may take, and how long an answer.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// First and longest pause between attempts to listen.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A prefix of keys in a Redis.
pub struct RedisStore {
    client: Client,
    address: String,
    prefix: String,
    scripts: Scripts,
    /// None until there is one, and after a failure.
    connection: Mutex<Option<MultiplexedConnection>>,
}

struct Scripts {
    report: Script,
    renew: Script,
    read: Script,
    issue: Script,
    share: Script,
    propose: Script,
}

impl Scripts {
    fn new() -> Scripts {
        let script = |text: &str| Script::new(&[include_str!("common.lua"), text].concat());
        Scripts {
            report: script(include_str!("report.lua")),
            renew: script(include_str!("renew.lua")),
            read: script(include_str!("read.lua")),
            issue: script(include_str!("issue.lua")),
            share: script(include_str!("share.lua")),
            propose: script(include_str!("propose.lua")),
        }
    }
}

fn millis(span: Span) -> u64 {
    span.nanos() / 1_000_000
}

/// Epoch, number and text of the last decision, documents by server.
type Read = (u64, u64, String, Vec<(String, Documents)>);

impl RedisStore {
    /// The store at a URL as in `redis://HOST:PORT/DB`; keys begin with `prefix`. Connects when first used.
    ///
    /// # Errors
    /// The URL is not one of a Redis; the text says what is wrong with it.
    pub fn new(url: &str, prefix: &str) -> Result<RedisStore, String> {
        let client = Client::open(url).map_err(|error| error.to_string())?;
        // Without user and password, for messages.
        let address = client.get_connection_info().addr().to_string();
        let (prefix, scripts) = (prefix.to_owned(), Scripts::new());
        Ok(RedisStore { client, address, prefix, scripts, connection: Mutex::new(None) })
    }

    fn away(&self, reason: impl ToString) -> StoreError {
        StoreError::Away { address: self.address.clone(), reason: reason.to_string() }
    }

    fn foreign(&self, reason: impl ToString) -> StoreError {
        StoreError::Foreign { address: self.address.clone(), reason: reason.to_string() }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, StoreError> {
        // Held while it connects: calls that come meanwhile share the attempt.
        let mut kept = self.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(TIME_LIMIT))
            .set_response_timeout(Some(TIME_LIMIT));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|error| self.away(error))?;
        *kept = Some(connection.clone());
        Ok(connection)
    }

    /// Runs a script. After a failure the next one gets a new connection.
    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        fill: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, StoreError> {
        let mut connection = self.connection().await?;
        let mut invocation = script.prepare_invoke();
        invocation.key(&self.prefix);
        fill(&mut invocation);
        let answer: Result<T, RedisError> = invocation.invoke_async(&mut connection).await;
        if answer.is_err() {
            // Also after an error of the script: which answers are still under way on the connection is not known.
            *self.connection.lock().await = None;
        }
        answer.map_err(|error| self.away(error))
    }

    fn snapshot(&self, (epoch, number, text, servers): Read) -> Result<Snapshot, StoreError> {
        let decision = match number {
            0 => None,
            number => {
                let proposal = serde_json::from_str(&text).map_err(|error| self.foreign(error))?;
                Some(Decision { number, proposal })
            }
        };
        Ok(Snapshot { epoch, servers: servers.into_iter().collect(), decision })
    }
}

#[tonic::async_trait]
impl Store for RedisStore {
    async fn report(&self, report: &Report) -> Result<Option<u64>, StoreError> {
        let fill = |script: &mut ScriptInvocation<'_>| {
            script
                .arg(&report.server)
                .arg(millis(SERVER_LIFETIME))
                .arg(millis(PAUSE))
                .arg(u8::from(report.complete));
            // Scripts of Redis count in doubles.
            script.arg(report.floor.min(MAX_NUMBER));
            for (name, text) in &report.changes {
                script.arg(name).arg(u8::from(text.is_some())).arg(text.as_deref().unwrap_or_default());
            }
        };
        self.run(&self.scripts.report, fill).await
    }

    async fn renew(&self, server: &str) -> Result<Renewal, StoreError> {
        let fill = |script: &mut ScriptInvocation<'_>| {
            script.arg(server).arg(millis(SERVER_LIFETIME)).arg(millis(PAUSE));
        };
        let (known, decision): (u8, u64) = self.run(&self.scripts.renew, fill).await?;
        Ok(Renewal { known: known == 1, decision })
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let read = self.run(&self.scripts.read, |_| ()).await?;
        self.snapshot(read)
    }

    async fn issue(&self, floor: u64) -> Result<(u64, Snapshot), StoreError> {
        let fill = |script: &mut ScriptInvocation<'_>| {
            script.arg(floor.min(MAX_NUMBER));
        };
        let (number, read): (u64, Read) = self.run(&self.scripts.issue, fill).await?;
        Ok((number, self.snapshot(read)?))
    }

    async fn share(&self, epoch: u64, maker: &str, tally: &Tally) -> Result<Option<Vec<Tally>>, StoreError> {
        let fill = |script: &mut ScriptInvocation<'_>| {
            script.arg(epoch).arg(maker).arg(encode_tally(tally));
        };
        let tallies: Option<Vec<Vec<u8>>> = self.run(&self.scripts.share, fill).await?;
        let Some(tallies) = tallies else { return Ok(None) };
        let decoded: Option<Vec<Tally>> = tallies.iter().map(|tally| decode_tally(tally)).collect();
        decoded.map(Some).ok_or_else(|| self.foreign("a tally that is none"))
    }

    async fn propose(&self, proposal: &Proposal) -> Result<Option<u64>, StoreError> {
        let text = serde_json::to_string(proposal).map_err(|error| self.foreign(error))?;
        let fill = |script: &mut ScriptInvocation<'_>| {
            script.arg(proposal.epoch).arg(proposal.finality.number()).arg(text);
        };
        self.run(&self.scripts.propose, fill).await
    }

    fn listen(&self) -> mpsc::Receiver<Notice> {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_NOTICES);
        let (client, channel) = (self.client.clone(), format!("{}news", self.prefix));
        tokio::spawn(async move {
            let mut pause = RETRY.0;
            while !sender.is_closed() {
                match tokio::time::timeout(TIME_LIMIT, subscribe(&client, &channel)).await {
                    Ok(Ok(news)) => {
                        pause = RETRY.0;
                        forward(news, &sender).await;
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "cannot listen to the store"),
                    Err(_) => tracing::debug!("cannot listen to the store: it does not answer"),
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY.1);
            }
        });
        receiver
    }
}

async fn subscribe(client: &Client, channel: &str) -> Result<redis::aio::PubSub, RedisError> {
    let mut news = client.get_async_pubsub().await?;
    news.subscribe(channel).await?;
    Ok(news)
}

/// Passes on what is published, until either side is gone.
async fn forward(news: redis::aio::PubSub, sender: &mpsc::Sender<Notice>) {
    // Only after the subscription: what changes once the listener has read the store is told.
    if sender.send(Notice::Connected).await.is_err() {
        return;
    }
    let mut messages = std::pin::pin!(news.into_on_message());
    loop {
        let message = tokio::select! {
            message = messages.next() => message,
            () = sender.closed() => None,
        };
        let Some(message) = message else { return };
        let notice =
            // Any other word has listeners look at the state, which does no harm.
            if message.get_payload_bytes() == b"decision" { Notice::Decision } else { Notice::State };
        // A listener that lags so far behind looks at the store anyway.
        let _ = sender.try_send(notice);
    }
}

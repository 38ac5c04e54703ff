//! The HTTP side: `/metrics`, `/healthz` and `/readyz`.

use super::{Metric, Sheet, process};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// Connections at once, or an eighth of the descriptors; for another one the oldest is closed, as Prometheus connects again.
const MAX_CONNECTIONS: usize = 64;
/// So long a connection may take to say what it wants,
const HEADER_LIMIT: Duration = Duration::from_secs(5);
/// and to live, whatever it does: clients connect again.
const CONNECTION_LIMIT: Duration = Duration::from_secs(120);
/// A request that comes sooner after a look gets what was seen then.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// A daemon that does not answer in time does not work.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Content type of `/metrics`: text of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What a look at a daemon shows.
#[derive(Debug, Default)]
pub struct Look {
    /// Values of the daemon's metrics.
    pub sheet: Sheet,
    /// Why it is not to be given work, though it lives.
    pub unready: Option<String>,
}

/// A look that is under way; `None` if the daemon does not answer.
pub type Looked = Pin<Box<dyn Future<Output = Option<Look>> + Send>>;

/// What was seen last.
#[derive(Clone)]
struct Seen {
    at: Instant,
    /// `None`: the daemon did not answer.
    text: Option<Bytes>,
    unready: Option<String>,
}

struct Watch<L> {
    metrics: &'static [&'static [Metric]],
    look: L,
    seen: Mutex<Option<Seen>>,
}

/// Serves those who watch a daemon, for as long as the process lives.
pub async fn serve(
    listener: TcpListener,
    metrics: &'static [&'static [Metric]],
    look: impl Fn() -> Looked + Send + Sync + 'static,
) {
    let watch = Arc::new(Watch { metrics, look, seen: Mutex::new(None) });
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let most = descriptors.map_or(MAX_CONNECTIONS, |most| (most / 8) as usize).clamp(2, MAX_CONNECTIONS);
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    let mut failed: u64 = 0;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                failed += 1;
                if failed.is_power_of_two() {
                    tracing::warn!(%error, failed, "cannot accept a connection for metrics");
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        while connections.len() >= most {
            // The oldest rather than the new one: connections that are held open must not lock a watcher out.
            connections.pop_front().into_iter().for_each(|oldest| oldest.abort());
        }
        let watch = Arc::clone(&watch);
        let connection = tokio::spawn(async move {
            let service = service_fn(move |request| {
                let watch = Arc::clone(&watch);
                // A client that breaks off does not end a look that others wait for.
                let answer = tokio::spawn(async move { watch.answer(&request).await });
                let failed = |_| plain(StatusCode::INTERNAL_SERVER_ERROR, "it could not be answered\n");
                async move { Ok::<_, Infallible>(answer.await.unwrap_or_else(failed)) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_LIMIT)
                .serve_connection(TokioIo::new(stream), service);
            // How the connection ended makes no difference: the client connects again.
            let _ = tokio::time::timeout(CONNECTION_LIMIT, connection).await;
        });
        connections.push_back(connection.abort_handle());
    }
}

impl<L: Fn() -> Looked + Send + Sync + 'static> Watch<L> {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
        }
        match request.uri().path() {
            "/metrics" => match self.seen().await.text {
                Some(text) => response(StatusCode::OK, OPEN_METRICS, text),
                None => plain(StatusCode::SERVICE_UNAVAILABLE, "it does not answer\n"),
            },
            "/healthz" => match self.seen().await.text {
                Some(_) => plain(StatusCode::OK, "it works\n"),
                None => plain(StatusCode::SERVICE_UNAVAILABLE, "it does not answer\n"),
            },
            "/readyz" => match self.seen().await {
                Seen { text: None, .. } => plain(StatusCode::SERVICE_UNAVAILABLE, "it does not answer\n"),
                Seen { unready: Some(why), .. } => {
                    response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, Bytes::from(format!("{why}\n")))
                }
                Seen { .. } => plain(StatusCode::OK, "it takes work\n"),
            },
            _ => plain(StatusCode::NOT_FOUND, "there are /metrics, /healthz and /readyz\n"),
        }
    }

    /// Looks, unless that was just done. Others wait for the look that is under way.
    async fn seen(&self) -> Seen {
        // Held during the look, so that requests that come meanwhile share it.
        let mut seen = self.seen.lock().await;
        if let Some(seen) = seen.as_ref().filter(|seen| seen.at.elapsed() < LOOK_INTERVAL) {
            return seen.clone();
        }
        let look = tokio::time::timeout(LOOK_LIMIT, (self.look)()).await.ok().flatten();
        let at = Instant::now();
        let now = match look {
            None => Seen { at, text: None, unready: None },
            Some(Look { mut sheet, unready }) => {
                process::fill(&mut sheet);
                Seen { at, text: sheet.text(self.metrics).ok().map(Bytes::from), unready }
            }
        };
        *seen = Some(now.clone());
        now
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, PLAIN, Bytes::from_static(text.as_bytes()))
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, kind);
    response
}

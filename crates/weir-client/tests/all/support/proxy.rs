//! A link that a test can cut: all connections to a relay pass it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

/// Most bytes that the proxy carries at once.
const CHUNK_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
struct Condition {
    up: bool,
    cuts: u64,
}

pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    condition: watch::Sender<Condition>,
}

impl Link {
    /// Leads to `target`, whoever listens there at the time.
    pub(crate) async fn to(target: SocketAddr) -> Link {
        Link::paced(target, f64::INFINITY).await
    }

    /// The same, at so many bytes per second: both ways and all connections together.
    pub(crate) async fn paced(target: SocketAddr, bytes_per_sec: f64) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (condition, seen) = watch::channel(Condition { up: true, cuts: 0 });
        let pace = Arc::new(Pace { bytes_per_sec, free_at: Mutex::new(Instant::now()) });
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (mut seen, pace) = (seen.clone(), pace.clone());
                let began = *seen.borrow();
                if began.up {
                    tokio::spawn(async move {
                        tokio::select! {
                            _ = carry(near, target, &pace) => {}
                            _ = seen.wait_for(|now| now.cuts != began.cuts) => {}
                        }
                    });
                }
            }
        });
        Link { address, condition }
    }

    /// Ends all connections; new ones can be made.
    pub(crate) fn cut(&self) {
        self.condition.send_modify(|condition| condition.cuts += 1);
    }

    /// Ends all connections, and new ones as soon as they are made, until it is mended.
    pub(crate) fn take_down(&self) {
        self.condition.send_modify(|condition| condition.up = false);
        self.cut();
    }

    pub(crate) fn mend(&self) {
        self.condition.send_modify(|condition| condition.up = true);
    }
}

/// How fast a link is.
struct Pace {
    bytes_per_sec: f64,
    /// When all bytes so far are through.
    free_at: Mutex<Instant>,
}

impl Pace {
    async fn pass(&self, bytes: usize) {
        let through = {
            let mut free_at = self.free_at.lock().unwrap();
            let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_sec);
            *free_at = Instant::now().max(*free_at) + takes;
            *free_at
        };
        tokio::time::sleep_until(through).await;
    }
}

async fn carry(mut near: TcpStream, target: SocketAddr, pace: &Pace) -> io::Result<()> {
    let mut far = TcpStream::connect(target).await?;
    let ((from_near, to_near), (from_far, to_far)) = (near.split(), far.split());
    tokio::try_join!(forward(from_near, to_far, pace), forward(from_far, to_near, pace)).map(drop)
}

/// One direction, to its end.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    pace: &Pace,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match from.read(&mut chunk).await? {
            0 => return to.shutdown().await,
            bytes => {
                pace.pass(bytes).await;
                to.write_all(&chunk[..bytes]).await?;
            }
        }
    }
}

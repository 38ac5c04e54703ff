//! Blocks that change, holders that fall silent: a reader against holders played by hand.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_client::{Client, ClientConfig, GetError, GetOptions};
use weir_proto::data::{ACK, FRAME_BYTES, FrameHeader, Identity, Request, Response, Status};

const FRAME: usize = FRAME_BYTES as usize;
const LIMIT: Duration = Duration::from_secs(30);

/// A block of three frames; those of another `version` differ from the frame of that number on.
fn bytes(version: usize) -> Vec<u8> {
    (0..3 * FRAME).map(|at| (at % 251) as u8 ^ u8::from(at / FRAME >= version)).collect()
}

/// A holder of a block: bytes, identity, how many bytes of its answers it sends before it hangs up or falls silent.
struct Holder {
    block: Vec<u8>,
    identity: Identity,
    sends: usize,
    stays: bool,
}

impl Holder {
    fn of(block: Vec<u8>, identity: u8) -> Holder {
        Holder { block, identity: Identity::drawn([identity; 16]), sends: usize::MAX, stays: false }
    }

    /// Serves until the test ends; returns its address.
    async fn serve(self) -> SocketAddr {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            // Who falls silent answers nobody else either.
            while let Ok((mut stream, _)) = listener.accept().await {
                let over = self.answer(&mut stream).await;
                if self.stays && over {
                    kept.push(stream);
                    std::future::pending::<()>().await;
                }
                if over && self.sends != usize::MAX {
                    return;
                }
            }
        });
        address
    }

    /// True once it sent all it is to send.
    async fn answer(&self, stream: &mut TcpStream) -> bool {
        loop {
            let mut input = Vec::new();
            let request = loop {
                if stream.read_buf(&mut input).await.unwrap_or(0) == 0 {
                    return false;
                }
                if let Some((request, _)) = Request::decode(&input).unwrap() {
                    break request;
                }
            };
            if request.identity.is_known() && request.identity != self.identity {
                let refusal = Response::refusal(Status::OtherBytes);
                stream.write_all(&refusal.encode()).await.unwrap();
                continue;
            }
            let size = self.block.len() as u64;
            let accepted = Response { status: Status::Accepted, size, identity: self.identity };
            let mut answer = accepted.encode().to_vec();
            for frame in self.block[request.offset as usize..].chunks(FRAME) {
                let header =
                    FrameHeader { length: frame.len() as u32, checksum: weir_proto::data::checksum(frame) };
                answer.extend_from_slice(&header.encode());
                answer.extend_from_slice(frame);
            }
            let sent = answer.len().min(self.sends);
            let _ = stream.write_all(&answer[..sent]).await;
            if sent == answer.len() {
                assert_eq!(stream.read_u8().await.unwrap_or(ACK), ACK);
            }
            return true;
        }
    }
}

fn client() -> Client {
    Client::new(ClientConfig { coordinator: None, agent: None, host: 0 })
}

fn options(holders: Vec<SocketAddr>) -> GetOptions {
    GetOptions { time_limit: LIMIT, holders, ..GetOptions::default() }
}

/// Reads piece by piece: what was handed out, and how it ended.
async fn read(options: GetOptions) -> (Vec<u8>, Result<(), GetError>) {
    let client = client();
    let mut reader = client.get(1, "block", options);
    let mut got = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(part)) => got.extend_from_slice(part),
            Ok(None) => return (got, Ok(())),
            Err(error) => return (got, Err(error)),
        }
    }
}

/// One frame and a half of the first version come from a holder that dies then.
fn dying() -> Holder {
    Holder { sends: 32 + 8 + FRAME + 8 + FRAME / 2, ..Holder::of(bytes(3), 1) }
}

#[tokio::test]
async fn a_get_never_continues_one_block_with_another() {
    // The other holder's block differs in the frame that was handed out already.
    let holders = vec![dying().serve().await, Holder::of(bytes(0), 2).serve().await];
    let (got, end) = read(options(holders)).await;
    assert!(got == bytes(3)[..FRAME]);
    assert!(matches!(end, Err(GetError::Changed { read, .. }) if read == FRAME_BYTES), "{end:?}");
}

#[tokio::test]
async fn a_get_into_memory_begins_anew_when_the_block_changed() {
    let holders = vec![dying().serve().await, Holder::of(bytes(0), 2).serve().await];
    assert!(client().get_bytes(1, "block", options(holders)).await.unwrap() == bytes(0));
}

#[tokio::test]
async fn the_same_bytes_under_another_identity_go_on_without_a_gap() {
    let holders = vec![dying().serve().await, Holder::of(bytes(3), 2).serve().await];
    let (got, end) = read(options(holders)).await;
    assert!(end.is_ok() && got == bytes(3), "{end:?}");
    // What differs only after the part that was handed out is the whole other block.
    let holders = vec![dying().serve().await, Holder::of(bytes(1), 2).serve().await];
    let (got, end) = read(options(holders)).await;
    assert!(end.is_ok() && got == bytes(1), "{end:?}");
}

#[tokio::test]
async fn a_block_of_another_size_is_another_block() {
    let holders = vec![dying().serve().await, Holder::of(bytes(3)[..2 * FRAME].to_vec(), 2).serve().await];
    let (_, end) = read(options(holders)).await;
    assert!(matches!(end, Err(GetError::Changed { .. })), "{end:?}");
}

#[tokio::test]
async fn a_wrong_hash_over_the_whole_block_is_noticed_before_its_last_frame_is_handed_out() {
    let lying = Holder { identity: Identity::of_content(7), ..Holder::of(bytes(3), 1) };
    let verify = GetOptions { verify_whole: true, ..options(vec![lying.serve().await]) };
    let (got, end) = read(verify).await;
    assert!(matches!(end, Err(GetError::WrongHash { .. })) && got.len() == 2 * FRAME, "{end:?}");
}

#[tokio::test]
async fn a_holder_that_falls_silent_is_left_for_another_one() {
    // As a process that was stopped: its connections stay, and new ones are accepted by the kernel alone.
    let silent = Holder { stays: true, ..dying() };
    let holders = vec![silent.serve().await, Holder::of(bytes(3), 1).serve().await];
    let (got, end) = tokio::time::timeout(Duration::from_secs(20), read(options(holders))).await.unwrap();
    assert!(end.is_ok() && got == bytes(3), "{end:?}");
}

#[tokio::test]
async fn an_error_names_every_holder_that_was_tried_and_how_far_it_came() {
    let silent = Holder { stays: true, ..dying() }.serve().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let options = GetOptions { time_limit: Duration::from_secs(3), ..options(vec![closed, silent]) };
    let (_, end) = read(options).await;
    let said = end.unwrap_err().to_string();
    assert!(said.contains(&format!("{closed}: ")), "{said}");
    assert!(
        said.contains(&format!("{silent} accepted the request and sent 262144 of 786432 bytes")),
        "{said}"
    );
}

#[tokio::test]
async fn the_longest_time_limit_is_a_long_one() {
    let holder = Holder::of(bytes(3), 1).serve().await;
    let options = GetOptions { time_limit: Duration::MAX, ..options(vec![holder]) };
    assert!(client().get_bytes(1, "block", options).await.unwrap() == bytes(3));
    let nobody = Client::new(ClientConfig {
        coordinator: Some(SocketAddr::from(([127, 0, 0, 1], 1)).into()),
        agent: None,
        host: 0,
    });
    let waited = tokio::time::timeout(Duration::from_millis(300), nobody.admission(1, Duration::MAX)).await;
    assert!(waited.is_err(), "it waits, and panics not");
}

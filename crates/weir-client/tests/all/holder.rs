//! A reader against a holder played by hand: what may happen to bytes on their way.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use weir_client::{Client, ClientConfig, GetError, GetOptions};
use weir_proto::data::{ACK, FRAME_BYTES, FrameHeader, Identity, Request, Response, Status};

const SIZE: usize = 2 * FRAME_BYTES as usize;
const LIMIT: Duration = Duration::from_secs(5);

fn block() -> Vec<u8> {
    (0..SIZE).map(|index| (index % 251) as u8).collect()
}

/// What a holder sends for the block from `offset` on.
fn frames(offset: usize) -> Vec<u8> {
    let mut bytes = Response { status: Status::Accepted, size: SIZE as u64, identity: Identity([5; 16]) }
        .encode()
        .to_vec();
    for frame in block()[offset..].chunks(FRAME_BYTES as usize) {
        let header = FrameHeader { length: frame.len() as u32, checksum: weir_proto::data::checksum(frame) };
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(frame);
    }
    bytes
}

async fn request(stream: &mut TcpStream) -> Request {
    let mut bytes = Vec::new();
    loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Some((request, _)) = Request::decode(&bytes).unwrap() {
            return request;
        }
    }
}

async fn listen() -> (TcpListener, GetOptions) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let holders = vec![listener.local_addr().unwrap()];
    (listener, GetOptions { time_limit: LIMIT, holders, ..GetOptions::default() })
}

fn client() -> Client {
    Client::new(ClientConfig { coordinator: None, agent: None, host: 0 })
}

/// Every byte is a place where the network may pause: within the answer, a header, a frame, or between two.
#[tokio::test]
async fn bytes_may_pause_anywhere() {
    let sent = frames(0);
    let second_header = sent.len() - SIZE / 2 - 8;
    let ends = [1, 32, 33, 39, 40, 41, 1000, second_header - 1, second_header, second_header + 4];
    let more = [second_header + 8, second_header + 9, sent.len() - 1];
    for pause in ends.into_iter().chain(more) {
        let (listener, options) = listen().await;
        let (first, rest) = sent.split_at(pause);
        let hold = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_eq!(request(&mut stream).await.offset, 0);
            stream.write_all(first).await.unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
            stream.write_all(rest).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), ACK);
        };
        let client = client();
        let (got, ()) = tokio::join!(client.get_bytes(1, "block", options), hold);
        assert!(got.unwrap() == block(), "paused after {pause} bytes");
    }
}

/// A caller may give up waiting for the next bytes, and later wait again.
#[tokio::test]
async fn a_cancelled_wait_loses_no_bytes() {
    let (listener, options) = listen().await;
    let sent = frames(0);
    let hold = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        for part in sent.chunks(50_000) {
            stream.write_all(part).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(stream.read_u8().await.unwrap(), ACK);
    };
    let receive = async {
        let mut reader = client().get(1, "block", options);
        let mut got = Vec::new();
        loop {
            match tokio::time::timeout(Duration::from_millis(7), reader.next()).await {
                Ok(Ok(Some(bytes))) => got.extend_from_slice(bytes),
                Ok(end) => {
                    assert!(end.unwrap().is_none());
                    return got;
                }
                Err(_) => {}
            }
        }
    };
    let (got, ()) = tokio::join!(receive, hold);
    assert!(got == block());
}

/// Damaged bytes are never handed out: the reader asks anew for what it has not verified.
#[tokio::test]
async fn a_damaged_frame_is_asked_for_again() {
    let (listener, options) = listen().await;
    let hold = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let mut damaged = frames(0);
        *damaged.last_mut().unwrap() ^= 1;
        stream.write_all(&damaged).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        let offset = request(&mut stream).await.offset;
        assert_eq!(offset, FRAME_BYTES);
        stream.write_all(&frames(offset as usize)).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), ACK);
    };
    let client = client();
    let (got, ()) = tokio::join!(client.get_bytes(1, "block", options), hold);
    assert!(got.unwrap() == block());
}

/// A stream over a connection that breaks in the middle of a frame: the bytes go on as if nothing had happened,
/// and what was verified is not asked for again.
#[tokio::test]
async fn a_stream_goes_on_after_a_broken_connection() {
    let (listener, options) = listen().await;
    let hold = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        let sent = frames(0);
        stream.write_all(&sent[..sent.len() - 1000]).await.unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().await.unwrap();
        let offset = request(&mut stream).await.offset;
        assert_eq!(offset, FRAME_BYTES);
        stream.write_all(&frames(offset as usize)).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), ACK);
    };
    let receive = async {
        let mut stream = client().get_stream(1, "block", options);
        let mut got = Vec::new();
        // Pieces that fit no frame.
        let mut piece = [0; 10_007];
        loop {
            match stream.read(&mut piece).await.unwrap() {
                0 => return got,
                count => got.extend_from_slice(&piece[..count]),
            }
        }
    };
    let (got, ()) = tokio::join!(receive, hold);
    assert!(got == block());
}

/// What went wrong is not lost on its way through an error of input and output.
#[tokio::test]
async fn a_stream_ends_in_an_error_that_tells_the_reason() {
    let (listener, options) = listen().await;
    let hold = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(&Response::refusal(Status::CoflowEnded).encode()).await.unwrap();
    };
    let receive = async {
        let mut got = Vec::new();
        let error = client().get_stream(1, "block", options).read_to_end(&mut got).await.unwrap_err();
        (got, error)
    };
    let ((got, error), ()) = tokio::join!(receive, hold);
    assert!(got.is_empty());
    let reason = error.get_ref().and_then(|error| error.downcast_ref::<GetError>());
    assert!(matches!(reason, Some(GetError::CoflowEnded(1))), "{error:?}");
}

/// A holder that refuses for good is believed at once: its receiver does not wait for the end of its limit.
#[tokio::test]
async fn a_rejected_receiver_is_answered() {
    let (listener, options) = listen().await;
    let options = GetOptions { time_limit: Duration::from_secs(1 << 30), ..options };
    let hold = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(&Response::refusal(Status::BadRequest).encode()).await.unwrap();
    };
    let client = client();
    let (got, ()) = tokio::join!(client.get_bytes(1, "block", options), hold);
    assert!(matches!(got, Err(GetError::Refused(_))), "{got:?}");
}

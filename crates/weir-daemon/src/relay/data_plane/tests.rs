//! The thread turn by turn, with a host and a neighbour that the test plays on real sockets.

use super::*;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};
use weir_core::relay::WINDOW_BYTES;
use weir_proto::relay::{HEADER_BYTES, MAX_DATA_BYTES, OPEN_BYTES, Open};

const KEY: FlowKey = FlowKey { coflow: 1, reducer: 2, mapper: 3 };
const MESSAGES: u64 = 6;
const FLOW_BYTES: u64 = MESSAGES * MAX_DATA_BYTES as u64;
/// What the neighbour takes in every turn, of a millisecond: so little that one message is more than may be under way.
const SIP_BYTES: usize = 4 << 10;
/// What it takes before the turn that has the relay see that: so much that the socket takes more of the message again.
const GULP_BYTES: usize = 112 << 10;
/// Without a byte for so long the flow hangs.
const PATIENCE: Duration = Duration::from_secs(3);

fn running() -> (Running, mpsc::Sender<Command>, SocketAddr) {
    let listener = weir_net::data_listener((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let config =
        RelayConfig { name: "r".to_owned(), site: 0, address, started_ms: 1, window_bytes: WINDOW_BYTES };
    let (clock, poller, connection_rates) =
        (Clock::start(), Poller::new().unwrap(), ConnectionRates::default());
    let edge = Edge { clock, listener, poller, connections: 1, connection_rates };
    let (commands, inbox) = mpsc::channel(1);
    (Running::new(DataPlane::start(config, edge, inbox).unwrap()), commands, address)
}

/// A host that sends one flow through the relay and keeps its connection until the test ends.
fn host(relay: SocketAddr, destination: SocketAddr) -> thread::JoinHandle<TcpStream> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(relay).unwrap();
        let mut say = |header: Header, body: &[u8]| {
            stream.write_all(&header.encode()).unwrap();
            stream.write_all(body).unwrap();
        };
        let hello = Hello { role: Says::Host, connections: 1, session: 9 }.encode();
        let nothing = FlowKey { coflow: 0, reducer: 0, mapper: 0 };
        say(Header { length: HELLO_BYTES as u32, ..Header::about(nothing, Kind::Hello, 0) }, &hello);
        let open = Open { source_site: 0, destination_site: 1, destination }.encode();
        say(Header { length: OPEN_BYTES as u32, ..Header::about(KEY, Kind::Open, FLOW_BYTES) }, &open);
        for number in 0..MESSAGES {
            let at = number * MAX_DATA_BYTES as u64;
            let header = Header::about(KEY, Kind::Data, at);
            say(Header { length: MAX_DATA_BYTES as u32, ..header }, &vec![number as u8; MAX_DATA_BYTES]);
        }
        stream
    })
}

/// A turn, a millisecond after the one before.
fn turn(running: &mut Running) {
    thread::sleep(Duration::from_millis(1));
    let mut events = Vec::new();
    running.edge.poller.wait(Some(Span::ZERO), &mut events).unwrap();
    assert!(running.turn(events.drain(..)).is_some());
    for (token, peer) in &running.peers {
        let waits = peer.blocked || peer.link.unwritten() == 0 || running.writable.contains(token);
        assert!(waits, "{} bytes are left that nothing will send", peer.link.unwritten());
    }
}

/// A message has begun to go, its socket takes no more, and that too much is under way has yet to be seen. What of the message
/// is left goes once the socket takes it: nothing would wake the relay for it later.
#[test]
fn what_a_connection_has_begun_to_send_goes_on_though_its_neighbour_is_held() {
    let far = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket2::SockRef::from(&far).set_recv_buffer_size(32 << 10).unwrap();
    far.set_nonblocking(true).unwrap();
    let (mut running, _commands, address) = running();
    let host = host(address, far.local_addr().unwrap());

    let began = Instant::now();
    let mut near = loop {
        turn(&mut running);
        match far.accept() {
            Ok((stream, _)) => break stream,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        assert!(began.elapsed() < PATIENCE, "nobody connects");
    };
    near.write_all(&Header::about(KEY, Kind::Credit, FLOW_BYTES).encode()).unwrap();
    near.set_nonblocking(true).unwrap();

    let words = (HEADER_BYTES + HELLO_BYTES + HEADER_BYTES + OPEN_BYTES) as u64;
    let expected = words + MESSAGES * (HEADER_BYTES + MAX_DATA_BYTES) as u64;
    let (mut came, mut last, mut holds, mut gulps) = (0, Instant::now(), 0, 0);
    let mut bytes = vec![0; GULP_BYTES];
    while came < expected {
        turn(&mut running);
        let blocked = running.peers.values().any(|peer| peer.blocked);
        let ready = running.neighbours.hops().any(|hop| running.relay.is_ready(hop));
        // Only from the first hold on: it says that the relay knows how slow this is.
        holds += u64::from(blocked && !ready);
        let gulp = blocked && ready && holds > 0;
        gulps += u64::from(gulp);
        let mut left = if gulp { GULP_BYTES } else { SIP_BYTES };
        while left > 0 {
            match near.read(&mut bytes[..left]) {
                Ok(0) => panic!("the relay hung up after {came} of {expected} bytes"),
                Ok(read) => (came, left, last) = (came + read as u64, left - read, Instant::now()),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!(last.elapsed() < PATIENCE, "{came} of {expected} bytes came, and no more");
    }
    assert!(gulps > 0, "no socket was full before its neighbour was held");
    drop(host.join().unwrap());
}

use super::*;
use crate::agent::{BlockEntry, OpenedFlow};
use crate::ids::FlowNumber;
use proptest::prelude::*;
use weir_model::{CoflowId, Span, Time};
use weir_proto::data::{
    ACK, FRAME_BYTES, FRAME_HEADER_BYTES, FrameHeader, Identity, Request, Response, Status, checksum,
    encode_nak, frame_length,
};
use weir_proto::gather::{GatherRange, GatherRequest};
use weir_proto::limits::MAX_GATHERED_RANGES;
use weir_proto::relay::{self, FlowKey, HEADER_BYTES, HELLO_BYTES, Header, Kind, OPEN_BYTES, RelayPath};

const IDENTITY: Identity = Identity([7; 16]);

fn request(offset: u64) -> Request {
    Request {
        coflow: 1,
        offset,
        destination: 4,
        group: 0,
        identity: Identity::UNKNOWN,
        block: "b".to_owned(),
    }
}

fn path() -> RelayPath {
    RelayPath { site: 2, mapper: 5, relay: "10.0.0.9:7072".parse().unwrap() }
}

fn opening(request: Request, path: Option<RelayPath>, size: u64) -> Opening {
    let block = BlockEntry::of_file(CoflowId(1), "b".to_owned(), "/b".to_owned(), size, IDENTITY);
    Opening { opened: OpenedFlow { flow: FlowNumber(9), block, offset: request.offset }, request, path }
}

/// A byte of a block, told from those of other ranges and places.
fn byte(range: usize, at: u64) -> u8 {
    (at / 1_000 + at + 31 * range as u64) as u8
}

fn bytes(range: usize, from: u64, count: u64) -> Vec<u8> {
    (from..from + count).map(|at| byte(range, at)).collect()
}

/// What a receiver should get of ranges: the obvious way.
fn expected(ranges: &[Range]) -> Vec<u8> {
    let mut all = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        let mut at = range.offset;
        while at < range.size {
            let length = frame_length(range.size, at);
            let payload = bytes(number, at, length);
            let header = FrameHeader { length: length as u32, checksum: checksum(&payload) };
            all.extend(header.encode());
            all.extend(payload);
            at += length;
        }
    }
    all
}

/// A driver without sockets: what went out on each connection.
#[derive(Default)]
struct Sockets {
    receiver: Vec<u8>,
    relay: Vec<u8>,
    /// Whether payload goes in one write with what leads it.
    gathers: bool,
}

impl Sockets {
    /// Writes with this permission. Of each write the socket takes as much as `takes` says next, and at a 0 it is full.
    fn write(
        &mut self,
        talk: &mut Conversation,
        ranges: &[Range],
        budget: u64,
        takes: &mut impl Iterator<Item = usize>,
    ) -> u64 {
        let mut sent = 0;
        loop {
            match talk.poll_write(budget - sent) {
                Write::Nothing | Write::Waits => return sent,
                Write::Bytes { to, bytes: lead, then } => {
                    let payload = then.filter(|_| self.gathers).map(|Payload { range, offset, count }| {
                        assert!(count <= budget - sent, "more than is allowed");
                        bytes(range, offset, count)
                    });
                    let all = [lead, payload.as_deref().unwrap_or_default()].concat();
                    let count = all.len().min(takes.next().unwrap_or(usize::MAX));
                    if count == 0 {
                        return sent;
                    }
                    self.of(to).extend_from_slice(&all[..count]);
                    let of_payload = count.saturating_sub(lead.len()) as u64;
                    talk.handle_written(to, count - of_payload as usize);
                    if of_payload > 0 {
                        talk.handle_sent(Time::ZERO, of_payload);
                        sent += of_payload;
                    }
                }
                Write::Frame { range, offset } => {
                    let length = frame_length(ranges[range].size, offset);
                    talk.handle_frame(checksum(&bytes(range, offset, length)));
                }
                Write::Payload { to, range, offset, count } => {
                    assert!(count <= budget - sent, "more than is allowed");
                    let count = count.min(takes.next().map_or(u64::MAX, |count| count as u64));
                    if count == 0 {
                        return sent;
                    }
                    self.of(to).extend(bytes(range, offset, count));
                    talk.handle_sent(Time::ZERO, count);
                    sent += count;
                }
            }
        }
    }

    fn of(&mut self, to: Outlet) -> &mut Vec<u8> {
        if to == Outlet::Relay { &mut self.relay } else { &mut self.receiver }
    }
}

/// Says these bytes in parts. All inputs but the last `Nothing`.
fn say(talk: &mut Conversation, said: &[u8], parts: &mut impl Iterator<Item = usize>) -> Vec<Input> {
    let (mut left, mut inputs) = (said, Vec::new());
    while !left.is_empty() {
        let count = parts.next().unwrap_or(usize::MAX).clamp(1, left.len());
        talk.handle_input(&left[..count]);
        left = &left[count..];
        loop {
            match talk.poll_input(Time::ZERO) {
                Input::Nothing => break,
                Input::Ended => {
                    inputs.push(Input::Ended);
                    return inputs;
                }
                input => {
                    if let Input::Request(request, path) = &input {
                        talk.open(opening(request.clone(), *path, 0));
                    }
                    inputs.push(input);
                }
            }
        }
    }
    inputs
}

/// Serves the request that is being opened.
fn serve(talk: &mut Conversation, ranges: &[Range]) {
    let opening = talk.take_opening(FlowNumber(9)).unwrap();
    let open = relay::Open { source_site: 1, destination_site: 2, destination: path().relay };
    let relay = opening.path.map(|path| (FlowKey::of(&opening.request, &path), open));
    talk.serve(Time::ZERO, FlowNumber(9), ranges.to_vec(), (ranges[0].size, IDENTITY), relay);
}

fn ranges() -> impl Strategy<Value = Vec<Range>> {
    let range = (0..3 * FRAME_BYTES, 0..4_u64).prop_map(|(size, frames)| Range {
        offset: (frames * FRAME_BYTES).min(size / FRAME_BYTES * FRAME_BYTES),
        size,
    });
    prop::collection::vec(range, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn how_reads_and_writes_are_cut_changes_nothing(
        ranges in ranges(),
        by_relay: bool,
        gathers: bool,
        parts in prop::collection::vec(1_usize..60, 0..40),
        budgets in prop::collection::vec(0..2 * FRAME_BYTES, 1..20),
        takes in prop::collection::vec(0..100_000_usize, 0..60),
    ) {
        let mut talk = Conversation::new(Time::ZERO);
        let mut sockets = Sockets { gathers, ..Sockets::default() };
        let (mut parts, mut takes) = (parts.into_iter(), takes.into_iter());
        let mut said = if by_relay { path().encode().to_vec() } else { Vec::new() };
        said.extend(request(0).encode());
        let inputs = say(&mut talk, &said, &mut parts);
        prop_assert_eq!(inputs, [Input::Request(request(0), by_relay.then(path))]);
        serve(&mut talk, &ranges);
        talk.handle_connected();
        for budget in budgets {
            sockets.write(&mut talk, &ranges, budget, &mut takes);
        }
        sockets.write(&mut talk, &ranges, u64::MAX, &mut std::iter::empty());
        let status = if by_relay { Status::Relayed } else { Status::Accepted };
        let answer = Response { status, size: ranges[0].size, identity: IDENTITY }.encode();
        let frames = expected(&ranges);
        prop_assert_eq!(&sockets.receiver[..answer.len()], &answer[..]);
        if by_relay {
            prop_assert_eq!(sockets.receiver.len(), answer.len());
            prop_assert!(carried(&sockets.relay) == frames);
        } else {
            prop_assert!(sockets.receiver[answer.len()..] == frames[..]);
        }
        // One acknowledgement, and the next request.
        let mut said = vec![ACK];
        said.extend(request(FRAME_BYTES).encode());
        let inputs = say(&mut talk, &said, &mut parts);
        prop_assert_eq!(inputs, [Input::Acknowledged, Input::Request(request(FRAME_BYTES), None)]);
    }

    #[test]
    fn whatever_a_peer_says_nothing_is_served_that_was_not_asked_for(
        said in prop::collection::vec(any::<u8>(), 0..2_000),
        head in 0..60_usize,
        parts in prop::collection::vec(1_usize..400, 0..40),
    ) {
        // Noise, and noise that begins like a request.
        let begun = [&request(0).encode()[..head.min(51)], &said].concat();
        for said in [said, begun] {
            let mut talk = Conversation::new(Time::ZERO);
            let once = say(&mut talk, &said, &mut parts.clone().into_iter());
            let mut sockets = Sockets::default();
            sockets.write(&mut talk, &[], u64::MAX, &mut std::iter::empty());
            prop_assert!(sockets.receiver.len() <= 32 && sockets.relay.is_empty());
            let mut whole = Conversation::new(Time::ZERO);
            prop_assert_eq!(once, say(&mut whole, &said, &mut std::iter::empty()));
        }
    }
}

/// The bytes of a flow that a relay was given; checks what leads them.
fn carried(mut said: &[u8]) -> Vec<u8> {
    let mut take = |count: usize| {
        let (taken, left) = said.split_at(count);
        said = left;
        (taken.to_vec(), said.is_empty())
    };
    let header = |bytes: Vec<u8>| Header::decode(bytes.as_slice().try_into().unwrap()).unwrap();
    assert_eq!(header(take(HEADER_BYTES).0).kind, Kind::Hello);
    take(HELLO_BYTES);
    let open = header(take(HEADER_BYTES).0);
    assert_eq!((open.kind, open.key), (Kind::Open, FlowKey::of(&request(0), &path())));
    let (_, mut is_over) = take(OPEN_BYTES);
    let mut all = Vec::new();
    while !is_over {
        let data = header(take(HEADER_BYTES).0);
        assert_eq!((data.kind, data.number), (Kind::Data, all.len() as u64));
        let (bytes, none_left) = take(data.length as usize);
        all.extend(bytes);
        is_over = none_left;
    }
    assert_eq!(open.number, all.len() as u64, "the flow has as many bytes as it was said to have");
    all
}

/// A conversation that serves one block of this size, with its answer written.
fn serving(size: u64) -> (Conversation, Sockets) {
    let (mut talk, mut sockets) = (Conversation::new(Time::ZERO), Sockets::default());
    say(&mut talk, &request(0).encode(), &mut std::iter::empty());
    serve(&mut talk, &[Range { offset: 0, size }]);
    sockets.write(&mut talk, &[Range { offset: 0, size }], 0, &mut std::iter::empty());
    (talk, sockets)
}

#[test]
fn the_answer_goes_out_before_anything_may_be_sent_and_a_header_with_the_first_byte() {
    let (mut talk, mut sockets) = serving(10);
    assert_eq!(
        sockets.receiver,
        Response { status: Status::Accepted, size: 10, identity: IDENTITY }.encode()
    );
    assert_eq!(talk.poll_write(0), Write::Nothing, "without permission no header either");
    assert_eq!(talk.poll_write(1), Write::Frame { range: 0, offset: 0 });
    talk.handle_frame(5);
    let header = FrameHeader { length: 10, checksum: 5 }.encode();
    let then = Some(Payload { range: 0, offset: 0, count: 1 });
    assert_eq!(talk.poll_write(1), Write::Bytes { to: Outlet::Receiver, bytes: &header, then });
    talk.handle_written(Outlet::Receiver, FRAME_HEADER_BYTES);
    assert_eq!(talk.poll_write(1), Write::Payload { to: Outlet::Receiver, range: 0, offset: 0, count: 1 });
    talk.handle_sent(Time::ZERO, 1);
    sockets.write(&mut talk, &[Range { offset: 0, size: 10 }], 9, &mut std::iter::empty());
    assert_eq!(talk.poll_write(u64::MAX), Write::Nothing);
}

#[test]
fn an_answer_that_waits_goes_in_one_write_with_the_first_frame_and_only_where_one_follows() {
    let (mut talk, ranges) = (Conversation::new(Time::ZERO), [Range { offset: 0, size: 10 }]);
    say(&mut talk, &request(0).encode(), &mut std::iter::empty());
    assert!(!talk.owes_answer());
    serve(&mut talk, &ranges);
    assert!(talk.owes_answer());
    assert_eq!(talk.poll_write(10), Write::Frame { range: 0, offset: 0 });
    talk.handle_frame(5);
    let answer = Response { status: Status::Accepted, size: 10, identity: IDENTITY }.encode();
    let lead = [&answer[..], &FrameHeader { length: 10, checksum: 5 }.encode()].concat();
    let then = Some(Payload { range: 0, offset: 0, count: 10 });
    assert_eq!(talk.poll_write(10), Write::Bytes { to: Outlet::Receiver, bytes: &lead, then });
    talk.handle_written(Outlet::Receiver, lead.len());
    talk.handle_sent(Time::ZERO, 10);
    assert!(talk.is_all_written() && !talk.owes_answer());
    // A block without bytes has no frame to wait for, and frames that a relay carries do not come this way.
    for (path, size) in [(None, 0), (Some(path()), 10)] {
        let mut talk = Conversation::new(Time::ZERO);
        let before = path.map(|path| path.encode().to_vec()).unwrap_or_default();
        say(&mut talk, &[&before[..], &request(0).encode()].concat(), &mut std::iter::empty());
        serve(&mut talk, &[Range { offset: 0, size }]);
        assert!(!talk.owes_answer());
    }
}

#[test]
fn a_rest_without_bytes_goes_by_no_relay() {
    let way = |offset, size| opening(request(offset), Some(path()), size).way();
    assert_eq!(way(0, 1), Some(path()));
    assert_eq!((way(0, 0), way(FRAME_BYTES, FRAME_BYTES)), (None, None));
}

#[test]
fn an_acknowledgement_before_all_was_written_ends_the_connection() {
    let (mut talk, mut sockets) = serving(10);
    sockets.write(&mut talk, &[Range { offset: 0, size: 10 }], 9, &mut std::iter::empty());
    assert_eq!(say(&mut talk, &[ACK], &mut std::iter::empty()), [Input::Ended]);
    // An empty block is all written with its answer.
    let (mut talk, _) = serving(0);
    assert_eq!(say(&mut talk, &[ACK], &mut std::iter::empty()), [Input::Acknowledged]);
    let ack_of_nothing = say(&mut talk, &[ACK], &mut std::iter::empty());
    assert_eq!(ack_of_nothing, [Input::Ended], "nothing was asked for");
}

#[test]
fn what_a_receiver_said_last_counts_though_it_left() {
    let (mut talk, mut sockets) = serving(10);
    sockets.write(&mut talk, &[Range { offset: 0, size: 10 }], 10, &mut std::iter::empty());
    talk.handle_input(&[ACK]);
    talk.handle_end();
    assert_eq!(talk.poll_input(Time::ZERO), Input::Acknowledged);
    assert_eq!(talk.poll_input(Time::ZERO), Input::Ended);
    let (mut talk, _) = serving(10);
    talk.handle_input(&encode_nak(0)[..8]);
    assert_eq!(talk.poll_input(Time::ZERO), Input::Nothing);
    talk.handle_input(&encode_nak(0)[8..]);
    talk.handle_end();
    assert_eq!(talk.poll_input(Time::ZERO), Input::Doubted(0));
}

#[test]
fn nothing_may_be_said_between_a_request_and_its_answer() {
    let mut talk = Conversation::new(Time::ZERO);
    let twice = request(0).encode().repeat(2);
    let inputs = say(&mut talk, &twice, &mut std::iter::empty());
    assert_eq!(inputs, [Input::Request(request(0), None), Input::Ended]);
    assert_eq!(talk.poll_write(u64::MAX), Write::Nothing);
}

/// Answers would pile up for one that asks on and on for what is not there, and reads none.
#[test]
fn a_receiver_that_asks_on_and_reads_no_answer_is_let_go() {
    let mut talk = Conversation::new(Time::ZERO);
    let asks = |talk: &mut Conversation| {
        talk.handle_input(&request(0).encode());
        talk.poll_input(Time::ZERO)
    };
    let asked = Input::Request(request(0), None);
    assert_eq!(asks(&mut talk), asked);
    talk.refuse(Status::NoSuchBlock);
    let answer = Response::refusal(Status::NoSuchBlock).encode();
    assert_eq!(talk.poll_write(0), Write::Bytes { to: Outlet::Receiver, bytes: &answer, then: None });
    talk.handle_written(Outlet::Receiver, answer.len());
    // One that has read its answer asks again.
    assert_eq!(asks(&mut talk), asked);
    talk.refuse(Status::NoSuchBlock);
    talk.handle_written(Outlet::Receiver, 10);
    assert_eq!(asks(&mut talk), Input::Ended);
    assert_eq!(talk.poll_write(0), Write::Bytes { to: Outlet::Receiver, bytes: &answer[10..], then: None });
}

#[test]
fn what_is_no_request_is_refused_and_ends_the_connection() {
    let mut talk = Conversation::new(Time::ZERO);
    assert_eq!(say(&mut talk, b"GET / HTTP/1.1\r\n", &mut std::iter::empty()), [Input::Ended]);
    let refusal = Response::refusal(Status::BadRequest).encode();
    assert_eq!(talk.poll_write(0), Write::Bytes { to: Outlet::Receiver, bytes: &refusal, then: None });
}

#[test]
fn a_relay_that_is_not_there_yet_is_waited_for_and_the_receiver_is_answered() {
    let (mut talk, mut sockets) = (Conversation::new(Time::ZERO), Sockets::default());
    let ranges = [Range { offset: 0, size: 10 }];
    say(&mut talk, &[&path().encode()[..], &request(0).encode()].concat(), &mut std::iter::empty());
    serve(&mut talk, &ranges);
    sockets.write(&mut talk, &ranges, 10, &mut std::iter::empty());
    // It had no time yet: a receiver that leaves now says nothing of the relay. Later it does, and so does a failure.
    assert!(sockets.relay.is_empty() && !talk.is_relay_unreached(Time::from_millis(999)));
    assert!(talk.is_relay_unreached(Time::from_millis(1_000)));
    talk.handle_relay_failed();
    assert!(talk.is_relay_unreached(Time::ZERO));
    assert_eq!(
        Response::decode(sockets.receiver.as_slice().try_into().unwrap()).unwrap().status,
        Status::Relayed
    );
    assert_eq!(talk.poll_write(10), Write::Waits);
    talk.handle_connected();
    assert!(!talk.is_relay_unreached(Time::from_millis(5_000)));
    sockets.write(&mut talk, &ranges, 10, &mut std::iter::empty());
    assert_eq!(carried(&sockets.relay), expected(&ranges));
}

#[test]
fn what_takes_too_long_is_told_after_its_time() {
    let after = |ms: u64| Time::ZERO + Span::from_millis(ms);
    let silent = Conversation::new(Time::ZERO);
    assert_eq!((silent.late(after(10_000)), silent.late(after(10_001))), (None, Some(Late::Receiver)));
    let mut opening = Conversation::new(Time::ZERO);
    say(&mut opening, &request(0).encode(), &mut std::iter::empty());
    assert_eq!(
        (opening.late(after(10_000)), opening.late(after(10_001))),
        (None, Some(Late::Opening(FlowNumber(9))))
    );
    let (mut talk, mut sockets) = serving(10);
    let ranges = [Range { offset: 0, size: 10 }];
    sockets.write(&mut talk, &ranges, 9, &mut std::iter::empty());
    assert_eq!(talk.late(after(9_000_000)), None, "a plan may have a flow wait for as long as it likes");
    sockets.write(&mut talk, &ranges, 1, &mut std::iter::empty());
    assert_eq!((talk.late(after(60_000)), talk.late(after(60_001))), (None, Some(Late::Receiver)));
    say(&mut talk, &[ACK], &mut std::iter::empty());
    assert_eq!((talk.late(after(60_000)), talk.late(after(60_001))), (None, Some(Late::Receiver)));
}

#[test]
fn a_relay_that_was_not_reached_is_avoided_for_five_seconds_and_flows_of_the_site_take_none() {
    let addresses = ["10.0.0.1:7072", "10.0.0.2:7072"].map(|address| address.parse().unwrap());
    let mut relays = Relays::new(1, addresses.to_vec());
    let chosen = |relays: &mut Relays, now| relays.choose(now, &path()).map(|(address, _)| address);
    assert_eq!(relays.choose(Time::ZERO, &RelayPath { site: 1, ..path() }), None);
    assert_eq!(chosen(&mut relays, Time::ZERO), Some(addresses[1]), "mapper 5 of two");
    relays.handle_unreachable(Time::ZERO, addresses[1]);
    assert_eq!(chosen(&mut relays, Time::ZERO), Some(addresses[0]));
    relays.handle_unreachable(Time::ZERO, addresses[0]);
    assert_eq!(chosen(&mut relays, Time::ZERO), None);
    assert_eq!(chosen(&mut relays, Time::ZERO + Span::from_millis(5_001)), Some(addresses[1]));
}

fn gather(ranges: usize) -> GatherRequest {
    GatherRequest {
        coflow: 1,
        offset: 0,
        destination: 4,
        group: 0,
        identity: Identity::UNKNOWN,
        token: [9; 16],
        shuffle: 3,
        application: "app".to_owned(),
        executor: "7".to_owned(),
        ranges: (0..ranges as u64).map(|map| GatherRange { map, first: 0, end: 1 }).collect(),
    }
}

/// The longest gather comes in any cuts; it is answered like a block, and the connection takes a request for a block then.
#[test]
fn a_gather_is_understood_however_it_comes_and_answered_like_a_block() {
    let wanted = gather(MAX_GATHERED_RANGES);
    for cut in [1, 7, 512, 4_096, 100_000] {
        let mut talk = Conversation::new(Time::ZERO);
        let bytes = wanted.encode();
        let mut parts = bytes.chunks(cut).peekable();
        while let Some(part) = parts.next() {
            talk.handle_input(part);
            if parts.peek().is_some() {
                assert_eq!(talk.poll_input(Time::ZERO), Input::Nothing, "{cut}");
            }
        }
        assert_eq!(talk.poll_input(Time::ZERO), Input::Gather(wanted.clone(), None), "{cut}");
        let number = talk.gather(wanted.clone(), None);
        assert_eq!(talk.take_gather(Some(number + 1)), None);
        assert!(!talk.is_idle() && talk.flow().is_none() && talk.take_opening(FlowNumber(9)).is_none());
        assert_eq!(talk.late(Time::from_millis(10_001)), Some(Late::Gathering));
        assert_eq!(talk.take_gather(Some(number)), Some((wanted.clone(), None)));
        let ranges = [Range { offset: 0, size: 300_000 }];
        talk.serve(Time::ZERO, FlowNumber(9), ranges.to_vec(), (300_000, IDENTITY), None);
        let mut sockets = Sockets::default();
        while !talk.is_all_written() {
            sockets.write(&mut talk, &ranges, 10_000, &mut std::iter::empty());
        }
        assert_eq!(sockets.receiver[32..], expected(&ranges));
        talk.handle_input(&[ACK]);
        assert_eq!(talk.poll_input(Time::ZERO), Input::Acknowledged);
        talk.handle_input(&request(0).encode());
        assert_eq!(talk.poll_input(Time::ZERO), Input::Request(request(0), None));
    }
}

/// Its files took too long, and another gather came on the same connection: what is found for the first is not for that one.
#[test]
fn what_is_found_late_for_one_gather_is_not_for_the_next() {
    let mut talk = Conversation::new(Time::ZERO);
    let first = talk.gather(gather(1), None);
    assert_eq!(talk.take_gather(None), Some((gather(1), None)));
    talk.refuse(Status::Unreadable);
    let second = talk.gather(gather(2), Some(path()));
    assert_eq!(talk.take_gather(Some(first)), None);
    assert_eq!(talk.take_gather(Some(second)), Some((gather(2), Some(path()))));
}

#[test]
fn whoever_says_more_than_a_gather_or_something_else_is_let_go() {
    let ends = |bytes: &[u8]| {
        let mut talk = Conversation::new(Time::ZERO);
        talk.handle_input(bytes);
        talk.poll_input(Time::ZERO) == Input::Ended
    };
    assert!(ends(b"WGTX") && ends(b"WGTH\x02"));
    assert!(ends(&[b"WEIR\x02".to_vec(), vec![255; 5_000]].concat()), "a block's request stays short");
    // Nothing is to be said while files are being found.
    let mut talk = Conversation::new(Time::ZERO);
    talk.handle_input(&gather(1).encode());
    assert_eq!(talk.poll_input(Time::ZERO), Input::Gather(gather(1), None));
    talk.gather(gather(1), None);
    talk.handle_input(b"W");
    assert_eq!(talk.poll_input(Time::ZERO), Input::Ended);
    // A way does not make room for two gathers.
    let mut talk = Conversation::new(Time::ZERO);
    talk.handle_input(&[&path().encode()[..], &[b'W', b'G', b'T', b'H', 9][..], &[0; 40_000][..]].concat());
    assert_eq!(talk.poll_input(Time::ZERO), Input::Ended);
}

/// The longest gather there is, with a way before it, in any cuts: its frames go to the relay, the answer to the receiver.
#[test]
fn a_gather_with_a_way_is_carried_by_relays() {
    let wanted = gather(MAX_GATHERED_RANGES);
    for cut in [1, 35, 36, 37, 512, 100_000] {
        let mut talk = Conversation::new(Time::ZERO);
        for part in [&path().encode()[..], &wanted.encode()].concat().chunks(cut) {
            assert_eq!(talk.poll_input(Time::ZERO), Input::Nothing, "{cut}");
            talk.handle_input(part);
        }
        assert_eq!(talk.poll_input(Time::ZERO), Input::Gather(wanted.clone(), Some(path())), "{cut}");
        let number = talk.gather(wanted.clone(), Some(path()));
        let (request, way) = talk.take_gather(Some(number)).unwrap();
        let key = FlowKey::of_gather(&request, &way.unwrap());
        assert_eq!((key.coflow, key.reducer, key.mapper), (request.coflow, 4 << 16, path().mapper));
        let ranges = [Range { offset: 0, size: 300_000 }];
        let open = relay::Open { source_site: 1, destination_site: 2, destination: path().relay };
        talk.serve(Time::ZERO, FlowNumber(9), ranges.to_vec(), (300_000, IDENTITY), Some((key, open)));
        talk.handle_connected();
        let mut sockets = Sockets::default();
        sockets.write(&mut talk, &ranges, u64::MAX, &mut std::iter::empty());
        let answer = Response { status: Status::Relayed, size: 300_000, identity: IDENTITY }.encode();
        assert_eq!(sockets.receiver, answer);
        assert!(carried(&sockets.relay) == expected(&ranges), "{cut}");
        talk.handle_input(&[ACK]);
        assert_eq!(talk.poll_input(Time::ZERO), Input::Acknowledged);
    }
}

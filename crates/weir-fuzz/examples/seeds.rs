//! Writes sequences for fuzzing to begin with: `cargo run -p weir-fuzz --example seeds`.

use std::fs;
use std::path::Path;
use weir_fuzz::input::Output;
use weir_proto::data::{Identity, Request, Response, Status};
use weir_proto::v1;

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

fn event(kind: v1::agent_event::Kind) -> v1::AgentMessage {
    v1::AgentMessage { events: vec![v1::AgentEvent { kind: Some(kind) }] }
}

fn coordinator(policy: u8) -> Vec<u8> {
    use v1::agent_event::Kind;
    let hello = |host| v1::Hello {
        version: 1,
        host,
        data_address: format!("10.0.0.{host}:7071"),
        spool_identity: u64::from(host) + 1,
        ..v1::Hello::default()
    };
    let options = v1::CoflowOptions { flows: 2, deadline_ms: 500, ..v1::CoflowOptions::default() };
    let register = v1::RegisterRequest { options: Some(options), request_key: 7 };
    let block =
        v1::BlockAdded { coflow: 2, block: "b".to_owned(), size: 1_000_000, ..v1::BlockAdded::default() };
    let opened = v1::FlowOpened {
        flow: 1,
        coflow: 2,
        destination: 1,
        block: "b".to_owned(),
        size: 1_000_000,
        ..v1::FlowOpened::default()
    };
    let limits = v1::FlowLimits { flows: vec![v1::FlowLimit { flow: 1, bytes_per_s: 1000.0 }] };
    let locate = v1::LocateRequest { coflow: 2, block: "b".to_owned(), wait_ms: 100, host: 1 };
    let closed = v1::FlowClosed { flow: 1, done: true, ..v1::FlowClosed::default() };
    Output(vec![policy])
        .number(0)
        .number(1)
        .message(&hello(0))
        .number(0)
        .number(2)
        .message(&hello(1))
        .number(4)
        .message(&register)
        .number(1)
        .number(1)
        .message(&event(Kind::BlockAdded(block)))
        .number(7)
        .message(&locate)
        .number(8)
        .message(&v1::AdmissionRequest { coflow: 2, wait_ms: 5 })
        .number(1)
        .number(1)
        .message(&event(Kind::FlowOpened(opened)))
        .number(10)
        .number(20)
        .number(1)
        .number(1)
        .message(&event(Kind::Limits(limits)))
        .number(6)
        .number(2)
        .number(9)
        .message(&v1::RenewRequest { coflows: vec![2] })
        .number(1)
        .number(1)
        .message(&event(Kind::FlowClosed(closed)))
        .number(5)
        .number(2)
        .number(10)
        .number(250)
        .number(3)
        .number(1)
        .0
}

fn agent(choice: u8) -> Vec<u8> {
    use v1::coordinator_message::Kind;
    let said = |epoch, kind| v1::CoordinatorMessage { epoch, lease_ms: 1000, heard_ns: 0, kind: Some(kind) };
    let note = v1::CoflowNote { coflow: 2, request_key: 7, ..v1::CoflowNote::default() };
    let plan = v1::Plan {
        complete: true,
        coflows: vec![v1::CoflowRate { coflow: 2, drain_per_s: 0.5, whole: true }],
        grants: vec![v1::FlowGrant { flow: 1, bytes_per_s: 10.0 }],
        uplink: 1e6,
        ..v1::Plan::default()
    };
    let queues = v1::Queues {
        complete: true,
        coflows: vec![v1::CoflowQueue { coflow: 2, queue: 1, place_ns: 5, limits: Vec::new() }],
        uplink: 1e6,
    };
    let ended = v1::CoflowsEnded { ranges: vec![v1::IdRange { first: 2, last: 2 }] };
    Output(vec![choice])
        .number(2)
        .number(0)
        .message(&said(1, Kind::CoflowNotes(v1::CoflowNotes { notes: vec![note] })))
        .number(4)
        .number(2)
        .number(200_000)
        .number(0)
        .part(b"b")
        .number(1)
        .number(9)
        .number(5)
        .number(2)
        .number(0)
        .number(1)
        .number(0)
        .number(9)
        .part(b"b")
        .number(0)
        .message(&said(2, Kind::Plan(plan)))
        .number(0)
        .message(&said(3, Kind::Queues(queues)))
        .number(11)
        .number(50)
        .number(7)
        .number(1)
        .number(8)
        .number(1)
        .number(100_000)
        .number(1_000_000)
        .number(0)
        .message(&said(4, Kind::CoflowEnding(v1::CoflowEnding { coflow: 2 })))
        .number(6)
        .number(1)
        .number(1)
        .number(0)
        .message(&said(5, Kind::CoflowsEnded(ended)))
        .number(10)
        .part(br#"{"EndedRange":[5,9]}"#)
        .number(3)
        .0
}

fn relay() -> Vec<u8> {
    let entry = |at: u32| v1::RelayEntry {
        relay: format!("r{at}"),
        site: at,
        data_address: format!("10.0.0.{at}:7072"),
    };
    let list = v1::RelayList { relays: (0..4).map(entry).collect() };
    let hop = v1::NextHop { to: Some(v1::next_hop::To::Relay("r1".to_owned())), weight: 1.0 };
    let rule = v1::Rule {
        prefix: Some(v1::FlowPrefix { coflow: Some(0), reducer: None, mapper: None }),
        next_hops: vec![hop],
        rank: 1,
        weight: 1.0,
        entering: true,
    };
    let rules = v1::Rules { epoch: 1, complete: true, set: vec![rule], withdrawn: Vec::new() };
    let told = |kind| v1::ToRelay { kind: Some(kind) };
    Output(Vec::new())
        .number(13)
        .number(0)
        .number(14)
        .message(&told(v1::to_relay::Kind::Relays(list)))
        .number(14)
        .message(&told(v1::to_relay::Kind::Rules(rules)))
        .number(11)
        .number(1)
        .number(0)
        .number(0)
        .number(1)
        .number(0)
        .number(0b1000_0101)
        .number(300_000)
        .number(11)
        .number(1)
        .number(2)
        .number(0)
        .number(1_000_000)
        .number(2)
        .number(1)
        .number(0)
        .number(0)
        .number(128)
        .number(8)
        .number(12)
        .number(1)
        .number(9)
        .number(3)
        .number(1)
        .number(0)
        .number(2)
        .number(1)
        .number(0b1000_0001)
        .number(200_000)
        .number(2)
        .number(2)
        .number(1)
        .number(0)
        .number(50)
        .number(8)
        .number(12)
        .number(3)
        .number(6)
        .number(2)
        .number(1)
        .number(255)
        .number(15)
        .number(100)
        .number(8)
        .number(1)
        .0
}

fn controller() -> Vec<u8> {
    use v1::from_relay::Kind;
    let hello = |relay: &str, site: u32| v1::RelayHello {
        version: 1,
        relay: relay.to_owned(),
        site,
        data_address: format!("10.0.0.{site}:7072"),
        flows: Vec::new(),
        session: 5,
    };
    let key = Some(v1::FlowKey { coflow: 1, reducer: 65_536, mapper: 2 });
    let opened =
        v1::RelayFlowOpened { key, source_site: 0, destination_site: 1, bytes: 1_000_000, bytes_moved: 0 };
    let progress = v1::RelayProgress { flows: vec![v1::RelayFlowProgress { key, bytes_moved: 500 }] };
    let samples = v1::LinkSamples { links: vec![v1::LinkSample { destination_site: 1, bytes_per_s: 1e6 }] };
    let said = |kind| v1::FromRelay { kind: Some(kind) };
    Output(Vec::new())
        .number(0)
        .number(1)
        .message(&hello("r0", 0))
        .number(0)
        .number(2)
        .message(&hello("r1", 1))
        .number(1)
        .number(1)
        .message(&said(Kind::FlowOpened(opened)))
        .number(1)
        .number(1)
        .message(&said(Kind::Samples(samples)))
        .number(5)
        .number(250)
        .number(1)
        .number(1)
        .message(&said(Kind::Progress(progress)))
        .number(1)
        .number(1)
        .message(&said(Kind::Miss(v1::RuleMiss { key, destination_site: 1 })))
        .number(1)
        .number(1)
        .message(&said(Kind::NextHop(v1::NextHopState { relay: "r1".to_owned(), up: false })))
        .number(4)
        .part(b"coflow/1/r9")
        .part(br#"{"arrival_ns":1,"left":{"1":5.0},"groups":{}}"#)
        .number(3)
        .number(5)
        .number(250)
        .number(1)
        .number(1)
        .message(&said(Kind::FlowEnded(v1::RelayFlowEnded { key, bytes_moved: 1_000_000, complete: true })))
        .number(3)
        .number(1)
        .number(5)
        .number(250)
        .0
}

/// Version 1 has no checksums, so changed lines are read and not only found to be damaged.
fn journal() -> Vec<u8> {
    let entries = [
        r#"{"Put":{"coflow":1,"block":"a","path":"/p","offset":0,"size":1,"spooled":false,"frame_checksums":[7],"stamp":{"inode":1,"modified_ns":2,"length":3},"identity":"00000000000000000000000000000005"}}"#,
        r#"{"Coflow":{"coflow":1,"note":[8,1],"noted_ns":5}}"#,
        r#"{"Done":{"coflow":1,"bytes":5,"mark":9}}"#,
        r#"{"Served":{"coflow":2,"flows":2,"bytes":5,"marks":[1,2]}}"#,
        r#"{"Gone":{"coflow":1,"block":"a"}}"#,
        r#"{"Ended":7}"#,
        r#"{"EndedRange":[9,12]}"#,
    ];
    format!("{{\"weir_journal\":1}}\n{}\n", entries.join("\n")).into_bytes()
}

fn main() -> std::io::Result<()> {
    let version_1 = journal();
    let mut entries = Vec::new();
    weir_core::agent::JournalLines::read(version_1.as_slice(), |entry| entries.push(entry))?;
    write("journal", "version-1", &version_1)?;
    write("journal", "version-2", &weir_core::agent::journal_lines(&entries)?)?;
    for policy in 0..8 {
        write("coordinator", &format!("seed-{policy}"), &coordinator(policy))?;
    }
    for choice in 0..4 {
        write("agent", &format!("seed-{choice}"), &agent(choice))?;
    }
    write("relay", "seed", &relay())?;
    write("controller", "seed", &controller())?;
    let request = Request {
        coflow: 7,
        offset: 262_144,
        destination: 1,
        group: 2,
        identity: Identity([3; 16]),
        block: "map-1".to_owned(),
    };
    write("decoders", "request", &request.encode())?;
    let response = Response { status: Status::Accepted, size: 9, identity: Identity([3; 16]) };
    write("decoders", "response", &response.encode())?;
    write(
        "decoders",
        "note",
        &weir_proto::encode_note(&v1::CoflowNote { coflow: 7, ..v1::CoflowNote::default() }),
    )?;
    write("decoders", "policy", b"varys:delta=200ms")?;
    write("decoders", "rules", b"[[relay]]\nname = \"a\"\nsite = 2\naddress = \"10.0.0.5:7072\"\n[[rule]]\ncoflow = 7\nto = [{ relay = \"a\", weight = 3 }, { deliver = true }]\n")?;
    write("traces", "coflow-benchmark", b"3 2\n1 0 2 1 2 1 3:10\n2 100 1 2 2 1:5 3:5.5\n")?;
    write("traces", "sizes", b"# bytes, share\n100 0.5\n2000 1\n")?;
    for scenario in ["talk-two-coflows", "relays", "tiers"] {
        write("traces", scenario, &fs::read(format!("../scenarios/{scenario}.toml"))?)?;
    }
    Ok(())
}

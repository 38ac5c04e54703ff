//! A server of the controller, its relays, its store and a decision maker.

use crate::input::Input;
use weir_controller::maker::{Maker, MakerSettings, Step};
use weir_controller::records::State;
use weir_controller::server::{Output, Reply, Request, ServerCore, ServerSettings, SessionId};
use weir_controller::store::Ledger;
use weir_model::{Span, Time};

/// Plays the sequence in `data` against a server, its store and a decision maker.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut now = Time::from_millis(1_000);
    let mut server = ServerCore::new(now, ServerSettings::new("one".to_owned()));
    let mut ledger = Ledger::default();
    let settings = MakerSettings { rounds: 2, ..MakerSettings::default() };
    let mut maker = Maker::new("maker".to_owned(), 1, settings);
    let mut begun = 0;
    while step(&mut server, &mut ledger, &mut input, &mut now).is_some() {
        server.handle_timeout(now);
        while let Some(output) = server.poll_output(now) {
            let Output::Request(request) = output else { continue };
            let reply = match request {
                Request::Report(report) => Reply::Reported(ledger.report(now, &report)),
                Request::Renew => Reply::Renewed(ledger.renew(now, "one")),
                Request::Issue(floor) => {
                    let (number, snapshot) = ledger.issue(floor);
                    Reply::Issued(number, Box::new(snapshot))
                }
            };
            server.handle_reply(now, reply);
        }
        let snapshot = ledger.read();
        if snapshot.epoch != begun {
            begun = snapshot.epoch;
            maker.begin(snapshot.epoch, &State::of(&snapshot.servers));
        }
        for _ in 0..8 {
            match maker.step() {
                Step::Propose(proposal) => drop(ledger.propose(&proposal)),
                Step::Share(tally) => {
                    let all = ledger.share(snapshot.epoch, "maker", &tally);
                    all.into_iter().for_each(|all| maker.totals(&all));
                }
                Step::Done => break,
            }
        }
        for notice in ledger.take_notices() {
            server.handle_notice(now, notice);
        }
        server.next_timeout();
        server.status();
    }
}

fn step(server: &mut ServerCore, ledger: &mut Ledger, input: &mut Input<'_>, now: &mut Time) -> Option<()> {
    match input.byte()? % 6 {
        0 => {
            let session = SessionId(input.number()? % 4);
            server.handle_lost(*now, session);
            let _ = server.handle_hello(*now, session, &input.message()?);
        }
        1 | 2 => {
            let session = SessionId(input.number()? % 4);
            server.handle_message(*now, session, &input.message()?);
        }
        3 => server.handle_lost(*now, SessionId(input.number()? % 4)),
        4 => {
            // What another server may have written to the store, or a person.
            let name = String::from_utf8_lossy(input.part()?).into_owned();
            let text = String::from_utf8_lossy(input.part()?).into_owned();
            let report = weir_controller::store::Report {
                server: "other".to_owned(),
                complete: !ledger.read().servers.contains_key("other"),
                floor: input.number()?,
                changes: vec![(name, Some(text))],
            };
            ledger.report(*now, &report);
        }
        _ => *now = *now + Span::from_nanos(input.number()?.saturating_mul(1_000_000) % (1 << 40)),
    }
    Some(())
}

//! The law of MCP in the kernel's arithmetic is that of weir-endhost, window by window.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{ErrorKind, Object, ObjectBuilder, ProgramInput};
use proptest::prelude::*;
use weir_ebpf::McpConfig;
use weir_endhost::mcp::{Mcp, WindowFacts};
use weir_model::{Bytes, Rate, Span};

/// A law of one flow that runs in the kernel.
struct Kernel {
    object: Object,
    /// As `struct window` of the program has it: parameters, facts, memory, and what comes out.
    window: Vec<u8>,
}

/// Where the parts of a window are.
const FACTS: usize = 40;
const MEMORY: usize = FACTS + 32;
const GAVE_UP: usize = MEMORY + 36;
const PACING_RATE: usize = MEMORY + 40;
const SEGMENT: usize = PACING_RATE + 8;
const BEGINS: usize = SEGMENT + 4;

/// What came of a window.
#[derive(Debug)]
struct Decided {
    window: f64,
    gave_up: bool,
    bytes_per_sec: f64,
}

/// None where programs may not be loaded, which is a failure where everything is to be tested.
fn load() -> Result<Option<Object>> {
    const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/mcp_law.bpf.o"));
    let program = PROGRAM.to_vec();
    match ObjectBuilder::default().open_memory(&program).and_then(libbpf_rs::OpenObject::load) {
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                && std::env::var("CI").as_deref() != Ok("true") =>
        {
            let _ = writeln!(std::io::stderr(), "SKIPPED MCP in the kernel: {error:#}");
            Ok(None)
        }
        loaded => Ok(Some(loaded?)),
    }
}

impl Kernel {
    /// Another flow begins, with a state of its own.
    fn begin(&mut self, config: &McpConfig) {
        self.window = config.to_bytes();
        self.window.resize(BEGINS + 4, 0);
        self.window[SEGMENT..BEGINS].copy_from_slice(&(config.params.wire.0 as u32).to_ne_bytes());
    }

    fn decide(&mut self, facts: &Facts, begins: bool) -> Result<Decided> {
        let numbers = [facts.remaining, facts.left_ns, facts.rtt_ns].into_iter().flat_map(u64::to_ne_bytes);
        let counts = [facts.acked, facts.marked].into_iter().flat_map(u32::to_ne_bytes);
        let facts: Vec<u8> = numbers.chain(counts).collect();
        self.window[FACTS..MEMORY].copy_from_slice(&facts);
        self.window[BEGINS..].copy_from_slice(&u32::from(begins).to_ne_bytes());
        let program = self.object.progs_mut().next().context("no program")?;
        let input = ProgramInput { context_in: Some(&mut self.window), ..ProgramInput::default() };
        let output = program.test_run(input)?;
        ensure!(output.return_value == 0);
        let number =
            |at: usize| -> Result<u64> { Ok(u64::from_ne_bytes(self.window[at..at + 8].try_into()?)) };
        Ok(Decided {
            window: number(MEMORY)? as f64 / 65_536.0,
            gave_up: self.window[GAVE_UP] != 0,
            bytes_per_sec: number(PACING_RATE)? as f64,
        })
    }
}

#[derive(Clone, Copy, Debug)]
struct Facts {
    remaining: u64,
    left_ns: u64,
    rtt_ns: u64,
    acked: u32,
    marked: u32,
}

impl Facts {
    fn for_law(&self, link: Option<Rate>) -> WindowFacts {
        WindowFacts {
            remaining: Bytes(self.remaining),
            left: Span::from_nanos(self.left_ns),
            rtt: Span::from_nanos(self.rtt_ns),
            marked_share: f64::from(self.marked) / f64::from(self.acked.max(1)),
            link,
        }
    }
}

/// Windows of one flow, from the first on: both laws decide alike, to a thousandth, and a thousandth of a segment.
fn compare(kernel: &mut Kernel, config: &McpConfig, windows: &[Facts]) -> Result<()> {
    let mut law = None;
    for (number, facts) in windows.iter().enumerate() {
        let known = facts.for_law(config.link);
        match &mut law {
            None => law = Some(Mcp::new(&config.params, &known)),
            Some(law) => _ = law.on_window(&known),
        }
        let law = law.as_ref().context("it has begun")?;
        let decided = kernel.decide(facts, number == 0)?;
        let close = |a: f64, b: f64, least: f64| (a - b).abs() <= 0.001 * b + least;
        let rtt =
            if facts.rtt_ns == 0 { config.params.base_rtt.as_secs() } else { facts.rtt_ns as f64 / 1e9 };
        let window = law.window();
        let rate = window * config.params.wire.0 as f64 / rtt;
        ensure!(
            decided.gave_up == law.has_given_up()
                && close(decided.window, window, 0.001)
                && close(decided.bytes_per_sec, rate, 0.001 * 1500.0 / rtt + 1.0),
            "window {number}: {decided:?}, by the law {window} at {rate} B/s, given up {}: {facts:?}",
            law.has_given_up()
        );
    }
    Ok(())
}

/// Some link that both count alike: the program has it in 256ths of a segment per second.
fn links() -> impl Strategy<Value = Option<Rate>> {
    prop_oneof![
        Just(None),
        (1u64..2_000_000).prop_map(|segments| Some(Rate::from_bytes_per_sec(segments as f64 * 1500.0)))
    ]
}

/// A flow as its sender could see it, and worse. Its segments are no more than the largest window, a million.
fn flows() -> impl Strategy<Value = (McpConfig, Vec<Facts>)> {
    let windows = proptest::collection::vec((0u64..20_000, 0u32..200, 0.0f64..1.0, 0.5f64..30.0), 1..300);
    (20_000u64..20_000_000, links(), 1u64..1_400_000_000, 1u64..30_000, windows).prop_map(
        |(base_rtt, link, size, rtts, windows)| {
            let mut facts =
                Facts { remaining: size, left_ns: rtts * base_rtt, rtt_ns: 0, acked: 0, marked: 0 };
            let mut all = vec![facts];
            for (sent, acked, share, longer) in windows {
                facts.rtt_ns = (base_rtt as f64 * longer) as u64;
                facts.remaining = facts.remaining.saturating_sub(sent).max(1);
                facts.left_ns = facts.left_ns.saturating_sub(facts.rtt_ns);
                (facts.acked, facts.marked) =
                    (acked, (f64::from(acked) * (2.0 * share - 1.0).max(0.0)) as u32);
                all.push(facts);
            }
            (McpConfig::new(Span::from_nanos(base_rtt), link), all)
        },
    )
}

#[test]
fn both_laws_decide_alike_whatever_a_sender_sees() {
    let Some(object) = load().expect("the program loads") else { return };
    let kernel = std::cell::RefCell::new(Kernel { object, window: Vec::new() });
    let config = ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |((config, windows) in flows())| {
        let mut kernel = kernel.borrow_mut();
        kernel.begin(&config);
        let compared = compare(&mut kernel, &config, &windows);
        prop_assert!(compared.is_ok(), "{:#}", compared.unwrap_err());
    });
}

/// What is left of the horizon is a 500th then, and its square 4 in a million: of so small a number few bits are left.
#[test]
fn both_laws_decide_alike_for_a_flow_that_yields_just_before_its_deadline() {
    let Some(object) = load().expect("the program loads") else { return };
    let mut kernel = Kernel { object, window: Vec::new() };
    let base_rtt = 94_885;
    let config = McpConfig::new(Span::from_nanos(base_rtt), None);
    kernel.begin(&config);
    let begins = Facts { remaining: 1_138_609, left_ns: 170_982_770, rtt_ns: 0, acked: 0, marked: 0 };
    let full = Facts { left_ns: 60_000_000, rtt_ns: 25 * base_rtt, acked: 40, marked: 40, ..begins };
    for more in [0, 100, 1_000, 3_000] {
        let last = Facts { left_ns: base_rtt + more, ..full };
        // Prices from 1.25 to 28.
        for marked in 1..16 {
            let windows: Vec<Facts> = [begins].into_iter().chain(vec![full; marked]).chain([last]).collect();
            compare(&mut kernel, &config, &windows).expect("alike");
        }
    }
}

//! The laws as they run in the kernel, one window after the other.

use std::io::Write as _;

use anyhow::{Context, Result, ensure};
use libbpf_rs::{ErrorKind, Object, ObjectBuilder, ProgramInput};
use weir_ebpf::McpConfig;
use weir_endhost::mcp::{Mcp, WindowFacts};
use weir_model::{Bytes, Rate, Span};

/// The laws of one flow that run in the kernel.
pub(crate) struct Kernel {
    object: Object,
    /// As `struct window` of the program has it: parameters, facts, memory, and what comes out.
    window: Vec<u8>,
    /// As `struct round` of the program has it: DCTCP's alpha, segments that were acknowledged, and those that were marked.
    round: [u8; 12],
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

/// DCTCP's alpha of 1, in the program.
const ALPHA_ONE: u32 = 1 << 20;

/// None where programs may not be loaded, which is a failure where everything is to be tested.
pub(crate) fn load() -> Result<Option<Kernel>> {
    const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/laws.bpf.o"));
    let program = PROGRAM.to_vec();
    match ObjectBuilder::default().open_memory(&program).and_then(libbpf_rs::OpenObject::load) {
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                && std::env::var("CI").as_deref() != Ok("true") =>
        {
            let _ = writeln!(std::io::stderr(), "SKIPPED laws in the kernel: {error:#}");
            Ok(None)
        }
        loaded => Ok(Some(Kernel { object: loaded?, window: Vec::new(), round: [0; 12] })),
    }
}

impl Kernel {
    /// Another flow begins, with a state of its own.
    pub(crate) fn begin(&mut self, config: &McpConfig) {
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
        run(&self.object, "weir_mcp_law", &mut self.window)?;
        let number =
            |at: usize| -> Result<u64> { Ok(u64::from_ne_bytes(self.window[at..at + 8].try_into()?)) };
        Ok(Decided {
            window: number(MEMORY)? as f64 / 65_536.0,
            gave_up: self.window[GAVE_UP] != 0,
            bytes_per_sec: number(PACING_RATE)? as f64,
        })
    }

    /// DCTCP begins, by which all are taken to be marked.
    pub(crate) fn begin_dctcp(&mut self) {
        self.round[..4].copy_from_slice(&ALPHA_ONE.to_ne_bytes());
    }

    /// DCTCP's alpha after another window, 0 to 1.
    pub(crate) fn estimate(&mut self, acked: u32, marked: u32) -> Result<f64> {
        self.round[4..8].copy_from_slice(&acked.to_ne_bytes());
        self.round[8..].copy_from_slice(&marked.to_ne_bytes());
        run(&self.object, "weir_dctcp_law", &mut self.round)?;
        Ok(f64::from(u32::from_ne_bytes(self.round[..4].try_into()?)) / f64::from(ALPHA_ONE))
    }
}

fn run(object: &Object, name: &str, context: &mut [u8]) -> Result<()> {
    let program = object.progs_mut().find(|program| program.name() == name).context("no such program")?;
    let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
    ensure!(program.test_run(input)?.return_value == 0);
    Ok(())
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) remaining: u64,
    pub(crate) left_ns: u64,
    pub(crate) rtt_ns: u64,
    pub(crate) acked: u32,
    pub(crate) marked: u32,
}

impl Facts {
    pub(crate) fn for_law(&self, link: Option<Rate>) -> WindowFacts {
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
/// Returns the windows of weir-endhost's.
pub(crate) fn compare(kernel: &mut Kernel, config: &McpConfig, windows: &[Facts]) -> Result<Vec<f64>> {
    let (mut law, mut decisions) = (None, Vec::new());
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
        decisions.push(window);
    }
    Ok(decisions)
}

//! Windows of flows in the packet simulator, with the round trips and the marks that its queues gave them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use weir_ebpf::McpConfig;
use weir_model::Span;
use weir_packet::transport::{self, Network};
use weir_packet::{Decided, Observer, Picos, Scenario, Simulation, WindowEnded};

use crate::kernel::{Facts, Kernel, compare, load};

/// What alpha in 20 bits loses by rounding is at most a bit for each of the two parts of a window, of which sixteen count.
const ROUNDING: f64 = 32.0 / (1 << 20) as f64;

/// Windows by flow, in their order.
#[derive(Default)]
struct Windows(BTreeMap<u64, Vec<WindowEnded>>);

impl Observer for Windows {
    fn window_ended(&mut self, flow: u64, window: &WindowEnded, _: Picos) {
        self.0.entry(flow).or_default().push(*window);
    }
}

/// How many windows of each law were compared, and how many of those had marks.
#[derive(Debug, Default)]
struct Compared {
    mcp: [usize; 2],
    dctcp: [usize; 2],
}

fn recorded(scenario: &Scenario) -> (Windows, Network) {
    let topology = scenario.topology().expect("a network");
    let network = scenario.network(&topology);
    let mut windows = Windows::default();
    let transport = transport::named("karuna").expect("a transport");
    let mut simulation =
        Simulation::new(&topology, transport, network.clone(), scenario.arrivals().expect("flows"));
    simulation.observe(&mut windows);
    simulation.run(scenario.until.unwrap_or(Picos::MAX), &mut |_| ());
    drop(simulation);
    (windows, network)
}

/// All windows of a run: the kernel decides as the simulator did.
fn replay(kernel: &mut Kernel, scenario: &Scenario) -> Result<Compared> {
    let (windows, network) = recorded(scenario);
    let round_trip = Span::from_nanos(network.round_trip.0 / 1000);
    let config = McpConfig::new(round_trip, Some(network.host_rate));
    let mut compared = Compared::default();
    for (flow, windows) in &windows.0 {
        let (mut by_deadline, mut decided) = (Vec::new(), Vec::new());
        kernel.begin_dctcp();
        for window in windows {
            let WindowEnded { acked, marked, .. } = *window;
            match window.decided {
                Decided::Mcp { facts, window, .. } => {
                    let (remaining, left_ns) = (facts.remaining.0, facts.left.nanos());
                    let facts = Facts { remaining, left_ns, rtt_ns: facts.rtt.nanos(), acked, marked };
                    by_deadline.push(facts);
                    decided.push(window);
                    compared.mcp[0] += 1;
                    compared.mcp[1] += usize::from(marked > 0);
                }
                Decided::Alpha(simulated) => {
                    let alpha = kernel.estimate(acked, marked)?;
                    ensure!(
                        (alpha - simulated).abs() <= ROUNDING,
                        "flow {flow}: alpha {alpha}, simulated {simulated}"
                    );
                    compared.dctcp[0] += 1;
                    compared.dctcp[1] += usize::from(marked > 0);
                }
            }
        }
        kernel.begin(&config);
        let by_law = compare(kernel, &config, &by_deadline).with_context(|| format!("flow {flow}"))?;
        ensure!(by_law == decided, "flow {flow}: the simulator goes by other windows than its law's");
    }
    Ok(compared)
}

#[test]
fn the_kernel_decides_as_the_simulator_did_by_the_marks_that_it_recorded() {
    let Some(mut kernel) = load().expect("the programs load") else { return };
    let four = include_str!("../../../../scenarios/packets/four-flows.toml");
    let bed = include_str!("../../../../scenarios/packets/sixteen-hosts-bed.toml");
    let spines = include_str!("../../../../scenarios/packets/leaf-spine.toml");
    for text in [four, bed, spines] {
        let mut scenario = Scenario::from_text(text).expect("a scenario");
        if let Some(traffic) = &mut scenario.traffic {
            traffic.flows = 600;
            // So many that they meet each other, and are marked.
            traffic.mix.deadline_bytes = 0.7;
        }
        let compared = replay(&mut kernel, &scenario).expect("alike");
        println!("{}: {compared:?}", scenario.name);
        let Compared { mcp: [_, by_deadline], dctcp: [_, others] } = compared;
        assert!(by_deadline > 30 && others > 80, "hardly any marks: {compared:?}");
    }
}

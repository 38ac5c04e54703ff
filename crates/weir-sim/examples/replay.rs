//! Replays a trace file or a synthetic workload:
//! `replay TRACE|synthetic:NAME POLICY[,POLICY..] [arrival scale] [copies] [frozen]`.
//! Prints averages, work done, CPU seconds and peak memory of the process.

use anyhow::Context;
use weir_model::{CoflowId, CoflowSpec, Fabric, Rate};
use weir_sim::{Options, Replan, simulate};

/// CPU seconds of this process and its peak memory in MB, from the operating system's own files.
fn usage() -> anyhow::Result<(f64, f64)> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let cpu: f64 = stat.split_whitespace().next().context("schedstat")?.parse()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let peak: f64 = peak.trim().trim_end_matches(" kB").parse()?;
    Ok((cpu / 1e9, peak / 1024.0))
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, trace, policies, rest @ ..] = arguments.as_slice() else {
        anyhow::bail!("usage: replay TRACE POLICY[,POLICY..] [arrival scale] [copies] [frozen]")
    };
    let arrival_scale: f64 = rest.first().map_or(Ok(1.0), |text| text.parse())?;
    let copies: u64 = rest.get(1).map_or(Ok(1), |text| text.parse())?;
    let replan =
        if rest.iter().any(|word| word == "frozen") { Replan::CoflowEvents } else { Replan::default() };
    for name in policies.split(',') {
        let workload = weir_trace::load(trace, 1)?;
        let hosts = workload.hosts;
        let coflows = workload.into_coflows();
        let coflows: Vec<CoflowSpec> = (0..copies)
            .flat_map(|copy| {
                coflows.iter().map(move |coflow| {
                    let mut coflow = coflow.clone();
                    coflow.id = CoflowId(coflow.id.0 * copies + copy);
                    coflow
                })
            })
            .collect();
        // Copies arrive together on links as many times as fast: the load stays what it is.
        let fabric = Fabric::big_switch(hosts, Rate::from_bytes_per_sec(125e6 * copies as f64))?;
        let mut policy = weir_policy::create(name)?;
        let options = Options { arrival_scale, replan, ..Options::default() };
        let before = usage()?;
        let outcome = simulate(&fabric, coflows, policy.as_mut(), &options)?;
        let after = usage()?;
        println!(
            "{name}: average CCT {:.4} s, isolation {:.4} s, makespan {:.3} s, {:?}, {:.3} CPU s ({:.3} with reading), {:.0} MB peak",
            outcome.average_cct_secs(),
            outcome.average_isolation_secs(),
            outcome.makespan.as_secs(),
            outcome.counters,
            after.0 - before.0,
            after.0,
            after.1,
        );
    }
    Ok(())
}

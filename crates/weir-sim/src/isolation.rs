//! The least time that a coflow takes.

use weir_model::{Bytes, CoflowSpec, Fabric, Span};

/// Completion time of a coflow that has the fabric to itself: Gamma (the largest demand / capacity over its
/// links), rounded up. Between sites it is that of direct links; policies that take detours may be below it.
pub fn isolation(fabric: &Fabric, coflow: &CoflowSpec) -> Span {
    let mut sums = vec![Bytes(0); fabric.links().len()];
    for flow in &coflow.flows {
        for link in fabric.path(flow.source, flow.destination).iter().flat_map(|path| path.iter()) {
            sums[link.index()] += flow.size;
        }
    }
    let gamma =
        sums.iter().zip(fabric.links()).map(|(sum, link)| sum.0 as f64 / link.capacity.bytes_per_sec());
    Span::until_done(gamma.fold(0.0, f64::max))
}

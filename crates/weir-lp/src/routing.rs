//! The least makespan of a demand between sites, as the bound for Siphon's water-filling (ATC 2018, section 3.3).
//!
//! # Problem
//! Split the bytes of every pair of sites over the direct link and all one-relay detours so that the link that is
//! done last is done as early as possible.
//!
//! # Approach
//! One linear program. It is Terra's for one coflow, seen from the other side: the largest share of the demand that
//! can move per second is one over the least makespan.
//!
//! # Terminology
//! * x(p, h): the share of the bytes d(p) of pair p that takes next hop h (the receiving site: the direct link).
//! * T: the makespan, as a share of that of direct links.
//!
//! # Pseudo-code
//! ```text
//! minimise T    (paths over links that carry nothing are left out)
//! for pair p:  sum over h of x(p, h) = 1,  0 <= x(p, h) <= 1
//! for link l:  sum over (p, h) that cross l of x(p, h) d(p) / B(l)  <=  T * (makespan of direct links)
//! ```
//!
//! # Properties
//! * No split over the same paths has a smaller makespan, but for what the solver rounds (a test allows a millionth).
//! * The result is a [`Routes`]: every byte has a path, whatever the solver rounded.
//!
//! # Departures
//! Terra's program has flows on paths of any length; here a path has one relay at most, as Siphon's have.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use weir_policy::route::{Routes, SiteDemand, links};

/// Why the solver gave no optimum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LpError {
    /// There always is an optimum; the solver ended without it.
    #[error("the solver for linear programs gave no optimum: {0}")]
    NotOptimal(String),
}

/// One variable of the program: the share of a pair's bytes that takes a path.
struct SitePath {
    pair: (usize, usize),
    next_hop: usize,
    share: Variable,
}

/// Routes whose makespan no others of direct links and one-relay detours can beat. Links may carry nothing: if a pair
/// of sites has no other way, all of the demand stays on direct links, and the makespan is infinite.
///
/// # Errors
/// The solver ended without an optimum, though every demand has one.
pub fn least_makespan(demand: &SiteDemand) -> Result<Routes, LpError> {
    let mut routes = Routes::direct(demand);
    let mut scale_s = routes.makespan_s();
    if scale_s == 0.0 || demand.pairs().any(|pair| is_stuck(demand, pair)) {
        return Ok(routes);
    }
    if scale_s.is_infinite() {
        // What would be the makespan if the slowest link carried everything; of use as a unit alone.
        let rates = demand.pairs().map(|(from, to)| demand.capacity(from, to).bytes_per_sec());
        scale_s = demand.total_bytes() / rates.filter(|rate| *rate > 0.0).fold(f64::INFINITY, f64::min);
    }
    let (problem, paths) = program(demand, scale_s);
    let solved = problem.solve().map_err(|error| LpError::NotOptimal(error.to_string()))?;
    let Some(solution) = solved.solution().filter(|_| solved.is_optimal()) else {
        return Err(LpError::NotOptimal(format!("{:?}", solved.termination_reason())));
    };
    for path in paths.iter().filter(|path| path.next_hop != path.pair.1) {
        let (from, to) = path.pair;
        // The solver keeps to bounds only up to its tolerance.
        let share = solution.var_value(path.share).clamp(0.0, 1.0);
        routes.shift(path.pair, to, path.next_hop, share * demand.bytes(from, to).0 as f64);
    }
    for path in paths.iter().filter(|path| !is_open(demand, path.pair, path.pair.1)) {
        // What rounding left where nothing can move.
        routes.shift(path.pair, path.pair.1, path.next_hop, f64::INFINITY);
    }
    Ok(routes)
}

/// Whether all links of a path carry anything.
fn is_open(demand: &SiteDemand, pair: (usize, usize), next_hop: usize) -> bool {
    links(pair, next_hop).all(|(from, to)| demand.capacity(from, to).bytes_per_sec() > 0.0)
}

/// Whether a pair has bytes and no way for them.
fn is_stuck(demand: &SiteDemand, pair: (usize, usize)) -> bool {
    let mut hops = (0..demand.sites()).filter(|&hop| hop != pair.0);
    demand.bytes(pair.0, pair.1).0 > 0 && !hops.any(|hop| is_open(demand, pair, hop))
}

/// The program, and its variables beside the makespan. All are shares, so that the solver's absolute tolerances mean the
/// same for bytes and for petabytes.
fn program(demand: &SiteDemand, scale_s: f64) -> (Problem, Vec<SitePath>) {
    let sites = demand.sites();
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let makespan = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut times: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); sites * sites];
    let mut paths = Vec::new();
    for (from, to) in demand.pairs().filter(|&(from, to)| demand.bytes(from, to).0 > 0) {
        let mut whole = Vec::new();
        for next_hop in (0..sites).filter(|&hop| hop != from && is_open(demand, (from, to), hop)) {
            let share = problem.add_var(0.0, (0.0, 1.0));
            whole.push((share, 1.0));
            paths.push(SitePath { pair: (from, to), next_hop, share });
            for (start, end) in links((from, to), next_hop) {
                let time_s = demand.bytes(from, to).0 as f64 / demand.capacity(start, end).bytes_per_sec();
                times[start * sites + end].push((share, time_s / scale_s));
            }
        }
        problem.add_constraint(whole, ComparisonOp::Eq, 1.0);
    }
    for mut link in times.into_iter().filter(|link| !link.is_empty()) {
        link.push((makespan, -1.0));
        problem.add_constraint(link, ComparisonOp::Le, 0.0);
    }
    (problem, paths)
}

#[cfg(test)]
mod tests;

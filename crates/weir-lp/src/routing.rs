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
//! * No split over the same paths has a smaller makespan, within the solver's tolerance (`TOLERANCE`).
//! * The result is a [`Routes`]: every byte has a path, whatever the solver rounded.
//!
//! # Departures
//! Terra's program has flows on paths of any length; here a path has one relay at most, as Siphon's have.

use highs::{Col, HighsModelStatus, RowProblem, Sense};
use weir_policy::route::{Routes, SiteDemand, links};

/// What constraints of the program may be off by, as a share of the makespan of direct links.
const TOLERANCE: f64 = 1e-7;

/// Why the solver gave no optimum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LpError {
    /// There always is an optimum; the solver ended without it, out of memory for example.
    #[error("the solver for linear programs ended with {0} instead of an optimum")]
    NotOptimal(String),
}

/// One variable of the program: the share of a pair's bytes that takes a path.
struct SitePath {
    pair: (usize, usize),
    next_hop: usize,
}

/// Routes whose makespan no others of direct links and one-relay detours can beat. Links may carry nothing: if a pair
/// of sites has no other way, all of the demand stays on direct links, and the makespan is infinite.
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
    let mut model = problem.optimise(Sense::Minimise);
    model.make_quiet();
    for name in ["primal_feasibility_tolerance", "dual_feasibility_tolerance"] {
        model.set_option(name, TOLERANCE);
    }
    let failed = |status: String| LpError::NotOptimal(status);
    let solved = model.try_solve().map_err(|status| failed(format!("{status:?}")))?;
    if solved.status() != HighsModelStatus::Optimal {
        return Err(failed(format!("{:?}", solved.status())));
    }
    let solution = solved.get_solution();
    // The first column is the makespan.
    for (path, share) in paths.iter().zip(solution.columns().iter().skip(1)) {
        let (from, to) = path.pair;
        if path.next_hop != to {
            routes.shift(path.pair, to, path.next_hop, share * demand.bytes(from, to).0 as f64);
        }
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

/// The program, and what its columns after the first stand for. All variables are shares, so that the solver's
/// absolute tolerances mean the same for bytes and for petabytes.
fn program(demand: &SiteDemand, scale_s: f64) -> (RowProblem, Vec<SitePath>) {
    let sites = demand.sites();
    let mut problem = RowProblem::default();
    let makespan = problem.add_column(1.0, 0.0..);
    let mut times: Vec<Vec<(Col, f64)>> = vec![Vec::new(); sites * sites];
    let mut paths = Vec::new();
    for (from, to) in demand.pairs().filter(|&(from, to)| demand.bytes(from, to).0 > 0) {
        let mut whole = Vec::new();
        for next_hop in (0..sites).filter(|&hop| hop != from && is_open(demand, (from, to), hop)) {
            let share = problem.add_column(0.0, 0.0..=1.0);
            whole.push((share, 1.0));
            paths.push(SitePath { pair: (from, to), next_hop });
            for (start, end) in links((from, to), next_hop) {
                let time_s = demand.bytes(from, to).0 as f64 / demand.capacity(start, end).bytes_per_sec();
                times[start * sites + end].push((share, time_s / scale_s));
            }
        }
        problem.add_row(1.0..=1.0, whole);
    }
    for mut link in times.into_iter().filter(|link| !link.is_empty()) {
        link.push((makespan, -1.0));
        problem.add_row(..=0.0, link);
    }
    (problem, paths)
}

#[cfg(test)]
mod tests;

//! Levels whose flows share the link, as flows of DCTCP in one queue of a switch do.
//!
//! # Problem
//! The model of [`super::theory`], but within a level all flows are served at the same rate (processor sharing).
//!
//! # Approach
//! What a level has to do with those above it does not depend on the order within levels, so that the wait to get
//! there is as before. For a level k, with W the mean work that is found above it (bytes), a and b its upper
//! neighbours' thresholds:
//!
//! ```text
//! W  = S_(k-1) / (2 (1 - sigma_(k-1)))
//! D3 = (W + a) / (1 - sigma_(k-1))        until a flow of unknown size has sent a bytes and all above is done
//! D2 = W / (1 - sigma_(k-1))              until all above is done that a flow of known size has found
//! ```
//! From then on the level shares, in the time that levels above leave: M/G/1 with batches, for flows that got here
//! while the levels above were busy get their first turn together. With r_j the arrivals of a kind per such time, B_j(y)
//! the share of them that have more than y bytes to send here, and rho the load they make, a flow of kind i that sends x
//! bytes here stays for
//!
//! ```text
//! x / (1 - rho) + integral of h_i from 0 to x,      rho = (sigma_k - sigma_(k-1)) / (1 - sigma_(k-1))
//! h_i(x) = sum_j r_j ( int_0^inf h_j(y) B_j(x + y) dy + int_0^x h_i(y) B_j(x - y) dy ) + sum_j n_ij B_j(x)
//! ```
//! of that time. `n_ij` are the flows of kind j that come in the batch of one of kind i:
//!
//! ```text
//! n_33 = l3 P(X > a) 2 (W + a) / (1 - sigma_(k-1))      n_32 = l2 P(X in k) (2 W + a) / (1 - sigma_(k-1))
//! n_23 = l3 P(X > a) (2 W + a) / (1 - sigma_(k-1))      n_22 = l2 P(X in k) 2 W / (1 - sigma_(k-1))
//! ```
//! for the busy period above the level goes on for (W + a) or W after an arrival and has lasted as long before it,
//! seen from the other end. The equation is solved at evenly spaced points in the middle of as many steps.
//!
//! # Source
//! For type 3 alone: Kleinrock, Queueing Systems, volume 2, chapter 4, who has the equation of a level that
//! shares and solves it for some distributions (its form with 1 / (1 - rho) taken out is ours). Type 2, the
//! mean sizes of batches and the numbers are our derivation. Mean times are exact but for steps between the points;
//! halving them moves the mean by less than a thousandth.

use super::theory::{Ends, Level, Traffic};
use weir_model::Bytes;

/// Points at which the equation is solved for each kind of flow, with one kind and with two.
const POINTS: [usize; 2] = [32, 20];

/// Flows of one kind in one level.
struct Kind<'a> {
    traffic: &'a Traffic,
    /// Sizes from and to which the level has flows; of unknown size, bytes sent.
    from: Bytes,
    to: Bytes,
    known: bool,
    /// Share of the kind's flows that come to the level, and that end there, and E[X; X ends there].
    comes: f64,
    ends: f64,
    first: f64,
}

impl<'a> Kind<'a> {
    fn new(traffic: &'a Traffic, from: Bytes, to: Bytes, known: bool) -> Kind<'a> {
        let (below, end) = (traffic.sizes().below(from), traffic.sizes().below(to));
        let (ends, first) = (end.share - below.share, end.first - below.first);
        Kind { traffic, from, to, known, comes: if known { ends } else { 1.0 - below.share }, ends, first }
    }

    /// Bytes that a flow sends here at most.
    fn most(&self) -> f64 {
        if self.known { self.to.0 as f64 } else { (self.to.0 - self.from.0) as f64 }
    }

    /// Share of the kind's flows that end here and have sent more than so many bytes here.
    fn ends_after(&self, sent: f64) -> f64 {
        if sent >= self.most() {
            return 0.0;
        }
        let size = if self.known { sent.max(self.from.0 as f64) } else { self.from.0 as f64 + sent };
        let sizes = self.traffic.sizes();
        (sizes.cdf(self.to) - sizes.cdf(Bytes(size as u64))).max(0.0)
    }

    /// B: of the flows that come here, the share that have more than so many bytes to send here.
    fn beyond(&self, sent: f64) -> f64 {
        if sent >= self.most() {
            return 0.0;
        }
        // Flows of unknown size that go on to the next level are those that do not end here.
        (self.ends_after(sent) + self.comes - self.ends) / self.comes
    }
}

impl Traffic {
    /// Completion times of the flows that end in the level between these thresholds.
    pub(super) fn shared_level(&self, above: Ends, end: Ends) -> Level {
        let [known_rate, unknown_rate] = self.rates();
        let (load_above, squares) = self.load_and_squares(above);
        let (load, _) = self.load_and_squares(end);
        let (free, sent) = (1.0 - load_above, above.demotion.0 as f64);
        let work = squares / (2.0 * free);
        let unknown = Kind::new(self, above.demotion, end.demotion, false);
        let known = Kind::new(self, above.splitting, end.splitting, true);
        // Per time that levels above leave, and the length of the busy period above that a flow of each kind is in.
        let rates = [unknown_rate * unknown.comes / free, known_rate * known.comes / free];
        let lengths = [[2.0 * (work + sent), 2.0 * work + sent], [2.0 * work + sent, 2.0 * work]];
        let batches = self.batches([&unknown, &known], rates, lengths);
        // x / (1 - rho) of the time that is left, 1 - sigma_(k-1), is x / (1 - sigma_k).
        let unknown_time = unknown.ends * (work + sent) / free
            + (unknown.first - sent * unknown.ends) / (1.0 - load)
            + batches[0] / free;
        let known_time = known.ends * work / free + known.first / (1.0 - load) + batches[1] / free;
        Level { load, known: (known.ends, known_time), unknown: (unknown.ends, unknown_time) }
    }

    /// What a level adds to the mean completion time of all flows without a deadline, in bytes.
    pub(super) fn shared_cost(&self, above: Ends, end: Ends) -> f64 {
        let level = self.shared_level(above, end);
        self.known() * level.known.1 + (1.0 - self.known()) * level.unknown.1
    }

    /// E[int_0^x h_i; ends here] of each kind: what flows of the same batch cost, in bytes of the time left by levels above.
    fn batches(&self, kinds: [&Kind<'_>; 2], rates: [f64; 2], lengths: [[f64; 2]; 2]) -> [f64; 2] {
        let present: Vec<usize> =
            (0..2).filter(|&kind| rates[kind] > 0.0 && kinds[kind].most() > 0.0).collect();
        let Some(points) = present.len().checked_sub(1).map(|more| POINTS[more]) else { return [0.0; 2] };
        let most = present.iter().map(|&kind| kinds[kind].most()).fold(0.0, f64::max);
        let step = most / points as f64;
        let at = |half_steps: usize| half_steps as f64 * step / 2.0;
        // B at every half step.
        let beyond: Vec<Vec<f64>> = present
            .iter()
            .map(|&kind| (0..2 * points).map(|half| kinds[kind].beyond(at(half))).collect())
            .collect();
        let mut system = System::new(points * present.len());
        for (row_kind, &i) in present.iter().enumerate() {
            for row in 0..points {
                let equation = row_kind * points + row;
                for (column_kind, &j) in present.iter().enumerate() {
                    let share = &beyond[column_kind];
                    // (row + 1/2) + (column + 1/2) steps; beyond all of them no flow has anything to send.
                    for column in 0..points - row - 1 {
                        let found = rates[j] * step * share[2 * (row + column + 1)];
                        system.add(equation, column_kind * points + column, -found);
                    }
                    // Flows that come later: (row + 1/2) - (column + 1/2) steps, and half of the step itself.
                    for column in 0..=row {
                        let width = if column == row { step / 2.0 } else { step };
                        let later = rates[j] * width * share[2 * (row - column)];
                        system.add(equation, row_kind * points + column, -later);
                    }
                    system.known[equation] += rates[j] * lengths[i][j] * share[2 * row + 1];
                }
            }
        }
        let solution = system.solve();
        let mut sums = [0.0; 2];
        for (kind, values) in present.iter().zip(solution.chunks(points)) {
            let ending = (0..points).map(|point| kinds[*kind].ends_after(at(2 * point + 1)));
            sums[*kind] = step * values.iter().zip(ending).map(|(value, share)| value * share).sum::<f64>();
        }
        sums
    }
}

/// Linear equations: the unit matrix less one of numbers that are not negative and whose powers vanish, so that no
/// pivots are needed.
struct System {
    size: usize,
    matrix: Vec<f64>,
    known: Vec<f64>,
}

impl System {
    /// As many equations, of the unit matrix yet.
    fn new(size: usize) -> System {
        let mut matrix = vec![0.0; size * size];
        matrix.iter_mut().step_by(size + 1).for_each(|diagonal| *diagonal = 1.0);
        System { size, matrix, known: vec![0.0; size] }
    }

    fn add(&mut self, row: usize, column: usize, value: f64) {
        self.matrix[row * self.size + column] += value;
    }

    /// Solves the equations by Gaussian elimination, without exchange of rows.
    fn solve(mut self) -> Vec<f64> {
        let size = self.size;
        for pivot in 0..size {
            let (done, rest) = self.matrix.split_at_mut((pivot + 1) * size);
            let pivot_row = &done[pivot * size..];
            for (row, values) in rest.chunks_exact_mut(size).enumerate() {
                let factor = values[pivot] / pivot_row[pivot];
                if factor != 0.0 {
                    for (value, above) in values[pivot..].iter_mut().zip(&pivot_row[pivot..]) {
                        *value -= factor * above;
                    }
                    self.known[pivot + 1 + row] -= factor * self.known[pivot];
                }
            }
        }
        for row in (0..size).rev() {
            let values = &self.matrix[row * size..(row + 1) * size];
            let after: f64 = values[row + 1..]
                .iter()
                .zip(&self.known[row + 1..])
                .map(|(value, known)| value * known)
                .sum();
            self.known[row] = (self.known[row] - after) / values[row];
        }
        self.known
    }
}

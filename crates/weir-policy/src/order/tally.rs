//! What rounds of simulation have said of branches so far (Siphon, USENIX ATC 2018, section 3.1): counts and sums only,
//! so that those of several decision makers, each with draws of its own, add up.

/// Rounds before branches are given up, and before the best is compared with the second.
pub const FIRST_ROUNDS: u32 = 50;
/// A branch that has never won and whose mean cost is more than this many times that of the best is given up.
const HOPELESS: f64 = 1.05;
/// Standard errors that the best two are apart to be told from each other: 95 %.
const APART: f64 = 1.96;
/// Numbers that differ by less than this share are equal.
const ROUNDING: f64 = 1e-9;

/// What decides between branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// The number of rounds won.
    Wins,
    /// The mean cost over the rounds.
    Mean,
}

/// What rounds have said of a branch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Rounds that it was part of: all, until it was given up.
    pub rounds: u32,
    /// Rounds in which it was the cheapest.
    pub wins: u32,
    /// Sum of its costs, in seconds.
    pub sum: f64,
    /// Sum of the squares of its costs.
    pub squares: f64,
}

impl Score {
    fn mean(&self) -> f64 {
        if self.rounds == 0 { f64::INFINITY } else { self.sum / f64::from(self.rounds) }
    }

    /// The square of the standard error of the mean.
    fn error_squared(&self) -> f64 {
        let rounds = f64::from(self.rounds);
        // The difference of two large sums may come out below 0 by rounding, and its root would not be a number.
        let variance = (self.squares - self.sum * self.sum / rounds).max(0.0) / (rounds - 1.0);
        variance / rounds
    }

    /// Key by which branches are compared: the least is the best.
    fn key(&self, decide: Decide) -> f64 {
        match decide {
            // Negated, so that the least key is the best for wins as for means.
            Decide::Wins => -f64::from(self.wins),
            Decide::Mean => self.mean(),
        }
    }
}

/// The scores of all branches of one decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    rounds: u32,
    scores: Vec<Score>,
}

impl Tally {
    /// A tally without rounds, for this many branches.
    pub fn new(branches: usize) -> Tally {
        Tally { rounds: 0, scores: vec![Score::default(); branches] }
    }

    /// From what [`Tally::rounds`] and [`Tally::scores`] said elsewhere.
    pub fn from_parts(rounds: u32, scores: Vec<Score>) -> Tally {
        Tally { rounds, scores }
    }

    /// Rounds so far, of all that were added up.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Scores of the branches, by number of the branch.
    pub fn scores(&self) -> &[Score] {
        &self.scores
    }

    /// Adds the rounds of another decision maker on the same branches. One with another number of branches is about
    /// other coflows: it is not added, and the answer is false.
    pub fn add(&mut self, other: &Tally) -> bool {
        if self.scores.len() != other.scores.len() {
            return false;
        }
        self.rounds = self.rounds.saturating_add(other.rounds);
        for (score, other) in self.scores.iter_mut().zip(&other.scores) {
            score.rounds = score.rounds.saturating_add(other.rounds);
            score.wins = score.wins.saturating_add(other.wins);
            score.sum += other.sum;
            score.squares += other.squares;
        }
        true
    }

    /// Counts one round: what branches cost in it. Those that are out take no part.
    pub fn note(&mut self, costs: &[f64], out: &[bool]) {
        self.rounds += 1;
        let still_in = |at: usize| if out[at] { f64::INFINITY } else { costs[at] };
        self.scores[first_least((0..costs.len()).map(still_in))].wins += 1;
        let part = self.scores.iter_mut().zip(costs).zip(out).filter(|(_, out)| !**out);
        for ((score, &cost), _) in part {
            score.rounds += 1;
            score.sum += cost;
            score.squares += cost * cost;
        }
    }

    /// Gives up branches that have never won and are clearly worse than the best.
    pub fn give_up(&self, out: &mut [bool]) {
        let best = self.scores.iter().map(Score::mean).fold(f64::INFINITY, f64::min);
        let hopeless = |score: &Score| score.wins == 0 && score.mean() > best * HOPELESS;
        out.iter_mut().zip(&self.scores).for_each(|(out, score)| *out |= hopeless(score));
    }

    /// Whether the best branch is told from the second.
    pub fn is_clear(&self, out: &[bool], decide: Decide) -> bool {
        let still_in = self.scores.iter().zip(out).filter(|(_, out)| !**out).map(|(score, _)| score);
        let mut best: [Option<&Score>; 2] = [None; 2];
        for score in still_in {
            if best[0].is_none_or(|first| score.key(decide) < first.key(decide)) {
                best = [Some(score), best[0]];
            } else if best[1].is_none_or(|second| score.key(decide) < second.key(decide)) {
                best[1] = Some(score);
            }
        }
        // With one branch left there is nothing to tell it from.
        let [Some(first), Some(second)] = best else { return true };
        match decide {
            Decide::Wins => {
                let (first, second) = (f64::from(first.wins), f64::from(second.wins));
                // Of rounds that one of the two won, each wins half if they are equal: the difference has a variance of `first + second`.
                first - second > APART * (first + second).sqrt()
            }
            Decide::Mean => {
                // As if both were drawn independently. They share the draws of each round, which as
                // a rule makes the true error smaller: rounds are run that need not be.
                let error = (first.error_squared() + second.error_squared()).sqrt();
                second.mean() - first.mean() > APART * error
            }
        }
    }

    /// The best branch of those that are not out; the first, if there were no rounds.
    pub fn best(&self, out: &[bool], decide: Decide) -> usize {
        let key = |at: usize| if out[at] { f64::INFINITY } else { self.scores[at].key(decide) };
        first_least((0..self.scores.len()).map(key))
    }
}

/// Where the least number first stands; of numbers that differ by rounding the first counts.
pub(super) fn first_least(numbers: impl Iterator<Item = f64>) -> usize {
    let least = |least: (usize, f64), of: (usize, f64)| {
        // An equal cost must not win by rounding: ties go to the first branch, the one nearest to minimum remaining time.
        if of.1 < least.1 - ROUNDING * of.1.abs() { of } else { least }
    };
    numbers.enumerate().fold((0, f64::INFINITY), least).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: [bool; 3] = [false; 3];

    fn of_rounds(rounds: &[[f64; 3]]) -> Tally {
        let mut tally = Tally::new(3);
        rounds.iter().for_each(|costs| tally.note(costs, &IN));
        tally
    }

    #[test]
    fn most_wins_and_least_mean_may_be_different_branches() {
        // The first wins twice, and costs 12 the third time; the means are 14/3, 3 and 5.
        let tally = of_rounds(&[[1.0, 3.0, 5.0], [1.0, 3.0, 5.0], [12.0, 3.0, 5.0]]);
        assert_eq!((tally.best(&IN, Decide::Wins), tally.best(&IN, Decide::Mean)), (0, 1));
        assert_eq!(tally.best(&[true, false, false], Decide::Wins), 1);
    }

    #[test]
    fn rounds_of_two_decision_makers_add_up_to_those_of_one() {
        let all = [[1.0, 3.0, 5.0], [4.0, 2.0, 5.0], [1.0, 1.0, 0.5]];
        let mut sum = of_rounds(&all[..1]);
        assert!(sum.add(&of_rounds(&all[1..])));
        assert_eq!(sum, of_rounds(&all));
        // What is about other branches changes nothing.
        assert!(!sum.add(&Tally::new(2)));
        assert_eq!(sum, of_rounds(&all));
    }

    #[test]
    fn who_never_won_and_costs_a_twentieth_more_is_given_up() {
        let tally = of_rounds(&[[100.0, 104.0, 106.0], [100.0, 104.0, 106.0]]);
        let mut out = IN;
        tally.give_up(&mut out);
        assert_eq!(out, [false, false, true]);
        // A win is hope.
        let mut out = IN;
        of_rounds(&[[1.0, 2.0, 3.0], [9.0, 9.0, 8.0]]).give_up(&mut out);
        assert_eq!(out, [false, true, false]);
    }

    #[test]
    fn the_best_two_are_told_apart_by_their_errors() {
        // 4 wins to 0 are apart: 4 > 1.96 * 2. 3 to 0 are not: 3 < 1.96 * 1.74.
        let won = |rounds: usize| of_rounds(&vec![[1.0, 2.0, 3.0]; rounds]).is_clear(&IN, Decide::Wins);
        assert_eq!([won(3), won(4)], [false, true]);
        // Means 2 and 3, variances 1 each over 9 rounds: standard error of the difference 0.5 * 0.943 = 0.47 < 1 / 1.96.
        let spread: Vec<[f64; 3]> =
            (0..9).map(|round| f64::from(round % 3 - 1)).map(|off| [2.0 + off, 3.0 + off, 9.0]).collect();
        assert!(of_rounds(&spread).is_clear(&IN, Decide::Mean));
        assert!(!of_rounds(&spread[..3]).is_clear(&IN, Decide::Mean));
        assert!(of_rounds(&spread[..3]).is_clear(&[true, true, false], Decide::Mean));
    }
}

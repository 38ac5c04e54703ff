//! From values to places on an axis, and its ticks.

/// An axis of numbers, as shares of its length from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Where ticks are; of an axis of points, one at each.
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// Over values, from zero unless it is logarithmic. Zero is on no logarithmic axis: with one among the values, it is
    /// linear.
    pub(super) fn over(values: impl Iterator<Item = f64>, log: bool) -> Axis {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let highest = values.iter().copied().fold(0.0, f64::max);
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        if log && lowest > 0.0 && lowest.is_finite() {
            return Axis::logarithmic(lowest, highest);
        }
        let step = round_step(if highest > 0.0 { highest / 5.0 } else { 0.2 });
        let steps = (highest / step - 1e-9).ceil().max(1.0) as usize;
        let ticks = (0..=steps).map(|at| at as f64 * step).collect();
        Axis { low: 0.0, high: steps as f64 * step, log: false, ticks }
    }

    /// From the nearest 1, 2 or 5 times a power of ten below to that above.
    fn logarithmic(lowest: f64, highest: f64) -> Axis {
        let decades = lowest.log10().floor() as i32 - 1..=highest.log10().ceil() as i32 + 1;
        let round: Vec<f64> =
            decades.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power))).collect();
        let low = round.iter().copied().filter(|value| *value <= lowest * 1.000_001).fold(0.0, f64::max);
        let above = round.iter().copied().filter(|value| *value >= highest * 0.999_999 && *value > low);
        let high = above.fold(f64::INFINITY, f64::min);
        let whole = |value: f64| (value.log10() - value.log10().round()).abs() < 1e-9;
        let many = (high / low).log10() > 2.5;
        let ticks =
            round.into_iter().filter(|value| (low..=high).contains(value) && (!many || whole(*value)));
        Axis { low, high, log: true, ticks: ticks.collect() }
    }

    /// Over the places of points, a little wider than from the first to the last.
    pub(super) fn of_points(values: &[f64], log: bool) -> Axis {
        let (first, last) = (values.first().copied().unwrap_or(0.0), values.last().copied().unwrap_or(1.0));
        let (low, high) = if log {
            let wider = (last / first).max(2.0).powf(0.06);
            (first / wider, last * wider)
        } else {
            let wider = 0.06 * (last - first).max(1e-9);
            (first - wider, last + wider)
        };
        Axis { low, high, log, ticks: values.to_vec() }
    }

    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// The place of a value; what lies outside goes to the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }
}

/// 1, 2 or 5 times a power of ten, not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].into_iter().map(|digit| digit * power);
    steps.into_iter().find(|round| *round >= step * 0.999_999).unwrap_or(step)
}

/// A number as short as it can be.
pub(super) fn label(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 7) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

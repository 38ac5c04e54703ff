//! From values to places on a chart, and the ticks between.

/// A linear or logarithmic axis from `low` to `high`, drawn from `from` to `to` (pixels).
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// Linear from 0 to `high`; to 1 where that is no number above 0.
    pub(super) fn linear(high: f64, from: f64, to: f64) -> Scale {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        Scale { low: 0.0, high, from, to, log: false }
    }

    /// Logarithmic over whole powers of ten (halves of them where the range is short).
    pub(super) fn log(low: f64, high: f64, from: f64, to: f64) -> Scale {
        let low = if low > 0.0 && low.is_finite() { low } else { 1e-3 };
        let high = if high > low && high.is_finite() { high } else { low * 10.0 };
        let down = 10f64.powf(low.log10().floor());
        let up = 10f64.powf(high.log10().ceil());
        // Start at 2 or 5 where a whole power of ten would leave much empty.
        let low = [5.0, 2.0].into_iter().map(|step| step * down).find(|&start| start <= low).unwrap_or(down);
        let high = [0.2, 0.5].into_iter().map(|step| step * up).find(|&end| end >= high).unwrap_or(up);
        Scale { low, high, from, to, log: true }
    }

    /// Where a value goes; what lies outside goes to the edge.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    pub(super) fn low(&self) -> f64 {
        self.low
    }

    pub(super) fn high(&self) -> f64 {
        self.high
    }

    /// Values to mark, about `count` of them, and whether each gets a number.
    pub(super) fn ticks(&self, count: usize) -> Vec<(f64, bool)> {
        if self.log { self.log_ticks() } else { self.linear_ticks(count) }
    }

    fn linear_ticks(&self, count: usize) -> Vec<(f64, bool)> {
        let step = round_step(self.high / count.max(1) as f64);
        // A quotient that is whole may come out a little less, and the last tick would be lost.
        let last = (self.high / step + 1e-9) as usize;
        (0..=last).map(|index| (index as f64 * step, true)).collect()
    }

    fn log_ticks(&self) -> Vec<(f64, bool)> {
        let decades = (self.high / self.low).log10();
        let named: &[u32] = if decades <= 2.5 { &[1, 2, 5] } else { &[1] };
        let mut ticks = Vec::new();
        let first = self.low.log10().floor() as i32;
        for power in first..=self.high.log10().ceil() as i32 {
            for digit in 1..=9u32 {
                let value = f64::from(digit) * 10f64.powi(power);
                // Powers of ten are rounded: a tick at either end is not to be lost by that.
                if value >= self.low * 0.999 && value <= self.high * 1.001 {
                    ticks.push((value, named.contains(&digit)));
                }
            }
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, not below `step`.
pub(super) fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        // A step that is round but for rounding is not to become the next larger one.
        .find(|&round| round >= step * 0.999_999)
        .unwrap_or(step)
}

/// A number as short as it can be on an axis.
pub(super) fn label(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs();
    if !(1e-4..1e6).contains(&magnitude) {
        return format!("{value:e}");
    }
    let digits = (3 - magnitude.log10().floor() as i32).clamp(0, 7) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_axes_are_whole_or_start_at_two_or_five() {
        let scale = Scale::log(0.03, 700.0, 0.0, 100.0);
        assert!((scale.low() - 0.02).abs() < 1e-12 && (scale.high() - 1000.0).abs() < 1e-9);
        let named: Vec<_> =
            scale.ticks(5).into_iter().filter(|tick| tick.1).map(|tick| label(tick.0)).collect();
        assert_eq!(named, ["0.1", "1", "10", "100", "1000"]);
        assert_eq!((scale.at(0.0), scale.at(1e9)), (0.0, 100.0));
    }

    #[test]
    fn linear_ticks_are_round() {
        let values: Vec<_> =
            Scale::linear(4496.0, 0.0, 1.0).ticks(6).into_iter().map(|tick| tick.0).collect();
        assert_eq!(values, [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        assert_eq!(round_step(0.03), 0.05);
        assert_eq!(label(0.5), "0.5");
    }
}

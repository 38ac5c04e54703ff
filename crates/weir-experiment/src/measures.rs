//! Measures, as all kinds of experiments have them.

use std::collections::BTreeMap;

/// Measures of one policy at one point, by name; means over seeds.
pub type Measures = BTreeMap<String, f64>;

/// A measure: its name, what it is, and its unit; `ratio` where it has none.
pub(crate) type Described = (&'static str, &'static str, &'static str);

/// What stands for the unit of a measure that has none.
pub(crate) const RATIO: &str = "ratio";
/// What ends the name of half of a measure's confidence interval.
pub(crate) const INTERVAL: &str = " +-";

/// Measures of the probe of every point and policy, by `POINT, POLICY`.
pub type Probe = BTreeMap<String, Measures>;

//! Thresholds between priority levels: how small a flow has to be to overtake another one.
//!
//! A flow of unknown size (type 3) begins in the highest level and is demoted as it sends; one of known size (type 2)
//! goes where its size belongs at once. [`Traffic`] forecasts the mean completion time under given [`Thresholds`],
//! [`optimise`] finds good ones, [`pias`] has PIAS's, [`robustness`] tells what traffic costs that is not the
//! one the thresholds were made for. A level serves its flows in the order they came or all at once ([`Service`]).
//! Nothing here simulates: the forecasts are those of one queue in theory.

mod optimise;
mod paths;
mod published;
mod robustness;
mod shared;
#[cfg(test)]
mod tests;
mod theory;

pub use optimise::{MAX_LEVELS, Optimum, even_split, optimise};
pub use published::{PIAS_LOADS, pias};
pub use robustness::{Robustness, robustness};
pub use theory::{
    Forecast, LevelForecast, PacketTimes, Service, Thresholds, ThresholdsError, Traffic, TrafficError, Urgent,
};

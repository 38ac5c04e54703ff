//! Receivers against what they promise.

mod cuts;
mod patience;
mod peers;
mod refusals;
mod relayed;
mod resuming;
mod scene;

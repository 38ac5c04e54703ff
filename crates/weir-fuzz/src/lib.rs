//! What fuzzing runs: every decoder, and every state machine on sequences of whatever its peers may say.
//!
//! A sequence is read from the input step by step: a byte says what happens, numbers and messages follow. Messages are
//! protobuf, so that what is found can be put together by hand; `cargo run -p weir-fuzz --example seeds` writes sequences to begin with.

pub mod agent;
pub mod controller;
pub mod coordinator;
pub mod decoders;
pub mod input;
pub mod journal;
pub mod relay;
pub mod traces;

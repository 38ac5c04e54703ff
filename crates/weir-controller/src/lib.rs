//! The controller between sites: it tells relays which flows go first, and over which path (Siphon, USENIX ATC 2018,
//! sections 3 and 4).
//!
//! Server processes talk to relays and know what is open at them; decision makers put coflows in order. Both meet in a
//! [`store`], in one process or in Redis, which numbers everything and refuses what comes too late. Nothing
//! depends on the store keeping anything: servers tell it again what they know, and relays tell servers.
//!
//! - [`records`]: what servers tell the store, and what all of it comes to.
//! - [`decision`], [`maker`]: an order with its paths, and how rounds of simulation lead to one.
//! - [`server`]: what relays said, and which rules they are told.
//! - [`decider`]: the decision makers' process.
//!
//! Orders and splits are worked out in `weir-policy`; no bytes of flows come here.
#![forbid(unsafe_code)]

pub mod decider;
pub mod decision;
pub mod maker;
pub mod records;
pub mod server;
pub mod store;

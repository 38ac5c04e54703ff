//! Policies: who sends how fast, decided from (now, fabric, live coflows) alone.
//!
//! One copy of every policy serves simulator and coordinator. A [`Policy`] reads a [`CoflowTable`] and
//! writes a compact [`Plan`]; [`registry`] names the policies. What a sender decides alone is a
//! [`local::LocalRule`]; what happens where flows do not take what a plan gives them is in [`rules`]. The crate does no I/O, reads no clock and
//! moves no bytes: time passes when the host of the table says so ([`CoflowTable::advance`]).
#![forbid(unsafe_code)]

pub mod admit;
pub mod bits;
pub mod local;
pub mod order;
mod plan;
mod policy;
pub mod route;
pub mod rules;
pub mod share;
pub mod view;

#[cfg(any(test, feature = "laws"))]
pub mod laws;

pub use plan::{Detour, Form, Grant, Plan, Refusal, Share};
pub use policy::{
    Chosen, Claims, CoflowByCoflow, Parameter, ParameterKind, Policy, PolicyInfo, Routed, Settings,
    UnknownPolicy, add_policies, create, find, local_rule, registry,
};
pub use view::{Changes, Class, ClassId, Coflow, CoflowTable, Flow, FlowRef, Row, Slot};

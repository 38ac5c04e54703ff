//! The client against real agents, coordinators, relays and controllers in one process, over loopback, and against holders
//! played by hand. One binary: what daemons are made of takes long to compile, and each binary has it anew.

mod careless;
mod changed;
mod deadlines;
mod expected;
mod gathers;
mod holder;
mod late;
mod located;
mod loopback;
mod relays;
mod relays_chaos;
mod relays_controlled;
mod replicas;
mod support;

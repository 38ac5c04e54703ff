//! The tagger on real packets between hosts in network namespaces: they take root, and `ip` and `tc`. What is sent is compared
//! with the law of end hosts packet by packet, as the receiver's namespace sees it.

mod bounds;
mod capture;
mod gone;
mod hosts;
mod law;
mod others;
mod refusals;

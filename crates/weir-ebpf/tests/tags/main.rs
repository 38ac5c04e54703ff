//! The tagger on real packets between hosts in network namespaces: they take root, and `ip` and `tc`. What is sent is compared
//! with the law of end hosts packet by packet, as the receiver's namespace sees it. And the marker, on the ports of
//! their switch, and the congestion control of their connections.

mod bounds;
mod capture;
mod control;
mod deadlines;
mod gone;
mod hosts;
mod law;
mod marks;
mod others;
mod refusals;

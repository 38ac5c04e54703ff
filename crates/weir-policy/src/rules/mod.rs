//! What any policy's plan is combined with where flows do not do as it says.
//!
//! A [`crate::Policy`] decides as if every flow took the rate it is given. Where receivers read slowly, or hosts lose time, three rules
//! act on top of the plan, each a function of what is known, with no clock and no I/O, as policies are:
//!
//! * [`Offer`]: what one flow can use, judged by what it took of its rate. It is given no more than that.
//! * [`gifts`]: what limited flows leave goes to others that cross the same links.
//! * [`catch_up`]: a flow that fell behind goes up to [`CATCH_UP`] faster, so that its coflow does not end late for it.
//!
//! The coordinator runs [`gifts`], agents the other two. Where all flows take their rates, as in the fluid simulator, no rule changes a
//! rate: `gifts` has nothing to give, an offer no limit, and no flow is behind.

mod catch_up;
mod gifts;
mod offer;

pub use catch_up::{CATCH_UP, catch_up};
pub use gifts::{Gifts, Given, gifts};
pub use offer::{Judge, LIMITED, Offer};

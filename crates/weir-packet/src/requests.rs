//! What a flow asks of the ports on its way, and was given (D3, section 4).

use crate::packet::MAX_HOPS;
use crate::port::Given;
use weir_model::Rate;

/// A flow's side of its requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// What is asked for.
    pub(crate) asks: Rate,
    /// What each port on the way gave.
    pub(crate) given: [Given; MAX_HOPS],
    /// A request is under way.
    pub(crate) waits: bool,
    /// The flow was given up and ends as it is.
    pub(crate) stopped: bool,
}

impl Requests {
    /// Some port on the way counts the flow.
    pub(crate) fn is_counted(&self) -> bool {
        self.given.iter().any(|given| given.counted)
    }
    /// The least that was given on the way; nothing if the flow has given all back.
    pub(crate) fn least_given(&self) -> Option<Rate> {
        let rates = self.given.iter().filter(|given| given.counted).map(Given::rate);
        rates.min_by(|one, other| one.bytes_per_sec().total_cmp(&other.bytes_per_sec()))
    }
}

//! Outputs of one kind, for tests that look at no others.

use super::{Agent, JournalEntry, Output};
use crate::ids::FlowNumber;

impl Agent {
    /// Takes the first output out of which something can be made.
    fn pick<T>(&mut self, made: impl Fn(&Output) -> Option<T>) -> Option<T> {
        let at = self.outputs.iter().position(|output| made(output).is_some())?;
        made(&self.outputs.remove(at)?)
    }
    pub(crate) fn poll_journal(&mut self) -> Option<JournalEntry> {
        self.pick(|output| if let Output::Journal(entry) = output { Some(entry.clone()) } else { None })
    }
    pub(crate) fn poll_abort(&mut self) -> Option<FlowNumber> {
        self.pick(|output| if let Output::Abort(flow) = output { Some(*flow) } else { None })
    }
    pub(crate) fn poll_class(&mut self) -> Option<(FlowNumber, u8)> {
        self.pick(|output| if let Output::Class(flow, class) = output { Some((*flow, *class)) } else { None })
    }
    pub(crate) fn poll_discard(&mut self) -> Option<String> {
        self.pick(|output| if let Output::Discard(path) = output { Some(path.clone()) } else { None })
    }
    pub(crate) fn poll_notice(&mut self) -> Option<String> {
        self.pick(|output| if let Output::Notice(notice) = output { Some(notice.clone()) } else { None })
    }
    pub(crate) fn poll_suspect(&mut self) -> Option<FlowNumber> {
        self.suspects.pop_front()
    }
}

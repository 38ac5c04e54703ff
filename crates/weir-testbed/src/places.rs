//! The hosts of a bed, of either kind, and what runs there.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command};

use crate::error::BedError;
use crate::namespace::Namespace;
use crate::place::Place;
use crate::process::{self, Spawner};

/// A namespace for each place, and the thread that owns the processes inside. Dropping it kills them.
#[derive(Debug)]
pub(crate) struct Places {
    /// Hosts in order, then the control host.
    namespaces: Vec<Namespace>,
    spawner: Spawner,
}

impl Places {
    /// Of hosts in order, then the control host.
    pub(crate) fn new(namespaces: Vec<Namespace>) -> Result<Self, BedError> {
        debug_assert!(!namespaces.is_empty(), "there is a control host");
        let spawner = Spawner::start().map_err(BedError::os("start a thread"))?;
        Ok(Self { namespaces, spawner })
    }

    /// Number of hosts, the control host not counted.
    pub(crate) fn hosts(&self) -> usize {
        self.namespaces.len() - 1
    }

    /// Hosts in order, then the control host.
    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    pub(crate) fn namespace(&self, place: Place) -> Result<&Namespace, BedError> {
        let hosts = self.hosts();
        match place {
            Place::Host(host) if host < hosts => Ok(&self.namespaces[host]),
            Place::Host(host) => Err(BedError::NoSuchHost { host, hosts }),
            Place::Control => Ok(&self.namespaces[hosts]),
        }
    }

    /// # Panics
    /// If there is no such host.
    pub(crate) fn check(&self, host: usize) {
        let hosts = self.hosts();
        assert!(host < hosts, "the bed has {hosts} hosts, there is no host {host}");
    }

    pub(crate) fn command(&self, place: Place, program: &OsStr) -> Result<Command, BedError> {
        let namespace = self.namespace(place)?.reference();
        process::command_in(namespace, program).map_err(BedError::at(place, "prepare a command"))
    }

    pub(crate) fn spawn(&self, command: Command) -> io::Result<Child> {
        self.spawner.spawn(command)
    }

    pub(crate) fn run_at<T: Send>(
        &self,
        place: Place,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, BedError> {
        self.namespace(place)?.run(work).map_err(BedError::at(place, "run a thread"))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // While the files of namespaces are open: by their labels processes inside are found.
        let labels: Vec<Vec<u8>> = self.namespaces.iter().filter_map(|place| place.label().ok()).collect();
        process::kill_inside(&labels);
    }
}

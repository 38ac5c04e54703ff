//! Daemons of Weir and executors of Spark that are killed, or stopped for a while, one after the other.

use super::cluster::{Cluster, Kind, Member};
use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use weir_trace::synthetic::Draw;

/// What a fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Victims {
    /// Also where Spark moves the bytes alone: all others are Weir's
    Executors,
    Coordinator,
    Agents,
    /// With their controller
    Relays,
}

impl Victims {
    fn kind(self) -> Kind {
        match self {
            Victims::Executors => Kind::Executor,
            Victims::Coordinator => Kind::Coordinator,
            Victims::Agents => Kind::Agent,
            Victims::Relays => Kind::Relay,
        }
    }
}

/// What is dead or stopped.
struct Struck {
    member: Member,
    pid: Pid,
    stops: bool,
}

/// Which, and when, as a seed says. What a mode does not have is drawn all the same, and spared.
pub(super) struct Faults {
    kinds: Vec<Kind>,
    draw: Draw,
    struck: Option<Struck>,
    /// When what is struck is healed, or, while nothing is, the next fault comes.
    due: Instant,
    down: bool,
    /// How many there were.
    pub(super) count: u32,
}

impl Faults {
    /// The first is due at once.
    pub(super) fn new(victims: &[Victims], seed: u64) -> Faults {
        let kinds = victims.iter().map(|victims| victims.kind()).collect();
        Faults { kinds, draw: Draw::new(seed), struck: None, due: Instant::now(), down: false, count: 0 }
    }

    /// What is due: to be called every few hundredths of a second, from when an application has read something by what may fail.
    pub(super) fn go_on(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        if self.kinds.is_empty() || Instant::now() < self.due {
            return Ok(());
        }
        let milliseconds = if self.down {
            self.heal(cluster)?;
            self.draw.below(4_000)
        } else {
            self.strike(cluster)?;
            1_000 + self.draw.below(7_000)
        };
        self.down = !self.down;
        self.due = Instant::now() + Duration::from_millis(milliseconds);
        Ok(())
    }

    fn strike(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let kind = self.kinds[self.draw.below(self.kinds.len() as u64) as usize];
        // Drawn before the members are known: a seed gives the same draws, whatever runs at the
        // time.
        let (drawn, stops) = (self.draw.below(1 << 32), self.draw.below(2) == 0);
        let members = cluster.members(kind);
        if members.is_empty() {
            return Ok(());
        }
        let (member, pid) = members[(drawn % members.len() as u64) as usize];
        if !signal(pid, if stops { Signal::STOP } else { Signal::KILL })? {
            return Ok(());
        }
        self.struck = Some(Struck { member, pid, stops });
        self.count += 1;
        Ok(())
    }

    /// Has it go on, or starts it again.
    fn heal(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let Some(Struck { member, pid, stops }) = self.struck.take() else { return Ok(()) };
        if !stops {
            return cluster.restart(member);
        }
        // Spark may have ended an executor in the meantime.
        if cluster.members(member.kind).contains(&(member, pid)) {
            signal(pid, Signal::CONT)?;
        }
        Ok(())
    }

    /// Heals what was struck, and waits until agents serve.
    pub(super) fn end(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        self.heal(cluster)?;
        cluster.wait_for_agents()
    }
}

/// Whether the process was there to get it: executors end with their application.
fn signal(pid: Pid, signal: Signal) -> rustix::io::Result<bool> {
    match kill_process(pid, signal) {
        Err(Errno::SRCH) => Ok(false),
        result => result.map(|()| true),
    }
}

//! Daemons of Weir that are killed and started again, or stopped for a while, one after the other.

use super::cluster::Cluster;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};
use weir_trace::synthetic::Draw;

/// No fault comes sooner: Spark takes some seconds to begin.
const WARM_UP: Duration = Duration::from_secs(10);

/// A daemon that is dead or stopped.
struct Struck {
    number: usize,
    stops: bool,
    /// When it is started again, or goes on.
    heals: Instant,
}

/// Which daemons, and when, as a seed says.
pub(super) struct Faults {
    draw: Draw,
    struck: Option<Struck>,
    next: Instant,
    /// How many there were.
    pub(super) count: u32,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Faults {
        Faults { draw: Draw::new(seed), struck: None, next: Instant::now() + WARM_UP, count: 0 }
    }

    /// What is due: to be called every few hundredths of a second.
    pub(super) fn go_on(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        if self.struck.is_none() && Instant::now() > self.next {
            self.strike(cluster)?;
        }
        if let Some(due) = self.struck.take_if(|struck| Instant::now() > struck.heals) {
            heal(cluster, &due)?;
            self.next = Instant::now() + Duration::from_millis(self.draw.below(4_000));
        }
        Ok(())
    }

    /// The coordinator as often as all agents together.
    fn strike(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let agents = cluster.daemons().len() as u64 - 1;
        let number = (self.draw.below(2 * agents)).min(agents) as usize;
        let (stops, pid) = (self.draw.below(2) == 0, Pid::from_child(&cluster.daemons()[number]));
        kill_process(pid, if stops { Signal::STOP } else { Signal::KILL })?;
        let heals = Instant::now() + Duration::from_millis(1_000 + self.draw.below(7_000));
        self.struck = Some(Struck { number, stops, heals });
        self.count += 1;
        Ok(())
    }

    /// Everything runs again.
    pub(super) fn end(&mut self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let Some(struck) = self.struck.take() else { return Ok(()) };
        heal(cluster, &struck)?;
        cluster.wait_for_agents()
    }
}

/// Has it go on, or starts it again.
fn heal(cluster: &mut Cluster, struck: &Struck) -> anyhow::Result<()> {
    let pid = Pid::from_child(&cluster.daemons()[struck.number]);
    if struck.stops {
        return Ok(kill_process(pid, Signal::CONT)?);
    }
    cluster.daemons()[struck.number].wait()?;
    let daemon = cluster.start_daemon(struck.number)?;
    cluster.daemons()[struck.number] = daemon;
    Ok(())
}

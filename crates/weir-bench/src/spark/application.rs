//! An application of Spark that is submitted, and what it says.

use anyhow::{Context, anyhow};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No application is silent for longer before its end.
const SILENCE: Duration = Duration::from_secs(900);

/// An application to run.
pub(super) struct Application<'a> {
    /// Name that its logs have.
    pub(super) name: &'a str,
    pub(super) class: &'a str,
    pub(super) args: Vec<String>,
    /// Settings of Spark, as NAME=VALUE.
    pub(super) conf: Vec<String>,
}

/// An application that runs.
pub(super) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reading: JoinHandle<()>,
    log: PathBuf,
    /// How much it had said when it last said something, and when that was.
    spoke: (usize, Instant),
}

impl Running {
    /// Of a process whose output is piped.
    pub(super) fn of(mut child: Child, log: PathBuf) -> anyhow::Result<Running> {
        let out = child.stdout.take().context("the application's output")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&lines);
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Running { child, lines, reading, log, spoke: (0, Instant::now()) })
    }

    /// Whether it is over; one that says nothing for too long is ended, and has failed.
    pub(super) fn is_over(&mut self) -> anyhow::Result<bool> {
        if self.child.try_wait()?.is_some() {
            return Ok(true);
        }
        let heard = self.heard();
        if heard > self.spoke.0 {
            self.spoke = (heard, Instant::now());
        }
        if self.spoke.1.elapsed() > SILENCE {
            self.child.kill()?;
            return Err(anyhow!(
                "the application said nothing for {} s; its log is {}",
                SILENCE.as_secs(),
                self.log.display()
            ));
        }
        Ok(false)
    }

    /// What it said, line by line.
    pub(super) fn said(mut self) -> anyhow::Result<Vec<String>> {
        while !self.is_over()? {
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = self.child.wait()?;
        self.reading.join().map_err(|_| anyhow!("the application's output could not be read"))?;
        anyhow::ensure!(
            ended.success(),
            "the application failed ({ended}); its log is {}",
            self.log.display()
        );
        Ok(std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// How many lines it said so far.
    pub(super) fn heard(&self) -> usize {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

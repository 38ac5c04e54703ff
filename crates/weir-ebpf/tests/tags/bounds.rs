//! Flows longer than 32 bits of bytes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Result, anyhow, ensure};
use weir_ebpf::{Config, Tagger, Unhinted};

use crate::hosts::{SENDER, on_two_hosts, thresholds};

/// 1 MB beyond what 32 bits count.
const THRESHOLD: u64 = (1 << 32) + 1_000_000;
const CHUNK: usize = 1 << 20;
/// 127 MiB beyond the threshold.
const CHUNKS: usize = 4096 + 128;
/// The largest packet, and what TCP may have sent again.
const MORE: u64 = 64 << 20;

/// Over the loopback interface of a namespace, which is fast.
#[test]
fn flows_above_4_gib_fall_once_and_for_good() {
    on_two_hosts("4 GiB", |hosts| {
        hosts.run(SENDER, "ip", "link set dev lo up")?;
        let config = Config { best: 0, unhinted: Unhinted::Unknown, ..Config::new(thresholds(&[THRESHOLD])) };
        let tagger = hosts.at(SENDER, || Tagger::attach("lo", &config))??;
        hosts.at(SENDER, fill)??;
        let counters = tagger.counters()?;
        let [first, second, rest @ ..] = counters.classes;
        println!("{counters:?}");
        ensure!((THRESHOLD..THRESHOLD + MORE).contains(&first.bytes), "{counters:?}");
        let all = (CHUNKS * CHUNK) as u64;
        ensure!((all..all + MORE).contains(&(first.bytes + second.bytes)), "{counters:?}");
        ensure!(rest.iter().all(|class| class.packets == 0), "{counters:?}");
        Ok(())
    });
}

fn fill() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sending = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiving, _) = listener.accept()?;
    let reader = std::thread::spawn(move || -> Result<()> {
        let mut room = vec![0; CHUNK];
        for _ in 0..CHUNKS {
            receiving.read_exact(&mut room)?;
        }
        Ok(())
    });
    let chunk = vec![7; CHUNK];
    for _ in 0..CHUNKS {
        sending.write_all(&chunk)?;
    }
    reader.join().map_err(|_| anyhow!("the reader panicked"))?
}

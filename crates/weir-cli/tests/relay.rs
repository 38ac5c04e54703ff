//! `weir relay` as processes: three sites, two relays at one of them, a file of rules, and a relay that is killed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use support::process::{Process, refused, weir};
use weir_client::{Client, ClientConfig, GetOptions};
use weir_testbed::free_address;

#[test]
fn options_that_cannot_be_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nto = [{ relay = \"nowhere\" }]\n").unwrap();
    let rules = rules.to_str().unwrap();
    let relay = ["relay", "--name", "a", "--site", "0"];
    let local = [&relay[..], &["--listen", "127.0.0.1:0"]].concat();
    let said = refused(&[&local[..], &["--rules", rules]].concat());
    assert!(said.contains(rules) && said.contains("`nowhere`"), "{said}");
    assert!(refused(&[&local[..], &["--rules", "no-such-file"]].concat()).contains("no-such-file"));
    assert!(refused(&[&local[..], &["--connections", "0"]].concat()).contains("--connections"));
    for rate in ["fast", "oslo=1mbit", "1=0"] {
        assert!(refused(&[&local[..], &["--connection-rate", rate]].concat()).contains("--connection-rate"));
    }
    assert!(refused(&relay).contains("--advertise"), "nobody reaches 0.0.0.0");
    let agent = ["agent", "--host", "0", "--listen", "127.0.0.1:0", "--spool", "spool", "--site", "1"];
    assert!(refused(&agent).contains("--relay"), "a site without relays");
}

/// Relays and agents by name, and where the agent of site 0 serves.
struct Sites {
    processes: BTreeMap<String, Process>,
    holder: SocketAddr,
}

impl Sites {
    /// Relays a (site 0), b and c (site 1) and d (site 2), and a host at sites 0 and 2. All that leaves site 0 is
    /// divided between b and c.
    fn start(dir: &Path) -> Sites {
        let rules = dir.join("rules.toml");
        let relays = [("a", 0), ("b", 1), ("c", 1), ("d", 2)]
            .map(|(name, site)| (name, site, free_address().unwrap()));
        let listed = relays.map(|(name, site, address)| {
            format!("[[relay]]\nname = \"{name}\"\nsite = {site}\naddress = \"{address}\"\n")
        });
        let rule = "[[rule]]\nto = [{ relay = \"b\" }, { relay = \"c\" }]\n";
        std::fs::write(&rules, listed.concat() + rule).unwrap();
        let mut processes = BTreeMap::new();
        for (name, site, address) in relays {
            let mut command = weir(&["relay", "--name", name, "--site", &site.to_string()]);
            command.args(["--listen", &address.to_string()]);
            if name == "a" {
                command.arg("--rules").arg(&rules);
            }
            processes.insert(name.to_owned(), Process::spawn(&mut command));
        }
        let mut agent = |host: u32, relay: SocketAddr| {
            let (name, listen) = (host.to_string(), free_address().unwrap());
            let mut command = weir(&["agent", "--host", &name, "--site", &name]);
            command.args(["--listen", &listen.to_string(), "--relay", &relay.to_string(), "--spool"]);
            command.arg(dir.join(format!("spool-{host}")));
            processes.insert(format!("agent {host}"), Process::spawn(&mut command));
            listen
        };
        let holder = agent(0, relays[0].2);
        agent(2, relays[3].2);
        Sites { processes, holder }
    }
}

#[tokio::test]
async fn a_relay_that_is_killed_in_mid_flow_costs_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut sites = Sites::start(dir.path());
    let client = |host: u32| {
        let agent = Some(dir.path().join(format!("spool-{host}")).join("agent.sock"));
        Client::new(ClientConfig { coordinator: None, agent, host })
    };
    let bytes: Vec<u8> = (0..40_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client(0).put_bytes(1, "b", &bytes).await.unwrap();
    let time_limit = Duration::from_secs(60);
    let receiver = client(2);
    for victim in ["b", "d"] {
        let options = GetOptions { holders: vec![sites.holder], time_limit, ..GetOptions::default() };
        let mut reader = receiver.get(1, "b", options);
        let mut got = 0;
        while let Some(part) = reader.next().await.unwrap() {
            assert!(part == &bytes[got..][..part.len()], "wrong bytes at {got}");
            let before = got;
            got += part.len();
            if before < 5_000_000 && got >= 5_000_000 {
                sites.processes.remove(victim);
            }
        }
        assert_eq!(got, bytes.len());
    }
}

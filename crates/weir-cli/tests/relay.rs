//! `weir relay` as processes: three sites, two relays at one of them, a file of rules, and a relay that is killed.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use weir_client::{Client, ClientConfig, GetOptions};

/// The one line of a refusal.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{arguments:?}: {said}");
    said
}

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
    assert!(refused(&relay).contains("--advertise"), "nobody reaches 0.0.0.0");
    let agent = ["agent", "--host", "0", "--listen", "127.0.0.1:0", "--spool", "spool", "--site", "1"];
    assert!(refused(&agent).contains("--relay"), "a site without relays");
}

/// Processes that do not outlive this value.
struct Processes(Vec<(String, Child)>);

impl Processes {
    fn start(&mut self, name: &str, arguments: &[&str]) {
        let child = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).spawn().unwrap();
        self.0.push((name.to_owned(), child));
    }

    /// SIGKILL: the process has no say in it.
    fn kill(&mut self, name: &str) {
        let (_, child) = self.0.iter_mut().find(|(other, _)| other == name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Addresses of this process's own on loopback: no other test listens there.
fn address(number: u8) -> String {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    format!("127.{}.{low}.{number}:7072", 1 + high % 250)
}

/// Relays a (site 0), b and c (site 1) and d (site 2), and a host at sites 0 and 2. All that leaves site 0 is divided
/// between b and c.
fn start(dir: &Path) -> Processes {
    let rules = dir.join("rules.toml");
    let relays = [("a", 0), ("b", 1), ("c", 1), ("d", 2)];
    let listed = (1..).zip(relays).map(|(number, (name, site))| {
        format!("[[relay]]\nname = \"{name}\"\nsite = {site}\naddress = \"{}\"\n", address(number))
    });
    let rule = "[[rule]]\nto = [{ relay = \"b\" }, { relay = \"c\" }]\n";
    std::fs::write(&rules, listed.collect::<String>() + rule).unwrap();
    let mut processes = Processes(Vec::new());
    for (number, (name, site)) in (1..).zip(relays) {
        let (site, listen) = (site.to_string(), address(number));
        let mut arguments = vec!["relay", "--name", name, "--site", &site, "--listen", &listen];
        if name == "a" {
            arguments.extend(["--rules", rules.to_str().unwrap()]);
        }
        processes.start(name, &arguments);
    }
    for (host, relay) in [(0, 1), (2, 4)] {
        let (name, spool) = (host.to_string(), dir.join(format!("spool-{host}")));
        let (listen, relay) = (address(10 + host), address(relay));
        let agent = ["agent", "--host", &name, "--site", &name, "--listen", &listen, "--relay", &relay];
        processes.start("agent", &[&agent[..], &["--spool", spool.to_str().unwrap()]].concat());
    }
    processes
}

#[tokio::test]
async fn a_relay_that_is_killed_in_mid_flow_costs_no_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut processes = start(dir.path());
    let client = |host: u32| {
        let agent = Some(dir.path().join(format!("spool-{host}")).join("agent.sock"));
        Client::new(ClientConfig { coordinator: None, agent, host })
    };
    let bytes: Vec<u8> = (0..40_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    client(0).put_bytes(1, "b", &bytes).await.unwrap();
    let holder: SocketAddr = address(10).parse().unwrap();
    let time_limit = Duration::from_secs(60);
    let receiver = client(2);
    for victim in ["b", "d"] {
        let options = GetOptions { holders: vec![holder], time_limit, ..GetOptions::default() };
        let mut reader = receiver.get(1, "b", options);
        let mut got = 0;
        while let Some(part) = reader.next().await.unwrap() {
            assert!(part == &bytes[got..][..part.len()], "wrong bytes at {got}");
            let before = got;
            got += part.len();
            if before < 5_000_000 && got >= 5_000_000 {
                processes.kill(victim);
            }
        }
        assert_eq!(got, bytes.len());
    }
}

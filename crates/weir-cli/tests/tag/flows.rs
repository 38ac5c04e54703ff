//! `weir packet --live`: a scenario's flows by the simulator, and on a bed.

use super::{complaint, weir};
use std::path::Path;

/// Bytes per second of each link.
#[cfg(feature = "ebpf")]
const RATE: f64 = 50e6 / 8.0;
/// A shaped link lets this much time's worth of bytes pass at once after a pause.
#[cfg(feature = "ebpf")]
const BURST_S: f64 = 0.004;

#[cfg(feature = "ebpf")]
const SCENARIO: &str = r#"
name = "six-flows"
until = "1500ms"

[network]
topology = "single-switch"
hosts = 4
rate = "50mbit"
host_delay = "85us"
buffer = "1MB"
marking = "60kB"
rto = "200ms"

[[flow]]
source = 0
destination = 3
size = "500kB"
deadline = "700ms"

[[flow]]
source = 1
destination = 3
size = "1MB"

[[flow]]
source = 2
destination = 3
size = "300kB"
unknown = true
at = "100ms"

[[flow]]
source = 3
destination = 0
size = "700kB"

[[flow]]
source = 0
destination = 1
size = "1"
at = "300ms"

[[flow]]
source = 2
destination = 3
endless = true
unknown = true
at = "200ms"
"#;

#[cfg(feature = "ebpf")]
pub(super) fn moved() {
    let dir = tempfile::tempdir().unwrap();
    let [scenario, json] = ["scenario.toml", "out.json"].map(|name| dir.path().join(name));
    std::fs::write(&scenario, SCENARIO).unwrap();
    let names = ["tcp", "dctcp", "pias", "karuna", "cubic"];
    let output = weir(&[
        "packet",
        "--scenario",
        scenario.to_str().unwrap(),
        "--transport",
        &names[..4].join(","),
        "--live",
        &names.join(","),
        "--json",
        json.to_str().unwrap(),
    ]);
    if complaint(&output).contains("takes root") && std::env::var_os("CI").is_none() {
        return eprintln!("SKIPPED: {}", complaint(&output));
    }
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{said}{}", complaint(&output));
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 9);
    for name in names {
        let live = runs.iter().find(|run| run["transport"] == format!("{name} live")).unwrap();
        let summary = &live["summary"];
        assert_eq!((&summary["begun"], &summary["finished"]), (&6.into(), &5.into()), "{name}: {said}");
        assert!(summary["events"].is_null() && live["live"]["processors_busy"].as_f64().unwrap() > 0.0);
        let page = include_str!("../../../../docs/json.md");
        for field in live["live"].as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{field}`")), "{field} is not in docs/json.md");
        }
        for flow in live["flows"].as_array().unwrap() {
            let (bytes, took) = (flow["bytes"].as_f64().unwrap(), flow["fct_s"].as_f64().unwrap());
            // No flow is faster than its links.
            assert!(took > 0.0 && took >= bytes / RATE - BURST_S, "{name}: {flow}");
        }
    }
    // Those with queues and marks by Weir's programs have met some.
    let marked = |name: &str| {
        let run = runs.iter().find(|run| run["transport"] == format!("{name} live")).unwrap();
        run["summary"]["marked"].as_u64().unwrap()
    };
    assert!(["dctcp", "pias", "karuna"].map(marked).iter().all(|&marked| marked > 0), "{said}");
    assert_eq!(["tcp", "cubic"].map(marked), [0, 0]);
    assert!(said.contains("live over simulated"), "{said}");
    killed(&scenario);
}

/// A run that is killed while its flows move.
#[cfg(feature = "ebpf")]
fn killed(scenario: &Path) {
    use std::time::{Duration, Instant};
    let has = |name: &str| {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_tcp_congestion(name.as_bytes()).is_ok()
    };
    let wait = |there: bool| {
        let limit = Instant::now() + Duration::from_secs(20);
        while has("weir_karuna") != there {
            assert!(Instant::now() < limit, "20 s, and a control is there: {}", !there);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Also those of the run before went with its process.
    wait(false);
    assert!(!has("weir_dctcp"));
    let words = ["packet", "--transport", "tcp", "--live", "karuna", "--scenario"];
    let mut command = std::process::Command::new(super::WEIR);
    let mut run = command.args(words).arg(scenario).stdout(std::process::Stdio::null()).spawn().unwrap();
    wait(true);
    // SIGKILL.
    run.kill().unwrap();
    run.wait().unwrap();
    wait(false);
}

pub(super) fn refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/packets");
    for (file, live, said) in [
        ("leaf-spine.toml", "cubic", "one switch"),
        ("four-flows.toml", "tpc", "there are cubic"),
        ("four-flows.toml", "d3", "there are cubic"),
        ("four-flows.toml", "tcp:init=5", "bare name"),
    ] {
        let scenario = folder.join(file);
        let words =
            ["packet", "--scenario", scenario.to_str().unwrap(), "--transport", "tcp", "--live", live];
        let output = weir(&words);
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        assert!(output.stdout.is_empty() && complaint(&output).contains(said), "{}", complaint(&output));
    }
}

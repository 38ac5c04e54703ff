//! The slowest links that a scenario may have, with buffers larger than any: times of hours, and no sum that overflows.

use weir_packet::{FlowRecord, Picos, Scenario, Simulation, transport};

const SCENARIO: &str = r#"
name = "slowest"
until = "100s"

[network]
topology = "single-switch"
hosts = 4
rate = "1kbit"
buffer = "8GB"
link_delay = "0"
host_delay = "0"

[[flow]]
source = 0
destination = 1
size = "960"

[[flow]]
source = 2
destination = 3
endless = true
unknown = true
"#;

/// 960 bytes and 40 of headers over two links of 125 bytes per second: 16 s.
#[test]
fn flows_over_the_slowest_links_end_when_their_bits_are_through() {
    let scenario = Scenario::from_text(SCENARIO).expect("a scenario");
    let topology = scenario.topology().expect("a network");
    for name in ["tcp", "dctcp", "d2tcp", "d3", "pias", "pfabric", "karuna"] {
        let transport = transport::named(name).expect("a transport");
        let arrivals = scenario.arrivals().expect("flows");
        let mut simulation = Simulation::new(&topology, transport, scenario.network(&topology), arrivals);
        let mut records: Vec<FlowRecord> = Vec::new();
        simulation.run(scenario.until.expect("an end"), &mut |record| records.push(record));
        let [record] = &records[..] else { panic!("{name}: {records:?}") };
        let alone = Picos::from_secs(16.0);
        // Under D3 a flow asks for its rate first.
        assert!(record.finish == alone || name == "d3" && record.finish > alone, "{name}: {record:?}");
        assert_eq!(record.ideal, alone, "{name}");
        assert_eq!(simulation.unfinished().count(), 1, "{name}");
    }
}

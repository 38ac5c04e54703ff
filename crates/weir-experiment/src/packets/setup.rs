//! What a point says of its packets: a scenario, and what differs from it.

use super::coflows::CoflowTraffic;
use serde::{Deserialize, Serialize};
use std::path::Path;
use weir_model::{Bytes, Span};
use weir_packet::Scenario;
use weir_packet::scenario::ENDLESS;
use weir_trace::{FlowSizes, PoissonSpec};

/// Flows of a packet-level run: a scenario, and what differs from it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSetup {
    /// The scenario's file, seen from the folder of the experiment.
    pub scenario: Option<String>,
    /// How large flows are.
    pub sizes: Option<String>,
    /// Load of hosts' links.
    pub load: Option<f64>,
    /// Number of flows, if not the scenario's.
    pub flows: Option<u64>,
    /// Flows that are measured, by number in order of arrival, from one to before another; all unless said. Before them
    /// queues fill up, and a run ends when they are done: flows that arrive later keep its links busy until then.
    pub measured: Option<(u64, u64)>,
    /// Share of bytes with deadlines.
    pub deadline_bytes: Option<f64>,
    /// How large flows with deadlines are, if not as others.
    pub deadline_size: Option<String>,
    /// Deadlines are uniform between these.
    pub within: Option<(String, String)>,
    /// Share of the other flows whose size is known.
    pub known: Option<f64>,
    /// What switches have for each port.
    pub buffer: Option<String>,
    /// Coflows and flows with deadlines instead of the scenario's traffic.
    pub coflows: Option<CoflowTraffic>,
}

impl PacketSetup {
    /// These values, and where one is absent that of `base`.
    pub(crate) fn over(&self, base: Option<&PacketSetup>) -> PacketSetup {
        let Some(base) = base else { return self.clone() };
        PacketSetup {
            scenario: self.scenario.clone().or_else(|| base.scenario.clone()),
            sizes: self.sizes.clone().or_else(|| base.sizes.clone()),
            load: self.load.or(base.load),
            flows: self.flows.or(base.flows),
            measured: self.measured.or(base.measured),
            deadline_bytes: self.deadline_bytes.or(base.deadline_bytes),
            deadline_size: self.deadline_size.clone().or_else(|| base.deadline_size.clone()),
            within: self.within.clone().or_else(|| base.within.clone()),
            known: self.known.or(base.known),
            buffer: self.buffer.clone().or_else(|| base.buffer.clone()),
            coflows: self.coflows.clone().or_else(|| base.coflows.clone()),
        }
    }

    /// The scenario as this setup has it.
    pub(super) fn prepare(&self, folder: &Path, seed: u64) -> Result<Scenario, String> {
        let name = self.scenario.as_deref().ok_or("packets: it names no scenario")?;
        let path = folder.join(name);
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = weir_trace::read_text(&path).map_err(|error| failed(&error))?;
        let mut scenario = Scenario::from_text(&text).map_err(|error| failed(&error))?;
        if let Some(buffer) = &self.buffer {
            let size: Bytes = buffer.parse().map_err(|error| format!("packets: buffer: {error}"))?;
            scenario.buffer = weir_packet::Buffer::PerPort(size);
        }
        match &mut scenario.traffic {
            Some(traffic) => {
                self.change(traffic)?;
                traffic.seed = seed;
            }
            // Flows that are listed one by one have nothing to change, and no seed.
            None if self.changes_traffic() => {
                return Err(failed(&"it has no [traffic] that could be changed"));
            }
            None => {}
        }
        if let Some((first, end)) = self.measured {
            let flows = scenario.traffic.as_ref().map_or(0, |traffic| traffic.flows);
            if first >= end || end > flows || self.coflows.is_some() {
                return Err(format!(
                    "packets: measured = [{first}, {end}] has to be a part of the {flows} flows of [traffic]"
                ));
            }
        }
        Ok(scenario)
    }

    /// Something differs from the scenario's traffic.
    fn changes_traffic(&self) -> bool {
        let PacketSetup { sizes, load, flows, deadline_bytes, deadline_size, within, known, coflows, .. } =
            self;
        let texts = sizes.is_some() || deadline_size.is_some() || within.is_some() || coflows.is_some();
        texts || flows.is_some() || [load, deadline_bytes, known].iter().any(|number| number.is_some())
    }

    fn change(&self, traffic: &mut PoissonSpec) -> Result<(), String> {
        if let Some(sizes) = &self.sizes {
            traffic.sizes = FlowSizes::load(sizes).map_err(|error| format!("packets: sizes: {error}"))?;
        }
        traffic.load = self.load.unwrap_or(traffic.load);
        traffic.flows = self.flows.unwrap_or(traffic.flows);
        traffic.mix.deadline_bytes = self.deadline_bytes.unwrap_or(traffic.mix.deadline_bytes);
        if let Some(text) = &self.deadline_size {
            let failed = |error: &dyn std::fmt::Display| format!("packets: deadline_size: {error}");
            let size: Bytes = text.parse().map_err(|error| failed(&error))?;
            if size == Bytes(0) || size > ENDLESS {
                return Err(failed(&format!("`{text}` has to be above 0 and at most {ENDLESS}")));
            }
            traffic.mix.deadline_size = Some(size);
        }
        traffic.mix.known = self.known.unwrap_or(traffic.mix.known);
        if let Some((least, most)) = &self.within {
            let span =
                |text: &String| text.parse::<Span>().map_err(|error| format!("packets: within: {error}"));
            traffic.mix.within = (span(least)?, span(most)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(setup: &str, scenario: &str) -> Result<Scenario, String> {
        let mut setup: PacketSetup = toml::from_str(setup).expect("a setup");
        setup.scenario = Some(format!("../../scenarios/packets/{scenario}.toml"));
        setup.prepare(Path::new(env!("CARGO_MANIFEST_DIR")), 7)
    }

    #[test]
    fn a_setup_may_give_deadline_flows_a_size_of_their_own() {
        let own = r#"deadline_bytes = 0.1
            deadline_size = "80kB"
            within = ["5ms", "6ms"]"#;
        let traffic = prepare(own, "sixteen-hosts").unwrap().traffic.unwrap();
        assert_eq!((traffic.mix.deadline_size, traffic.seed), (Some(Bytes(80_000)), 7));
        let drawn = prepare("deadline_bytes = 0.1", "sixteen-hosts").unwrap().traffic.unwrap();
        assert_eq!(drawn.mix.deadline_size, None);
        for (text, reason) in [
            ("0", "`0` has to be above 0 and at most 4.4 TB"),
            ("7TB", "`7TB` has to be above 0 and at most 4.4 TB"),
            ("big", "`big` is not a size in bytes such as 4096, 10MB or 10MiB"),
        ] {
            let error = prepare(&format!("deadline_size = \"{text}\""), "sixteen-hosts").unwrap_err();
            assert_eq!(error, format!("packets: deadline_size: {reason}"));
        }
    }

    #[test]
    fn what_is_measured_is_a_part_of_the_flows() {
        for bad in ["[5, 5]", "[0, 601]", "[7, 6]"] {
            let own = format!("flows = 600\nmeasured = {bad}");
            let error = prepare(&own, "sixteen-hosts").unwrap_err();
            assert!(error.ends_with("has to be a part of the 600 flows of [traffic]"), "{error}");
        }
    }

    #[test]
    fn flows_listed_one_by_one_run_as_they_are_and_have_nothing_to_change() {
        assert_eq!(prepare("buffer = \"90kB\"", "four-flows").unwrap().flows.len(), 5);
        for change in ["load = 0.5", "flows = 3", "deadline_size = \"80kB\"", "sizes = \"web-search\""] {
            let error = prepare(change, "four-flows").unwrap_err();
            assert!(error.ends_with("four-flows.toml: it has no [traffic] that could be changed"), "{error}");
        }
    }
}

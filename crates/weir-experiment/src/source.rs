//! Where the coflows of an experiment come from: a file, or a generator that draws others for every seed.

use std::borrow::Cow;
use weir_model::CoflowSpec;
use weir_trace::synthetic::SyntheticError;
use weir_trace::{SYNTHETIC, Workload};

/// The workload of an experiment, for every seed.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    hosts: u32,
    /// Those of a file, or those that the generator draws by the seed 1.
    coflows: Vec<CoflowSpec>,
    /// Name of the generator with its parameters; none of a file, which is the same under every seed.
    generator: Option<String>,
}

impl Source {
    /// What a file has. It is the same under every seed.
    pub fn file(workload: Workload) -> Source {
        let (name, hosts) = (workload.name.clone(), workload.hosts);
        Source { name, hosts, coflows: workload.into_coflows(), generator: None }
    }

    /// A generator: `fb2010` with parameters, without `synthetic:` before it. Every seed draws a workload of its own.
    ///
    /// # Errors
    /// There is no such generator, or it has no such parameters.
    pub fn synthetic(generator: &str) -> Result<Source, SyntheticError> {
        let drawn = weir_trace::synthetic::generate(generator, 1)?;
        let named = Source::file(drawn);
        Ok(Source { generator: Some(generator.to_owned()), ..named })
    }

    /// What the workload is called in results.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of hosts, the same under every seed.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// Whether seeds draw different coflows.
    pub fn is_drawn(&self) -> bool {
        self.generator.is_some()
    }

    /// The coflows that a seed gives, by (arrival, id).
    ///
    /// # Errors
    /// The generator refuses, with its reason.
    pub fn coflows(&self, seed: u64) -> Result<Cow<'_, [CoflowSpec]>, String> {
        match &self.generator {
            Some(generator) if seed != 1 => {
                let drawn = weir_trace::synthetic::generate(generator, seed);
                let drawn = drawn.map_err(|error| format!("{SYNTHETIC}{generator}: {error}"))?;
                Ok(Cow::Owned(drawn.into_coflows()))
            }
            _ => Ok(Cow::Borrowed(&self.coflows)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_draws_a_synthetic_workload_of_its_own() {
        let source = Source::synthetic("fb2010,hosts=8,coflows=20,seconds=60").expect("a workload");
        let of = |seed| source.coflows(seed).expect("coflows").into_owned();
        assert_eq!((of(1).len(), of(2).len(), of(2) == of(2)), (20, 20, true));
        assert!(of(1) != of(2) && of(2) != of(3), "the seed has to reach the generator");
    }

    #[test]
    fn a_file_is_the_same_under_every_seed() {
        let drawn = weir_trace::synthetic::generate("fb2010,hosts=8,coflows=20,seconds=60", 7);
        let source = Source::file(drawn.expect("a workload"));
        assert!(!source.is_drawn());
        assert_eq!(source.coflows(1), source.coflows(2));
    }
}

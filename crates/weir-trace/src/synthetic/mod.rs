//! Seeded workloads made from published statistics.
//!
//! Everything is drawn from ChaCha8 and computed with additions, multiplications, divisions and square
//! roots alone, which IEEE 754 defines to the last bit: a seed gives the same bytes on every machine.

mod draw;
mod fb2010;

pub use draw::Draw;
pub use fb2010::Fb2010;

use crate::Workload;
use weir_model::SettingsForm;

/// What comes before the name of a synthetic workload.
pub const SYNTHETIC: &str = "synthetic:";

/// Names that may follow `synthetic:` where a trace is asked for.
pub const NAMES: [&str; 1] = ["fb2010"];

/// What is wrong with a name such as `fb2010,hosts=16,coflows=100,seconds=600`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// No synthetic workload has that name.
    #[error("unknown synthetic workload `{name}`; known: {}", NAMES.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// What stands behind the name are no parameters.
    #[error("in the name of a synthetic workload, {form}")]
    Form {
        /// What is wrong with them.
        form: SettingsForm,
    },
    /// A parameter is unknown, or its value is no whole number that makes sense.
    #[error("`{word}` in the name of a synthetic workload is not {expected}")]
    Parameter {
        /// The word at fault, as it was given.
        word: String,
        /// What it should be.
        expected: String,
    },
}

/// Makes the workload of that name (without `synthetic:`), with its parameters after commas:
/// `fb2010,hosts=16,coflows=100,seconds=600`.
///
/// # Errors
/// No synthetic workload has this name, or a parameter is unknown, given twice, or not a whole number from 1 to its
/// limit.
pub fn generate(name: &str, seed: u64) -> Result<Workload, SyntheticError> {
    let mut words = name.split(',');
    let plain = words.next().unwrap_or_default();
    if plain != NAMES[0] {
        return Err(SyntheticError::Unknown { name: plain.to_owned() });
    }
    let mut parameters = Fb2010 { seed, ..Fb2010::default() };
    let form = |form| SyntheticError::Form { form };
    for (key, value) in weir_model::settings(words).map_err(form)? {
        let wrong = |expected: &str| SyntheticError::Parameter {
            word: format!("{key}={value}"),
            expected: expected.to_owned(),
        };
        let whole = |limit: u64| {
            let value = value.parse::<u64>().ok().filter(|value| (1..=limit).contains(value));
            value.ok_or_else(|| wrong(&format!("a whole number from 1 to {limit}")))
        };
        match key {
            "hosts" => parameters.hosts = whole(1 << 20)? as u32,
            "coflows" => parameters.coflows = whole(1 << 24)? as usize,
            "seconds" => parameters.seconds = whole(1 << 32)?,
            _ => return Err(wrong("one of hosts, coflows, seconds")),
        }
    }
    let mut workload = parameters.generate();
    workload.name = format!("{}{name}", SYNTHETIC);
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_after_commas() {
        let workload = generate("fb2010,hosts=16,coflows=20,seconds=60", 3).unwrap();
        assert_eq!((workload.hosts, workload.jobs.len()), (16, 20));
        assert_eq!(workload.name, "synthetic:fb2010,hosts=16,coflows=20,seconds=60");
        for (name, expected) in [
            ("fb", "unknown synthetic workload `fb`; known: fb2010"),
            (
                "fb2010,racks=1",
                "`racks=1` in the name of a synthetic workload is not one of hosts, coflows, seconds",
            ),
            (
                "fb2010,hosts=0",
                "`hosts=0` in the name of a synthetic workload is not a whole number from 1 to 1048576",
            ),
            ("fb2010,hosts=4,hosts=5", "in the name of a synthetic workload, `hosts` is set twice"),
            (
                "fb2010,hosts",
                "in the name of a synthetic workload, `hosts` has no value; a setting is NAME=VALUE",
            ),
        ] {
            assert_eq!(generate(name, 1).unwrap_err().to_string(), expected);
        }
    }
}

//! Settings of policies, as in `dclas:first=250kB:sync=10ms`.

use super::{Policy, PolicyInfo, known_names, registry};
use crate::order::attained::{MAX_QUEUES, QueueSettings};
use weir_model::{Bytes, SettingsForm, Span, meant};

/// Bytes below which a size of a setting is taken for a slip: queues and thresholds are far above.
const LEAST_SIZE: u64 = 1000;
/// The setting of how often senders hear of what a coflow has sent.
pub(super) const SYNC: &str = "sync";

/// One thing about a policy that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the setting, as in `POLICY:NAME=VALUE`.
    pub name: &'static str,
    /// What values it takes.
    pub kind: ParameterKind,
    /// Its value unless set.
    pub default: &'static str,
    /// What it does, and where its default is from.
    pub about: &'static str,
}

/// What values a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A size above 0, as `10MB`.
    Size,
    /// A length of time, as `200ms`, `2s` or `0`.
    Time,
    /// A whole number from 1 to 1000.
    Count,
    /// A number above 1.
    Factor,
    /// A switch: `on` or `off`.
    Switch,
    /// One name out of a list.
    Choice {
        /// Names that it can be set to.
        of: &'static [&'static str],
        /// The names in words, for error messages.
        expected: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Size(f64),
    Time(Span),
    Count(u32),
    Factor(f64),
    Switch(bool),
    Choice(&'static str),
}

/// Values of all parameters of one policy.
#[derive(Clone, Debug, Default)]
pub struct Settings(Vec<(&'static str, Value)>);

/// A policy with its settings.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// What the registry says of the policy.
    pub info: &'static PolicyInfo,
    /// As it was chosen, with its settings.
    pub name: String,
    settings: Settings,
}

/// Why there is no such policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No policy has the name.
    #[error("unknown policy `{name}`; {}known: {}", meant(name, registry().iter().map(|info| info.name)), known_names())]
    Name {
        /// The name asked for.
        name: String,
    },
    /// The policy has no such parameter.
    #[error("policy `{policy}` has no setting `{setting}`; it has: {known}")]
    Setting {
        /// Name of the policy that was asked for.
        policy: &'static str,
        /// Name of the parameter that was to be set.
        setting: String,
        /// Names of its parameters.
        known: String,
    },
    /// What stands behind its name are no settings.
    #[error("policy `{policy}`: {form}")]
    Form {
        /// Name of the policy that was asked for.
        policy: &'static str,
        /// What is wrong with them.
        form: SettingsForm,
    },
    /// Settings that cannot be together.
    #[error("policy `{policy}`: {reason}")]
    Together {
        /// Name of the policy that was asked for.
        policy: &'static str,
        /// Why they cannot be together.
        reason: &'static str,
    },
    /// The parameter takes other values.
    #[error("policy `{policy}`: `{text}` is not {expected}")]
    Value {
        /// Name of the policy that was asked for.
        policy: &'static str,
        /// The setting as given.
        text: String,
        /// Values that the parameter takes, in words.
        expected: &'static str,
    },
}

impl ParameterKind {
    fn expected(self) -> &'static str {
        match self {
            ParameterKind::Size => "a size with its unit, at least 1 kB, such as 10MB",
            ParameterKind::Time => "a time such as 200ms or 2s, or 0",
            ParameterKind::Count => "a whole number from 1 to 1000",
            ParameterKind::Factor => "a number above 1",
            ParameterKind::Switch => "`on` or `off`",
            ParameterKind::Choice { expected, .. } => expected,
        }
    }

    fn read(self, text: &str) -> Option<Value> {
        match self {
            ParameterKind::Size => {
                // A number alone is more often meant in MB than in bytes, and would be taken without a word.
                let unit = text.ends_with(|last: char| !last.is_ascii_digit());
                let size = text.parse::<Bytes>().ok().filter(|size| unit && size.0 >= LEAST_SIZE)?;
                Some(Value::Size(size.0 as f64))
            }
            ParameterKind::Time => text.parse().ok().map(Value::Time),
            ParameterKind::Count => {
                text.parse().ok().filter(|count| (1..=MAX_QUEUES).contains(count)).map(Value::Count)
            }
            ParameterKind::Factor => text
                .parse()
                .ok()
                .filter(|factor: &f64| *factor > 1.0 && factor.is_finite())
                .map(Value::Factor),
            ParameterKind::Switch => match text {
                "on" => Some(Value::Switch(true)),
                "off" => Some(Value::Switch(false)),
                _ => None,
            },
            ParameterKind::Choice { of, .. } => {
                of.iter().copied().find(|name| *name == text).map(Value::Choice)
            }
        }
    }
}

impl Settings {
    /// All defaults of some parameters.
    pub(super) fn defaults(parameters: &'static [Parameter]) -> Settings {
        let value = |parameter: &Parameter| Some((parameter.name, parameter.kind.read(parameter.default)?));
        Settings(parameters.iter().filter_map(value).collect())
    }

    fn value(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// Bytes of a size.
    pub(super) fn bytes(&self, name: &str) -> f64 {
        if let Some(Value::Size(bytes)) = self.value(name) { bytes } else { f64::INFINITY }
    }

    /// A length of time.
    pub(super) fn span(&self, name: &str) -> Span {
        if let Some(Value::Time(span)) = self.value(name) { span } else { Span::ZERO }
    }

    /// A count, from 1 to 1000.
    pub(super) fn count(&self, name: &str) -> u32 {
        if let Some(Value::Count(count)) = self.value(name) { count } else { 1 }
    }

    /// Whether something is on.
    pub(super) fn switch(&self, name: &str) -> bool {
        matches!(self.value(name), Some(Value::Switch(true)))
    }

    /// The name that was chosen.
    pub(super) fn choice(&self, name: &str) -> &'static str {
        if let Some(Value::Choice(chosen)) = self.value(name) { chosen } else { "" }
    }

    /// The queues of D-CLAS.
    pub(super) fn queues(&self) -> QueueSettings {
        QueueSettings {
            queues: self.count("queues"),
            exponent: self.factor("exponent"),
            first_bytes: self.bytes("first"),
            sync_interval: self.span(SYNC),
        }
    }

    /// A factor, finite and above 1.
    pub(super) fn factor(&self, name: &str) -> f64 {
        if let Some(Value::Factor(factor)) = self.value(name) { factor } else { f64::INFINITY }
    }
}

impl Chosen {
    /// A fresh instance of the policy with these settings.
    pub fn create(&self) -> Box<dyn Policy> {
        (self.info.make)(&self.settings)
    }

    /// As [`Chosen::create`], for a coordinator of real hosts: it has the policy plan whenever it has heard something, by a clock that stands at
    /// no multiple of an interval. What it has heard counts at once; how often it hears is its own to say.
    pub fn create_for_coordinator(&self) -> Box<dyn Policy> {
        let mut settings = self.settings.clone();
        settings
            .0
            .iter_mut()
            .filter(|(name, value)| *name == SYNC && matches!(value, Value::Time(_)))
            .for_each(|(_, value)| *value = Value::Time(Span::ZERO));
        (self.info.make)(&settings)
    }

    /// How often senders hear of what a coflow has sent, where the policy has such a setting and it is not at once.
    pub fn sync_interval(&self) -> Option<Span> {
        self.settings.value(SYNC)?;
        Some(self.settings.span(SYNC)).filter(|interval| *interval > Span::ZERO)
    }

    /// The queues of a policy that senders decide by them; `None` where the coordinator decides.
    pub fn sender_queues(&self) -> Option<QueueSettings> {
        self.info.local.map(|_| self.settings.queues())
    }

    /// Reads `NAME` or `NAME:SETTING=VALUE[:...]`.
    pub(super) fn read(text: &str) -> Result<Chosen, UnknownPolicy> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let info = registry()
            .iter()
            .find(|info| info.name == name)
            .ok_or_else(|| UnknownPolicy::Name { name: name.to_owned() })?;
        let mut settings = Settings::defaults(info.parameters);
        let given = weir_model::settings(parts);
        for (key, value) in given.map_err(|form| UnknownPolicy::Form { policy: info.name, form })? {
            let at = info.parameters.iter().position(|parameter| parameter.name == key).ok_or_else(|| {
                let known: Vec<&str> = info.parameters.iter().map(|parameter| parameter.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                UnknownPolicy::Setting { policy: info.name, setting: key.to_owned(), known }
            })?;
            let kind = info.parameters[at].kind;
            settings.0[at].1 = kind.read(value).ok_or_else(|| UnknownPolicy::Value {
                policy: info.name,
                text: format!("{key}={value}"),
                expected: kind.expected(),
            })?;
        }
        let is_zero = |name| matches!(settings.value(name), Some(Value::Time(Span::ZERO)));
        if is_zero("T") && !is_zero("delta") && settings.value("delta").is_some() {
            let reason = "T=0 leaves no time in which coflows are served in order; take a T above 0, or another policy";
            return Err(UnknownPolicy::Together { policy: info.name, reason });
        }
        Ok(Chosen { info, name: text.to_owned(), settings })
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for info in registry() {
            for parameter in info.parameters {
                let value = parameter.kind.read(parameter.default);
                assert!(value.is_some(), "{}: {} = {}", info.name, parameter.name, parameter.default);
            }
        }
    }

    #[test]
    fn settings_are_read_and_wrong_ones_are_answered_with_what_would_be_right() {
        let chosen = find("dclas:first=250kB:sync=10ms").expect("a policy with settings");
        assert_eq!((chosen.settings.bytes("first"), chosen.settings.count("queues")), (250e3, 10));
        assert_eq!(chosen.settings.span("sync"), Span::from_millis(10));
        let error = |text: &str| find(text).expect_err("no such policy").to_string();
        assert_eq!(error("fifo:first=1MB"), "policy `fifo` has no setting `first`; it has: none");
        assert_eq!(
            error("dclas:sync=soon"),
            "policy `dclas`: `sync=soon` is not a time such as 200ms or 2s, or 0"
        );
        assert_eq!(
            error("dclas:queues=4000000000"),
            "policy `dclas`: `queues=4000000000` is not a whole number from 1 to 1000"
        );
        assert_eq!(error("dclas:exponent=1"), "policy `dclas`: `exponent=1` is not a number above 1");
        assert_eq!(error("varys:ancestry=no"), "policy `varys`: `ancestry=no` is not `on` or `off`");
        assert_eq!(error("varys:delta=1s:delta=2s"), "policy `varys`: `delta` is set twice");
        assert!(error("varys:T=0:delta=200ms").starts_with("policy `varys`: T=0 leaves no time"));
        assert!(find("varys:T=0").is_ok(), "without delta, T means nothing");
        let switched = |text: &str| find(text).expect("a policy").settings.switch("ancestry");
        assert_eq!((switched("varys"), switched("varys:ancestry=off")), (true, false));
    }
}

//! Numbers of scenario files: integers, decimals, and fractions in quotes.

use serde::{Deserialize, Deserializer, de};

/// A finite number of at least 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Number(pub(super) f64);

impl Number {
    /// Reads `3`, `0.5` or `8/3`.
    pub(super) fn parse(text: &str) -> Option<Number> {
        let plain = |text: &str| -> Option<f64> {
            let text = text.trim();
            // `parse` alone would accept signs, exponents, `inf` and `nan`.
            let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            text.parse().ok().filter(|_| digits)
        };
        let value = match text.split_once('/') {
            // Over 0 this is infinite or no number, and `checked` refuses both.
            Some((above, below)) => plain(above)? / plain(below)?,
            None => plain(text)?,
        };
        Number::checked(value)
    }

    fn checked(value: f64) -> Option<Number> {
        // Far beyond any case worked out by hand, and no sum overflows.
        (0.0..1e12).contains(&value).then_some(Number(value))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Number, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Number;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 0 to 10^12, or a fraction such as \"8/3\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Number, E> {
                self.visit_f64(value as f64)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Number, E> {
                Number::checked(value).ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
                Number::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A number, or the word `refused`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberOrRefused {
    Number(Number),
    Refused,
}

impl<'de> Deserialize<'de> for NumberOrRefused {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NumberOrRefused, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = NumberOrRefused;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number from 0 to 10^12, a fraction such as \"8/3\", or \"refused\"")
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<NumberOrRefused, E> {
                self.visit_f64(value as f64)
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<NumberOrRefused, E> {
                let number = Number::checked(value).map(NumberOrRefused::Number);
                number.ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<NumberOrRefused, E> {
                if text == "refused" {
                    return Ok(NumberOrRefused::Refused);
                }
                let number = Number::parse(text).map(NumberOrRefused::Number);
                number.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

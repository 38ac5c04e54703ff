//! Labels of hosts: `key=value`, said by agents and named by topologies.

/// Longest label in bytes of UTF-8.
pub const MAX_LABEL_BYTES: usize = 255;

/// Whether a text is a label; else why not.
///
/// # Errors
/// It has no key, is too long, or has control characters, spaces or commas, by which lists of labels are divided.
pub fn check(text: &str) -> Result<(), String> {
    let has_key = text.split_once('=').is_some_and(|(key, _)| !key.is_empty());
    let odd = |c: char| c == ',' || c.is_control() || c.is_whitespace();
    if has_key && text.len() <= MAX_LABEL_BYTES && !text.contains(odd) {
        return Ok(());
    }
    let shown: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
    Err(format!(
        "`{shown}` is no label; labels are KEY=VALUE, without spaces, commas and control characters, of {MAX_LABEL_BYTES} bytes at most"
    ))
}

#[cfg(test)]
mod tests {
    use super::{MAX_LABEL_BYTES, check};

    #[test]
    fn labels_have_a_key_and_no_spaces() {
        for good in ["a=b", "topology.kubernetes.io/rack=r1", "a=", "a=b=c", "räck=ö"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "a", "=b", "a b=c", "a=b\n", "a=b,c", "a=\u{1b}[2J", "\u{2028}a=b"] {
            assert!(check(bad).unwrap_err().contains("KEY=VALUE"), "{bad:?}");
        }
        assert!(check(&format!("a={}", "b".repeat(MAX_LABEL_BYTES))).is_err());
    }
}

//! Messages of the control planes by their names: how people read them.

use std::fmt::Debug;
use weir_proto::{Message, v1};

macro_rules! rendered {
    ($name:expr, $bytes:expr, $($message:ident)*) => {
        match $name {
            $(stringify!($message) => render(&decode::<v1::$message>($bytes)),)*
            other => panic!("{other}"),
        }
    };
}

pub(crate) fn decode<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap()
}

/// What a message says, without the fields that have their default.
pub(crate) fn rendered(name: &str, bytes: &[u8]) -> String {
    rendered!(
        name, bytes,
        RegisterRequest RegisterReply SealRequest SealReply UnregisterRequest UnregisterReply RenewRequest RenewReply
        AdmissionRequest AdmissionReply LocateRequest LocateReply LocateAllRequest LocateAllReply TermsRequest TermsReply
        PutRequest PutReply AgentMessage CoordinatorMessage FromRelay ToRelay
    )
}

fn render(message: &dyn Debug) -> String {
    const DEFAULTS: [&str; 8] =
        [": 0", ": 0.0", ": \"\"", ": []", ": false", ": None", ": Any", ": Undecided"];
    let pretty = format!("{message:#?}");
    let (mut words, mut lines) = (Vec::new(), pretty.lines().map(str::trim).peekable());
    while let Some(line) = lines.next() {
        let value = line.trim_end_matches(',');
        if value == ")" || DEFAULTS.iter().any(|default| value.ends_with(default)) {
            continue;
        }
        if value == "identity: [" {
            let bytes = lines.by_ref().map_while(|line| line.trim_end_matches(',').parse::<u8>().ok());
            let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            words.push(format!("identity: {digits},"));
            continue;
        }
        let word = match value.strip_suffix('(') {
            // A field and `Some`, or the name of a kind, which that of its message repeats.
            Some(opening) => match opening.rsplit_once(' ') {
                Some((field, _)) => field,
                None => Some(opening)
                    .filter(|kind| !lines.peek().is_some_and(|next| next.starts_with(kind)))
                    .unwrap_or(""),
            },
            None => line,
        };
        words.extend(Some(word.to_owned()).filter(|word| !word.is_empty()));
    }
    words.join(" ").replace(", }", " }").replace(", ]", " ]")
}

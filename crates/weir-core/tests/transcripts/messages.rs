//! Messages of the control planes by their names, and those of relays: how people read them.

use std::fmt::Debug;
use weir_proto::relay::{HEADER_BYTES, HELLO_BYTES, Header, Hello, Kind};
use weir_proto::{Message, v1};

/// What bytes say between relays, if they are whole messages there.
pub(crate) fn relayed(mut bytes: &[u8]) -> Option<String> {
    let mut said = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let header = Header::decode(head).ok()?;
        let (body, rest) = rest.split_at_checked(header.length as usize)?;
        let (kind, key, number) = (header.kind, header.key, header.number);
        said.push(match kind {
            Kind::Hello => {
                let hello = Hello::decode(body.first_chunk::<HELLO_BYTES>()?).ok()?;
                format!("Hello of a {}", format!("{:?}", hello.role).to_lowercase())
            }
            Kind::Data => format!("Data of flow {} at {number}, hop limit {}", key.mapper, header.hop_limit),
            _ => format!("{kind:?} of flow {}, {number}", key.mapper),
        });
        bytes = rest;
    }
    (bytes.is_empty() && !said.is_empty()).then(|| said.join("; "))
}

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
        RegisterRequest RegisterReply SealRequest SealReply ExpectRequest ExpectReply UnregisterRequest UnregisterReply RenewRequest RenewReply
        AdmissionRequest AdmissionReply LocateRequest LocateReply LocateAllRequest LocateAllReply TermsRequest TermsReply
        PutRequest PutReply AttachStoreRequest AttachStoreReply DetachStoreRequest DetachStoreReply AgentMessage CoordinatorMessage FromRelay ToRelay
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
        if let Some(field) = ["identity", "token"].into_iter().find(|field| value == format!("{field}: [")) {
            let bytes = lines.by_ref().map_while(|line| line.trim_end_matches(',').parse::<u8>().ok());
            let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            words.push(format!("{field}: {digits},"));
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

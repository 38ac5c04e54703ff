//! What Weir's processes say to each other: the control plane (gRPC, [`v1`]), the framing of the data
//! plane ([`data`]), that of relays between sites ([`relay`]) and the bounds of both ([`limits`]).
//!
//! This crate encodes and decodes. It opens no socket and keeps no state.
#![forbid(unsafe_code)]

pub mod data;
pub mod gather;
pub mod host;
pub mod limits;
pub mod relay;

/// Version 1 of the control plane, generated from `control.proto`, `status.proto` and `relay.proto` in `proto/weir/v1`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::allow_attributes,
    reason = "generated; documented in the .proto file"
)]
pub mod v1 {
    tonic::include_proto!("weir.v1");
}

pub use prost::Message;

/// Encodes a coflow note for an agent's journal.
pub fn encode_note(note: &v1::CoflowNote) -> Vec<u8> {
    prost::Message::encode_to_vec(note)
}

/// Decodes what [`encode_note`] wrote.
///
/// # Errors
/// The bytes are not a whole `weir.v1.CoflowNote` in protobuf.
pub fn decode_note(bytes: &[u8]) -> Result<v1::CoflowNote, prost::DecodeError> {
    prost::Message::decode(bytes)
}

//! Every decoder of bytes from a socket. What decodes encodes to the same again.

use weir_proto::data::{
    FRAME_HEADER_BYTES, FrameHeader, RESPONSE_BYTES, Request, Response, decode_nak, encode_nak,
};
use weir_proto::gather::GatherRequest;
use weir_proto::relay::{HEADER_BYTES, HELLO_BYTES, Header, Hello, OPEN_BYTES, Open, RelayPath};

fn front<const N: usize>(data: &[u8]) -> Option<&[u8; N]> {
    data.first_chunk()
}

/// Decodes the input as everything it may be.
pub fn run(data: &[u8]) {
    if let Ok(Some((gather, length))) = GatherRequest::decode(data) {
        assert!(length <= data.len());
        assert_eq!(GatherRequest::decode(&gather.encode()), Ok(Some((gather, length))));
    }
    if let Ok(Some((request, length))) = Request::decode(data) {
        assert!(length <= data.len());
        if Request::version(data) == Some(weir_proto::data::VERSION) {
            let again = request.encode();
            assert_eq!(Request::decode(&again).ok().flatten().map(|(request, _)| request), Some(request));
        }
    }
    if let Some(Ok(response)) = front::<RESPONSE_BYTES>(data).map(Response::decode) {
        assert_eq!(Response::decode(&response.encode()), Ok(response));
    }
    if let Some(Ok(header)) = front::<FRAME_HEADER_BYTES>(data).map(FrameHeader::decode) {
        assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
    }
    if let Some(Ok(header)) = front::<HEADER_BYTES>(data).map(Header::decode) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
    if let Some(Ok(hello)) = front::<HELLO_BYTES>(data).map(Hello::decode) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    if let Some(Ok(open)) = front::<OPEN_BYTES>(data).map(Open::decode) {
        assert_eq!(Open::decode(&open.encode()), Ok(open));
    }
    if let Some(Some(frame)) = decode_nak(data) {
        assert_eq!(decode_nak(&encode_nak(frame)), Some(Some(frame)));
    }
    let _ = RelayPath::decode(data);
    if let Ok(note) = weir_proto::decode_note(data) {
        let again = weir_proto::encode_note(&note);
        // A NaN is not equal to itself, so notes are compared as bytes.
        assert_eq!(weir_proto::decode_note(&again).map(|note| weir_proto::encode_note(&note)), Ok(again));
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<weir_model::Rate>();
        let _ = weir_policy::find(text);
        let _ = weir_daemon::relay::StaticRules::parse(text);
    }
}

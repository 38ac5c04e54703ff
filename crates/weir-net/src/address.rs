//! Where a process listens, as people write it: an IP address or a host's name, and a port.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Longest address in bytes: a host's name has at most 253.
const MAX_BYTES: usize = 260;

/// An IP address or a host's name, and a port. A name is looked up anew whenever a connection begins, so that a host may
/// move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an address; write HOST:PORT, as 10.0.0.1:7070, [fd00::1]:7070 or coordinator.example:7070"
)]
pub struct AddressError(String);

impl Address {
    /// The address as text, as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Looks the name up, which may take a while. The first address counts.
    ///
    /// # Errors
    /// The name cannot be looked up, or has no address.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let none = || io::Error::new(io::ErrorKind::NotFound, format!("{self} has no address"));
        self.0.to_socket_addrs()?.next().ok_or_else(none)
    }

    /// The address, if it was written as numbers.
    pub fn numeric(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }

    /// Whether it is an address at which no peer can be reached, as 0.0.0.0.
    pub fn is_unspecified(&self) -> bool {
        self.numeric().is_some_and(|address| address.ip().is_unspecified() || address.port() == 0)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError(text.chars().take(MAX_BYTES).collect());
        if text.parse::<SocketAddr>().is_ok() {
            return Ok(Address(text.to_owned()));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let name = |part: char| part.is_ascii_alphanumeric() || matches!(part, '-' | '.' | '_');
        // What looks like numbers is a mistyped IP address and no name.
        let is_name = host.chars().all(name) && host.chars().any(|part| part.is_ascii_alphabetic());
        if !is_name || text.len() > MAX_BYTES || port.parse::<u16>().is_err() {
            return Err(error());
        }
        Ok(Address(text.to_owned()))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address(address.to_string())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_addresses_and_mistakes_are_not() {
        for good in ["10.0.0.1:7070", "[::1]:80", "coordinator:7070", "a-b.example.org:1"] {
            assert_eq!(good.parse::<Address>().unwrap().as_str(), good);
        }
        let long = format!("{}:1", "a".repeat(300));
        for bad in
            ["", ":1", "coordinator", "host:", "host:70000", "10.0.0.256:1", "a b:1", "::1", long.as_str()]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_looked_up() {
        let address: Address = "localhost:7070".parse().unwrap();
        assert!(address.resolve().unwrap().ip().is_loopback());
        assert!(
            !address.is_unspecified() && Address::from(SocketAddr::from(([0, 0, 0, 0], 1))).is_unspecified()
        );
    }
}

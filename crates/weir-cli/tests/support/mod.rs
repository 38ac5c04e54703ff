//! What several tests of the command line need: processes, a Redis, links, seeded choices, rounds.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]
#![expect(dead_code, reason = "each test uses a part")]

pub(crate) mod chance;
pub(crate) mod hanging_disk;
pub(crate) mod http;
pub(crate) mod lost_disk;
pub(crate) mod process;
#[path = "../../../weir-client/tests/all/support/proxy.rs"]
pub(crate) mod proxy;
#[path = "../../../weir-controller/tests/support/redis.rs"]
pub(crate) mod redis;
pub(crate) mod small_disk;
pub(crate) mod verdict;

/// A number from the environment, or what holds if that does not say.
pub(crate) fn setting(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

//! Named bounds. Reaching one is an error to the caller or a counted, defined event, never a crash.

/// Longest encoded message in bytes between clients, agents and coordinator; gRPC refuses longer ones. What takes longer is
/// said in several, see [`MAX_PORTION_BYTES`].
pub const MAX_CONTROL_MESSAGE_BYTES: usize = 4 << 20;
/// Longest encoded message in bytes between relays and controllers.
pub const MAX_RELAY_MESSAGE_BYTES: usize = 64 << 20;
/// Longest encoded `Put` in bytes: it has the checksums of all frames of a block.
pub const MAX_PUT_BYTES: usize = 64 << 20;
/// A list that takes more bytes goes on in the next message.
pub const MAX_PORTION_BYTES: usize = 1 << 20;
/// Most entries of all lists in one message of an agent: its session ends with a longer one. Agents say far fewer.
pub const MAX_ENTRIES_RECEIVED: usize = 65_536;
/// Most bytes of one agent's messages that wait for the coordinator, so that others are heard between them; a longer
/// message waits alone.
pub const MAX_SESSION_QUEUED_BYTES: usize = 256 << 10;
/// Longest block name in bytes of UTF-8.
pub const MAX_BLOCK_NAME_BYTES: usize = 255;
/// Longest name of an application, and of an executor, in bytes of UTF-8.
pub const MAX_STORE_NAME_BYTES: usize = 255;
/// Most ranges of one gather; a receiver that wants more asks twice.
pub const MAX_GATHERED_RANGES: usize = 1_024;
/// Most stores of executors at one agent; a further one is refused.
pub const MAX_STORES_PER_AGENT: usize = 10_000;
/// Most directories of one store.
pub const MAX_STORE_DIRECTORIES: usize = 64;
/// Most files that one agent holds open for gathers, or a quarter of its descriptors; a further gather is told that the agent is
/// busy.
pub const MAX_GATHERED_FILES: usize = 16_384;
/// Most coflows a coordinator keeps live; a further `register` is refused.
pub const MAX_LIVE_COFLOWS: usize = 100_000;
/// Most blocks one agent keeps; a further `put` is refused.
pub const MAX_BLOCKS_PER_AGENT: usize = 1_000_000;
/// Most data-plane connections one agent serves; a further one is told so and closed.
pub const MAX_DATA_CONNECTIONS: usize = 16_384;
/// Most live coflows that a status lists.
pub const MAX_COFLOWS_SHOWN: usize = 10_000;
/// Most control connections of one process; a further one is closed.
pub const MAX_CONTROL_CONNECTIONS: usize = 16_384;
/// Most live flows a coordinator schedules; further ones move at TCP's share.
pub const MAX_LIVE_FLOWS: usize = 1_000_000;
/// Most messages that wait for one agent's session; an agent that lags further is disconnected and
/// starts again with a complete plan.
pub const MAX_QUEUED_MESSAGES: usize = 4_096;
/// Most events in one message of an agent.
pub const MAX_EVENTS_PER_MESSAGE: usize = 4_096;
/// Completed coflows remembered for `status`.
pub const MAX_COMPLETED_RECORDS: usize = 10_000;
/// Ranges of ids of ended coflows that agents remember, and coordinators of coflows that other processes registered, so
/// that latecomers are told so. Ids between two live coflows are one range, so this is far beyond
/// [`MAX_LIVE_COFLOWS`]; at the bound the lowest ranges are forgotten. A coordinator forgets none of its own.
pub const MAX_ENDED_RANGES: usize = 200_000;
/// Ranges of ids that were unregistered though no agent has told of their coflows: of earlier processes and of hosts that
/// are away, or never given by any coordinator. A further one is not remembered; should its coflow come, it ends with its lease.
pub const MAX_UNSEEN_ENDS: usize = 65_536;
/// Most hosts without a session that a status lists.
pub const MAX_HOSTS_AWAY_SHOWN: usize = 1_000;
/// Most hosts of an open network; a further one is refused.
pub const MAX_HOSTS: u32 = 10_000;
/// Numbers of hosts are below this.
pub const MAX_HOST_NUMBER: u32 = 1 << 24;
/// Longest name of a host in bytes of UTF-8.
pub const MAX_HOST_NAME_BYTES: usize = 255;
/// Most hosts that drivers expect bytes from, coflow by coflow, all coflows together.
pub const MAX_EXPECTED: usize = 1_000_000;
/// Most labels of a host.
pub const MAX_LABELS: usize = 32;
/// Longest name of a coflow, a tenant or an address in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 1_024;
/// Longest path of a file in bytes.
pub const MAX_PATH_BYTES: usize = 4_096;
/// Most parents of a coflow, and most coflows in one `Renew` call.
pub const MAX_COFLOWS_PER_CALL: usize = 1_000;
/// Most settings in one `Change` call.
pub const MAX_SETTINGS_PER_CALL: usize = 100;
/// Largest block in bytes, 8 TiB: the sizes of as many flows as may live still sum up in 64 bits.
pub const MAX_BLOCK_BYTES: u64 = 1 << 43;
/// Longest deadline of a coflow in milliseconds, 365 days.
pub const MAX_DEADLINE_MS: u64 = 365 * 86_400_000;
/// Shortest lease of a coflow in milliseconds: clients renew at a third of it, once a second at most. A coordinator takes
/// no silence of a second and less for that of others, see `weir_core::coordinator`.
pub const MIN_COFLOW_LEASE_MS: u64 = 3_000;
/// Longest lease of a coflow in milliseconds, 7 days.
pub const MAX_COFLOW_LEASE_MS: u64 = 7 * 86_400_000;
/// Most notes, blocks, flows or ranges in one message of a Hello or of the coordinator.
pub const MAX_ENTRIES_PER_MESSAGE: usize = 4_096;
/// Most bytes of messages of agents that wait for the coordinator; their sessions wait beyond that.
pub const MAX_QUEUED_BYTES: usize = 64 << 20;
/// Most `Locate` calls that wait at a coordinator; a further one is answered at once, without holders.
pub const MAX_WAITING_LOCATES: usize = 200_000;
/// Most blocks that one `LocateAll` asks for.
pub const MAX_LOCATES_PER_CALL: usize = 1_000;
/// Files that agents were asked to put, and did not answer for yet.
pub const MAX_WAITING_OFFERS: usize = 1_000;
/// The same of one agent.
pub const MAX_OFFERS_PER_AGENT: usize = 64;
/// Blocks in one answer to a list of them.
pub const MAX_BLOCKS_LISTED: usize = 1_000;
/// Holders of each of them.
pub const MAX_HOLDERS_LISTED: usize = 16;
/// Blocks for which a coordinator remembers whom it told of which holder; told beyond that, it forgets at once.
pub const MAX_PROMISED_BLOCKS: usize = 10_000;
/// Most `AwaitAdmission` calls that wait at a coordinator; a further one is answered at once, undecided.
pub const MAX_WAITING_ADMISSIONS: usize = 100_000;
/// Longest time in milliseconds that `Locate` or `AwaitAdmission` waits.
pub const MAX_LOCATE_WAIT_MS: u64 = 600_000;
/// Most rules a relay keeps; further ones are dropped and counted, and their flows go by shorter prefixes.
pub const MAX_RULES_PER_RELAY: usize = 100_000;
/// Most flows open at one relay; a further one is reset, and its receiver asks the sender's agent directly.
pub const MAX_FLOWS_PER_RELAY: usize = 16_384;
/// Most bytes of all flows that wait at one relay; beyond, the flow that went on least recently is reset, and its
/// receiver asks again.
pub const MAX_RELAY_HELD_BYTES: u64 = 1 << 30;
/// Most neighbours one relay sends to; a flow that needs a further one is reset.
pub const MAX_NEXT_HOPS: usize = 256;
/// Most connections of hosts, receivers and other relays at one relay; a further one is closed.
pub const MAX_RELAY_CONNECTIONS: usize = 32_768;
/// Most receivers that wait at a relay for a flow that has not come; a further one is told so.
pub const MAX_WAITING_RECEIVERS: usize = 16_384;

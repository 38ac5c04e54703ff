//! The laws of MCP and DCTCP in the kernel's arithmetic are those of weir-endhost and weir-packet, window by window.

mod kernel;
mod made;
mod recorded;

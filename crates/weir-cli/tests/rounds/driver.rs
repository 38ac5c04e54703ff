//! A driver: a child process that registers coflows and lives, so that its client renews their leases.

use super::plan::Plan;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use std::net::SocketAddr;
use weir_client::{Client, ClientConfig};

/// Environment variable that holds the driver's [`Orders`].
pub(crate) const ORDERS: &str = "WEIR_CHAOS_DRIVER_ORDERS";
/// Name of the test that is the driver's entry.
pub(crate) const ENTRY: &str = "driver_process";

/// What a driver is to do: register those coflows of a seed's plan that it is to have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) seed: u64,
    pub(crate) coordinator: SocketAddr,
}

/// What a driver says, once: its coflows, in the plan's order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Registered {
    pub(crate) coflows: Vec<u64>,
}

/// Serves the orders, then lives until standard input is closed.
pub(crate) fn run(orders: &str) {
    let orders: Orders = serde_json::from_str(orders).unwrap();
    let plan = Plan::draw(orders.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let coordinator = Some(orders.coordinator.into());
        let client = Client::new(ClientConfig { coordinator, agent: None, host: 0 });
        let mut coflows = Vec::new();
        for index in (0..plan.coflows.len()).filter(|&index| plan.coflows[index].apart) {
            coflows.push(client.register(plan.options(index)).await.unwrap());
        }
        println!("{}", serde_json::to_string(&Registered { coflows }).unwrap());
        let closed = tokio::task::spawn_blocking(|| io::stdin().read(&mut [0]));
        let _ = closed.await;
    });
    std::process::exit(0);
}

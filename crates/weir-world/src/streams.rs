//! Streams between relays and controllers: in order both ways, until they are cut or fall silent.

use crate::events::Event;
use crate::world::World;
use rand::RngExt;
use weir_controller::server::SessionId;
use weir_model::{Span, Time};
use weir_proto::v1;

/// A controller that says nothing for so long is left, until it has said how long its leases are.
const FIRST_LEASE: Span = Span::from_millis(10_000);
/// A controller is left once it was silent for so many leases.
const SILENT_LEASES: u64 = 3;
/// How often a relay looks whether its controller is silent.
const LOOK_INTERVAL: Span = Span::from_millis(500);
/// Until a server has found out that a relay's machine is gone.
const PROBES_MS: (u64, u64) = (5_000, 10_000);

/// A stream of a relay.
pub(crate) struct Stream {
    relay: u32,
    pub(crate) server: usize,
    server_life: u64,
    is_cut: bool,
    up: Time,
    down: Time,
    /// When the relay heard something last, and how long it waits for more.
    heard: Time,
    patience: Span,
}

impl World {
    /// A relay without a controller tries to get one.
    pub(crate) fn attach(&mut self, relay: u32) {
        let side = &self.relays[relay as usize];
        if side.core.is_none() || side.stream.is_some() {
            return;
        }
        let server = self.rng.random_range(0..self.controllers.servers.len());
        let to = &self.controllers.servers[server];
        if to.core.is_none() {
            return self.attach_later(relay);
        }
        let (now, server_life, id) = (self.now, to.life, self.number());
        let stream = Stream {
            relay,
            server,
            server_life,
            is_cut: false,
            up: now,
            down: now,
            heard: now,
            patience: FIRST_LEASE,
        };
        self.controllers.streams.insert(id, stream);
        let side = &mut self.relays[relay as usize];
        side.stream = Some(id);
        if let Some(core) = &mut side.core {
            core.handle_session_up();
        }
        self.later(LOOK_INTERVAL, Event::ListensFor { stream: id });
        self.settle_relay(relay);
    }

    pub(crate) fn attach_later(&mut self, relay: u32) {
        let after = self.millis(20, 120);
        self.later(after, Event::Attach { relay });
    }

    /// A relay tells its controller something.
    pub(crate) fn say_to_controller(&mut self, relay: u32, message: v1::FromRelay) {
        let Some(id) = self.relays[relay as usize].stream else { return };
        let at = self.now + self.delay();
        if let Some(stream) = self.controllers.streams.get_mut(&id) {
            // A stream keeps its order: nothing comes before what was said earlier.
            stream.up = stream.up.max(at);
            self.queue.push(stream.up, Event::Reported { stream: id, message: Box::new(message) });
        }
    }

    /// A controller tells a relay something.
    pub(crate) fn say_to_relay(&mut self, id: u64, message: v1::ToRelay) {
        let at = self.now + self.delay();
        if let Some(stream) = self.controllers.streams.get_mut(&id) {
            stream.down = stream.down.max(at);
            self.queue.push(stream.down, Event::Ruled { stream: id, message: Box::new(message) });
        }
    }

    pub(crate) fn hear_relay(&mut self, id: u64, message: &v1::FromRelay) {
        let at = self.now;
        let Some(stream) = self.controllers.streams.get(&id).filter(|stream| !stream.is_cut) else { return };
        let (server, relay) = (stream.server, stream.relay);
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        let Some(core) = side.core.as_mut().filter(|_| side.life == stream.server_life) else { return };
        self.report.messages += 1;
        if let Some(v1::from_relay::Kind::Hello(hello)) = &message.kind {
            match core.handle_hello(now, SessionId(id), hello) {
                Ok(older) => _ = older.map(|older| self.cut_stream(older.0)),
                Err(error) => self.violate(format!("relay {relay} is refused: {error}")),
            }
        } else {
            core.handle_message(now, SessionId(id), message);
        }
        self.settle_server(server);
    }

    pub(crate) fn hear_controller(&mut self, id: u64, message: &v1::ToRelay) {
        let now = self.now;
        let Some(stream) = self.controllers.streams.get_mut(&id).filter(|stream| !stream.is_cut) else {
            return;
        };
        let relay = stream.relay;
        if self.relays[relay as usize].stream != Some(id) {
            return;
        }
        stream.heard = now;
        if let Some(v1::to_relay::Kind::Keepalive(keepalive)) = &message.kind {
            stream.patience = FIRST_LEASE.min(Span::from_millis(keepalive.lease_ms * SILENT_LEASES));
        }
        self.report.messages += 1;
        let stale = |world: &World| {
            world.relays[relay as usize].core.as_ref().map(|core| core.counters().stale_rules)
        };
        let before = stale(self);
        self.tell_relay(relay, message);
        if stale(self) != before {
            self.violate(format!("relay {relay}: numbers of rules do not grow in a session"));
        }
        self.settle_relay(relay);
    }

    /// A relay looks whether its controller is silent.
    pub(crate) fn listen_for(&mut self, id: u64) {
        let Some(stream) = self.controllers.streams.get(&id) else { return };
        if self.relays[stream.relay as usize].stream != Some(id) {
            return;
        }
        if self.now.since(stream.heard) > stream.patience {
            self.relay_leaves(id);
        } else {
            self.later(LOOK_INTERVAL, Event::ListensFor { stream: id });
        }
    }

    /// A relay's stream is over. Its server hears so later.
    pub(crate) fn relay_leaves(&mut self, id: u64) {
        let Some(relay) = self.controllers.streams.get(&id).map(|stream| stream.relay) else { return };
        let side = &mut self.relays[relay as usize];
        if side.stream != Some(id) {
            return;
        }
        side.stream = None;
        if let Some(core) = &mut side.core {
            core.handle_session_lost();
        }
        let after = self.notice();
        self.later(after, Event::ServerLoses { stream: id });
        self.attach_later(relay);
        self.settle_relay(relay);
    }

    pub(crate) fn server_loses(&mut self, id: u64) {
        let at = self.now;
        let Some(stream) = self.controllers.streams.get(&id) else { return };
        let (server, life) = (stream.server, stream.server_life);
        let side = &mut self.controllers.servers[server];
        let now = side.now(at);
        if let Some(core) = side.core.as_mut().filter(|_| side.life == life) {
            core.handle_lost(now, SessionId(id));
            self.settle_server(server);
        }
    }

    /// The process of a relay is gone, or, silently, its machine.
    pub(crate) fn drop_stream(&mut self, relay: u32, is_silent: bool) {
        let Some(id) = self.relays[relay as usize].stream.take() else { return };
        let after = if is_silent { self.millis(PROBES_MS.0, PROBES_MS.1) } else { self.notice() };
        self.later(after, Event::ServerLoses { stream: id });
    }

    /// Nothing comes by a stream any more, and each end learns that.
    pub(crate) fn cut_stream(&mut self, id: u64) {
        let Some(stream) = self.controllers.streams.get_mut(&id).filter(|stream| !stream.is_cut) else {
            return;
        };
        stream.is_cut = true;
        let (relay, server) = (self.notice(), self.notice());
        self.later(relay, Event::RelayLeaves { stream: id });
        self.later(server, Event::ServerLoses { stream: id });
    }

    /// Nothing of one direction arrives for a while; what was said then comes late, and in order.
    pub(crate) fn stall_stream(&mut self, id: u64, span: Span, upward: bool) {
        let until = self.now + span;
        let Some(stream) = self.controllers.streams.get_mut(&id) else { return };
        let direction = if upward { &mut stream.up } else { &mut stream.down };
        *direction = (*direction).max(until);
    }

    pub(crate) fn some_stream(&mut self) -> Option<u64> {
        let open: Vec<u64> = self.relays.iter().filter_map(|side| side.stream).collect();
        (!open.is_empty()).then(|| open[self.rng.random_range(0..open.len())])
    }

    /// All relays have controllers that are there.
    pub(crate) fn are_streams_whole(&self) -> bool {
        let is_whole = |id: u64| {
            let stream = self.controllers.streams.get(&id);
            stream.is_some_and(|stream| {
                !stream.is_cut && self.controllers.servers[stream.server].life == stream.server_life
            })
        };
        !self.settings.is_controlled() || self.relays.iter().all(|side| side.stream.is_some_and(is_whole))
    }

    /// Whose process an event of a stream is for.
    pub(crate) fn relay_of_stream(&self, id: u64) -> Option<u32> {
        self.controllers.streams.get(&id).map(|stream| stream.relay)
    }

    pub(crate) fn server_of_stream(&self, id: u64) -> Option<usize> {
        self.controllers.streams.get(&id).map(|stream| stream.server)
    }
}

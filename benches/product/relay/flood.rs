//! Flood: time until every client has all frames that its agent sends as fast as it may.
//!
//! Measured beside nginx, and beside the smallest hop with a log. The flood ends: what Greenroom
//! takes from an agent is not bound to what a client reads. An endless flood would measure how the
//! server divides its time between both, not its throughput.

use super::{BaselineAgent, CONNECTIONS, NginxProxy, RelayClients, RelayPath, clients, raise_descriptors, sessions};
use crate::figures::{Figures, table, times};
use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

/// Turns of each way; the median counts.
const ROUNDS: usize = 5;
/// Frames of all agents together, in one flood.
const FRAMES: u64 = 1_200_000;

pub(crate) async fn run() {
    raise_descriptors();
    let home = tempfile::tempdir().expect("a directory");
    let proxy = match NginxProxy::start(home.path()) {
        Ok(proxy) => proxy,
        Err(why) => return println!("(no flood beside nginx: {why}; Debian: `apt install nginx-light`)\n"),
    };
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
        let beside = BaselineAgent::start(home.path(), proxy.port).await;
        let mut nginx = RelayClients::new(clients((0..connections).map(|_| beside.through_the_proxy())).await);
        let mut smallest = RelayClients::new(clients((0..connections).map(|_| beside.through_the_hop())).await);
        let (mut puppets, ours) = sessions(&server, connections).await;
        let mut greenroom = RelayClients::new(ours);
        let [mut proxied, mut hopped, mut events]: [Figures; 3] = Default::default();
        let frames = FRAMES / connections as u64;
        for _ in 0..ROUNDS {
            proxied.add(beside.flood(&mut nginx, RelayPath::Proxied, frames).await);
            hopped.add(beside.flood(&mut smallest, RelayPath::Hop, frames).await);
            events.add(greenroom.flood(&mut puppets, frames).await);
        }
        let [proxied, hopped, events] = [proxied, hopped, events].map(|rounds| rounds.p(50));
        let mut row = vec![connections.to_string()];
        row.extend([proxied, hopped, events].map(|rate| format!("{rate:.0}")));
        row.extend([times(events, proxied), times(events, hopped)]);
        rows.push(row);
    }
    let head = [
        "connections",
        "through nginx",
        "through the smallest hop with a log",
        "Greenroom: events on disk",
        "beside nginx",
        "beside the smallest hop",
    ];
    table("Relay: frames a second without any pause", &head, &rows);
}

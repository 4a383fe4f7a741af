//! How much goes through when every agent says as much as it is let: beside nginx, and beside the smallest hop with a log.

use super::{Beside, CONNECTIONS, Kind, Pace, Proxy, Run, Way, clients, raise_descriptors, sessions};
use crate::{
    figures::{Figures, table, times},
    harness::{
        driver::Driver,
        server::{Options, Server},
    },
};

/// So often each way has its turn, and the median counts.
const ROUNDS: usize = 5;

pub(crate) async fn run() {
    raise_descriptors();
    let home = tempfile::tempdir().expect("a directory");
    let proxy = match Proxy::start(home.path()) {
        Ok(proxy) => proxy,
        Err(why) => return println!("(no flood beside nginx: {why}; Debian: `apt install nginx-light`)\n"),
    };
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let server = Server::start(Options::new(Driver::Process)).await;
        let beside = Beside::start(home.path(), proxy.port).await;
        let mut nginx = Run::new(clients((0..connections).map(|_| beside.through_the_proxy())).await);
        let mut smallest = Run::new(clients((0..connections).map(|_| beside.through_the_hop())).await);
        let (mut puppets, ours) = sessions(&server, connections).await;
        let mut greenroom = Run::new(ours);
        let [mut proxied, mut hopped, mut events]: [Figures; 3] = Default::default();
        for _ in 0..ROUNDS {
            proxied.add(beside.at_full_speed(&mut nginx, Way::Proxied, Pace::Flood).await);
            hopped.add(beside.at_full_speed(&mut smallest, Way::Hop, Pace::Flood).await);
            events.add(greenroom.at_full_speed(&mut puppets, Kind::Event, Pace::Flood).await);
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

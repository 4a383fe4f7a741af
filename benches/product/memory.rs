//! Memory: the idle server, an agent in its sandbox, each further live session, and the rest after
//! much output.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::figures::{Figures, table};
use greenroom_testkit::{
    driver::TestDriver,
    host,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const SESSIONS: usize = 40;
/// Time after which an idle agent has released its code pages (2 s after its last work).
const REST: Duration = Duration::from_secs(4);

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    for driver in drivers {
        let server = TestServer::start(TestServerOptions::new(*driver)).await;
        let idle = host::resident_kib(server.pid());
        // The first sessions also fill shared structures: pools, the page, allocator pages.
        let mut sockets = Vec::new();
        for _ in 0..4 {
            sockets.push(live(&server).await);
        }
        let before = host::resident_kib(server.pid());
        for _ in 0..SESSIONS {
            sockets.push(live(&server).await);
        }
        let each = (host::resident_kib(server.pid()).saturating_sub(before)) as f64 / SESSIONS as f64;
        sleep(REST).await;
        let idle_agents = agents(&server);
        let before = host::resident_kib(server.pid());
        for socket in &mut sockets {
            print_much(socket).await;
        }
        sleep(REST).await;
        let left = host::resident_kib(server.pid()).saturating_sub(before) as f64 / sockets.len() as f64;
        let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
        rows.push(vec![
            driver.name().to_owned(),
            mib(idle),
            format!("{each:.0} KiB"),
            idle_agents,
            format!("{left:.0} KiB"),
            agents(&server),
        ]);
    }
    let head = [
        "sandbox",
        "server, idle",
        "each further live session with its client",
        "agent, idle (p50)",
        "after 6 MB of output in each: of each, in the server",
        "its agent (p50)",
    ];
    table(&format!("Memory, resident ({SESSIONS} sessions)"), &head, &rows);
}

fn agents(server: &TestServer) -> String {
    let mut agents = Figures::default();
    for agent in host::agents(server.home()) {
        agents.add(host::resident_kib(agent.pid) as f64 / 1024.0);
    }
    format!("{:.1} MiB (of {})", agents.p(50), agents.len())
}

async fn print_much(socket: &mut TestSocket) {
    socket.send_request("run", json!({ "command": "head -c 6000000 /dev/zero | tr '\\0' x" })).await;
    socket.state("running").await;
    socket.state("idle").await;
}

async fn live(server: &TestServer) -> TestSocket {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    socket
}

//! Recovery after a kill: from the ready line of the next server until all links are up again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::figures::{ms, table};
use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    for driver in drivers {
        let sessions = match driver {
            TestDriver::Process => 200,
            TestDriver::Docker => 40,
        };
        let mut server = TestServer::start(TestServerOptions::new(*driver)).await;
        let mut ids = Vec::new();
        for _ in 0..sessions {
            ids.push(server.rest.create(json!({})).await);
        }
        all_connected(&server, sessions).await;
        let died = Instant::now();
        let ended = server.kill9().await;
        server = ended.restart().await;
        let ready = Instant::now();
        all_connected(&server, sessions).await;
        rows.push(vec![
            driver.name().into(),
            sessions.to_string(),
            ms(ready.duration_since(died).as_secs_f64() * 1000.0),
            ms(ready.elapsed().as_secs_f64() * 1000.0),
        ]);
        for id in ids {
            server.rest.delete(&format!("/api/sessions/{id}?purge=true")).await;
        }
    }
    let head =
        ["sandbox", "live sessions", "from `kill -9` to the ready line", "from there to all sandboxes taken back"];
    table("After `kill -9` of the server", &head, &rows);
}

async fn all_connected(server: &TestServer, sessions: usize) {
    loop {
        let actors = server.rest.get("/api/admin/actors").await.expect(200);
        let links = actors["items"].as_array().expect("rows").iter();
        let connected = links.filter(|row| row["kind"] == "agent_link" && row["state"] == "connected").count();
        if connected == sessions {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

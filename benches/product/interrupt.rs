//! Interrupt: from the client's frame to the end of a command's last process, and to the receipt.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::figures::{Figures, ms, table};
use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::ScriptedModel,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const ROUNDS: usize = 50;

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    for driver in drivers {
        let (gone, receipt) = in_a_tool(*driver).await;
        rows.push(row(&format!("in a tool, {}: process tree gone", driver.name()), &gone));
        rows.push(row(&format!("in a tool, {}: receipt", driver.name()), &receipt));
        rows.push(row(&format!("in a stream, {}: receipt", driver.name()), &in_a_stream(*driver).await));
    }
    table(&format!("Interrupt ({ROUNDS} rounds)"), &["", "p50", "p99"], &rows);
}

fn row(name: &str, figures: &Figures) -> Vec<String> {
    vec![name.to_owned(), ms(figures.p(50)), ms(figures.p(99))]
}

async fn in_a_tool(driver: TestDriver) -> (Figures, Figures) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    let (mut gone, mut receipt) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        socket.send_request("message", json!({ "content": "sleep long" })).await;
        socket.state("running").await;
        let sleepers = || -> Vec<i32> {
            let all = host::processes(server.home());
            all.into_iter().filter(|p| p.command.starts_with("sleep 100")).map(|p| p.pid).collect()
        };
        eventually("the command's whole tree", || async { sleepers().len() == 3 }).await;
        let tree = sleepers();
        let began = Instant::now();
        let watch = tokio::task::spawn_blocking(move || {
            while tree.iter().any(|pid| std::path::Path::new(&format!("/proc/{pid}")).exists()) {
                std::thread::sleep(Duration::from_micros(200));
            }
            began.elapsed()
        });
        socket.send_request("interrupt", json!({})).await;
        socket.observation("interrupted").await;
        receipt.add_ms(began.elapsed());
        gone.add_ms(watch.await.expect("it only looks"));
        socket.state("idle").await;
    }
    (gone, receipt)
}

async fn in_a_stream(driver: TestDriver) -> Figures {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    let mut receipt = Figures::default();
    for _ in 0..ROUNDS {
        socket.send_request("message", json!({ "content": "tell a long story" })).await;
        socket.delta("text").await;
        let began = Instant::now();
        socket.send_request("interrupt", json!({})).await;
        socket.observation("interrupted").await;
        receipt.add_ms(began.elapsed());
        socket.state("idle").await;
    }
    receipt
}

//! Cold start: from `POST /api/sessions` to the state `idle`, beside `docker run --rm IMAGE true`.

use std::{process::Stdio, time::Instant};

use serde_json::json;
use tokio::process::Command;

use crate::figures::{Figures, ms, table, times};
use greenroom_testkit::{
    driver::{IMAGE, TestDriver},
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const ROUNDS: usize = 20;

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    let engine = if drivers.contains(&TestDriver::Docker) { Some(docker_run().await) } else { None };
    if let Some(engine) = &engine {
        rows.push(vec!["`docker run --rm IMAGE true`".into(), ms(engine.p(50)), ms(engine.p(95)), "1.00×".into()]);
    }
    for driver in drivers {
        let starts = sessions(*driver).await;
        let ratio = engine.as_ref().map_or_else(String::new, |engine| times(starts.p(50), engine.p(50)));
        rows.push(vec![format!("session, {} sandbox", driver.name()), ms(starts.p(50)), ms(starts.p(95)), ratio]);
    }
    table(&format!("Cold start to `idle` ({ROUNDS} rounds)"), &["", "p50", "p95", "beside the engine"], &rows);
}

async fn docker_run() -> Figures {
    let mut figures = Figures::default();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let args = ["run", "--rm", "--network", "none", IMAGE, "true"];
        let status = Command::new("docker").args(args).stderr(Stdio::null()).status().await.expect("docker is there");
        assert!(status.success());
        figures.add_ms(began.elapsed());
    }
    figures
}

async fn sessions(driver: TestDriver) -> Figures {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut figures = Figures::default();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let id = server.rest.create(json!({})).await;
        let mut socket = TestSocket::attach(&server.rest, &id).await;
        socket.state("idle").await;
        figures.add_ms(began.elapsed());
        server.rest.delete(&format!("/api/sessions/{id}?purge=true")).await;
    }
    figures
}

//! Pause and resume in the middle of a tool: until the command stands still, and until it goes on.
//!
//! The engine's own `pause` and `unpause` of the same command are measured beside. Both are watched
//! through the kernel's account of the command's processor time.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{process::Command, time::sleep};

use crate::figures::{Figures, ms, table, times};
use greenroom_testkit::{
    driver::{IMAGE, TestDriver},
    eventually, host,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const ROUNDS: usize = 20;
/// Wait after each request. Within 50 ms of another, the server lets the engine settle first; no
/// person is quick enough to see that.
const REST: Duration = Duration::from_millis(100);
const BUSY: &str = "while :; do :; done";

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    let engine = if drivers.contains(&TestDriver::Docker) { Some(by_engine().await) } else { None };
    if let Some((pause, resume)) = &engine {
        rows.push(vec!["`docker pause`, `unpause`".into(), ms(pause.p(50)), ms(resume.p(50)), "1.00× / 1.00×".into()]);
    }
    for driver in drivers {
        let (pause, resume) = by_us(*driver).await;
        let ratio = engine.as_ref().map_or_else(String::new, |(p, r)| {
            format!("{} / {}", times(pause.p(50), p.p(50)), times(resume.p(50), r.p(50)))
        });
        rows.push(vec![format!("session, {} sandbox", driver.name()), ms(pause.p(50)), ms(resume.p(50)), ratio]);
    }
    let head = ["", "stands still after pause, p50", "goes on after resume, p50", "beside the engine"];
    table(&format!("Pause and resume in the middle of a command ({ROUNDS} rounds)"), &head, &rows);
}

async fn by_us(driver: TestDriver) -> (Figures, Figures) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    socket.state("idle").await;
    socket.send_request("run", json!({ "command": BUSY })).await;
    socket.state("running").await;
    let busy = || host::processes(server.home()).into_iter().find(|p| p.command.contains("while :")).map(|p| p.pid);
    eventually("the command to be busy", || async { busy().is_some() }).await;
    let pid = busy().expect("it is there");
    let (mut pause, mut resume) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        server.rest.post(&format!("/api/sessions/{session}/pause"), json!({})).await.expect(200);
        pause.add_ms(stands_still(pid).await - began);
        sleep(REST).await;
        let began = Instant::now();
        server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
        goes_on(pid).await;
        resume.add_ms(began.elapsed());
        sleep(REST).await;
    }
    (pause, resume)
}

async fn by_engine() -> (Figures, Figures) {
    let args = ["run", "--detach", "--rm", "--network", "none", IMAGE, "sh", "-c", BUSY];
    let id = docker(&args).await;
    let pid: i32 = docker(&["inspect", "--format", "{{.State.Pid}}", &id]).await.parse().expect("a pid");
    let (mut pause, mut resume) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        docker(&["pause", &id]).await;
        pause.add_ms(stands_still(pid).await - began);
        sleep(REST).await;
        let began = Instant::now();
        docker(&["unpause", &id]).await;
        goes_on(pid).await;
        resume.add_ms(began.elapsed());
        sleep(REST).await;
    }
    docker(&["rm", "--force", &id]).await;
    (pause, resume)
}

/// Time without processor time after which a process stands still: some ticks of the kernel's
/// clock.
const LOOK: Duration = Duration::from_millis(40);

/// Returns the moment at which the process stood still; at the earliest, the moment of the request.
async fn stands_still(pid: i32) -> Instant {
    let (mut since, mut had) = (Instant::now(), processor_time(pid));
    while since.elapsed() < LOOK {
        sleep(Duration::from_millis(1)).await;
        let has = processor_time(pid);
        if has != had {
            (since, had) = (Instant::now(), has);
        }
    }
    since
}

async fn goes_on(pid: i32) {
    let before = processor_time(pid);
    while processor_time(pid) == before {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Returns the processor time of a process in nanoseconds: the first field of
/// `/proc/PID/schedstat`.
fn processor_time(pid: i32) -> u64 {
    let account = fs::read_to_string(format!("/proc/{pid}/schedstat")).expect("it is there");
    account.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

async fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().await.expect("docker is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

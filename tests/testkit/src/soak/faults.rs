//! Fault injection: kills, stops and cuts.

use std::{os::unix::net::UnixStream, process::Command, time::Duration};

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::world::SoakWorld;
use crate::{driver::TestDriver, host, server::TestServer};

/// Injects random faults until `end`, and returns the server that runs then.
pub(super) async fn inject(
    world: &SoakWorld,
    mut server: TestServer,
    driver: TestDriver,
    mut dice: fastrand::Rng,
    end: Instant,
) -> TestServer {
    // However short the soak is, the server is killed once.
    let mut fault = 0;
    while Instant::now() < end {
        // Links are cut between the other faults: a cut is cheap, and each one falls on another
        // byte.
        for _ in 0..dice.u8(1..12) {
            sleep(Duration::from_millis(dice.u64(20..250))).await;
            cut_a_link(world, &server, &mut dice);
        }
        match std::mem::replace(&mut fault, dice.u8(0..10)) {
            0..3 => {
                server = kill(world, server).await;
            }
            3 => {
                world.fault("the server stood still for a while");
                server.signal(Signal::STOP);
                sleep(Duration::from_millis(dice.u64(100..2_000))).await;
                server.signal(Signal::CONT);
            }
            4 => {
                world.fault("the server was asked to end");
                server = server.terminate().await.1.restart().await;
            }
            5..8 => {
                let agents = host::agents(server.home());
                if let Some(agent) = dice.choice(&agents) {
                    world.fault("an agent was killed");
                    host::kill(agent.pid, Signal::KILL);
                }
            }
            _ => kill_a_sandbox(world, &server, driver, &mut dice),
        }
    }
    server
}

/// Kills the server `times` times at random moments, without other faults. Returns the server that
/// runs then.
pub(super) async fn kill_the_server(
    world: &SoakWorld,
    mut server: TestServer,
    mut dice: fastrand::Rng,
    times: usize,
) -> TestServer {
    while world.rest.get("/api/sessions?state=starting&limit=1").await.expect(200)["total"] != 0 {
        sleep(Duration::from_millis(50)).await;
    }
    for _ in 0..times {
        sleep(Duration::from_millis(dice.u64(0..1_500))).await;
        server = kill(world, server).await;
    }
    server
}

/// Kills the server and returns the next one, which reads from the journal which sessions are at
/// work.
async fn kill(world: &SoakWorld, server: TestServer) -> TestServer {
    let server = server.kill9().await.restart().await;
    let at_work = server.rest.get("/api/sessions?state=running&limit=1").await.expect(200);
    world.killed(at_work["total"].as_u64().unwrap_or_default());
    server
}

/// Cuts a link by dialling its agent: an agent keeps its newest connection and drops the server's
/// in the middle of a frame.
fn cut_a_link(world: &SoakWorld, server: &TestServer, dice: &mut fastrand::Rng) {
    let runs = server.data().join("run");
    if let Some(session) = dice.choice(host::directories(&runs))
        && UnixStream::connect(runs.join(session).join("agent/agent.sock")).is_ok()
    {
        world.fault("a link was cut");
    }
}

fn kill_a_sandbox(world: &SoakWorld, server: &TestServer, driver: TestDriver, dice: &mut fastrand::Rng) {
    match driver {
        TestDriver::Docker => {
            if let Some(container) = dice.choice(host::containers(server.home())) {
                world.fault("a container was killed");
                let how = if dice.bool() { &["kill"][..] } else { &["rm", "--force"] };
                drop(Command::new("docker").args(how).arg(container).output());
            }
        }
        TestDriver::Process => {
            let jailers = host::jailers(server.home());
            if let Some(jailer) = dice.choice(jailers) {
                world.fault("a sandbox was killed from its root");
                host::kill(jailer, Signal::KILL);
            }
        }
    }
}

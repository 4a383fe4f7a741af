//! Soak: many sessions at work, clients that come and go, people who change their minds, and random
//! faults. The promises are checked all the while, and once more at the end.
//!
//! | module | what it does |
//! |---|---|
//! | `world` | shared state, with a ledger of everything that any client received |
//! | `wire` | a connection for which a cut is a normal result |
//! | `watcher` | reads a session for ever, over breaking connections, and checks each frame |
//! | `person` | sends requests, and repeats those without an answer |
//! | `faults` | kills, stops and cuts |
//! | `verdict` | reads every journal to its end and compares |

mod faults;
mod person;
mod verdict;
mod watcher;
mod wire;
mod world;

use std::{collections::BTreeMap, fmt, net::Ipv4Addr, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{net::TcpSocket, time::Instant};

pub use self::world::KILL;
use self::world::SoakWorld;
use crate::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    server::{TestServer, TestServerOptions},
};

/// Plan of a soak.
#[derive(Debug, Clone, Copy)]
pub struct SoakPlan {
    pub driver: TestDriver,
    pub faults: SoakFaults,
    pub sessions: usize,
    pub seed: u64,
}

/// Faults to inject, and for how long.
#[derive(Debug, Clone, Copy)]
pub enum SoakFaults {
    /// Random faults of every kind, for this time.
    All(Duration),
    /// Only kills of the server, this many.
    KillsOfTheServer(usize),
}

/// Result of a soak.
#[derive(Debug, Default)]
pub struct SoakReport {
    /// Number of injected faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    pub connections: u64,
    /// Frames that were compared with those of other clients.
    pub checked: u64,
    /// Events in the journals at the end.
    pub events: u64,
    /// Requests that were answered and then found in the journal.
    pub requests: u64,
    pub turns: u64,
    /// Sessions at work when the server was killed, summed over all kills.
    pub hit: u64,
    /// Broken promises, in words.
    pub broken: Vec<(BrokenPromise, String)>,
}

/// Kind of a broken promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenPromise {
    /// An event or an answer that was received is missing.
    Lost,
    /// An event or an action exists twice.
    Doubled,
    OutOfOrder,
    /// An event differs from what was received before.
    Changed,
    /// Any other kind: something was left behind, or does not end.
    Otherwise,
}

/// Runs a soak to its end.
pub async fn soak(plan: SoakPlan) -> SoakReport {
    let model = ScriptedModel::with(script());
    let address = reserved_address();
    let address = address.local_addr().expect("the socket is bound").to_string();
    let server = TestServer::start(TestServerOptions::anthropic(plan.driver, &model).bind(&address)).await;
    let world = Arc::new(SoakWorld::new(server.rest.clone()));
    let mut sessions = Vec::new();
    for n in 0..plan.sessions {
        sessions.push(server.rest.create(json!({ "title": format!("soak {n}") })).await);
    }
    let mut seeds = fastrand::Rng::with_seed(plan.seed);
    let mut tasks = tokio::task::JoinSet::new();
    for session in &sessions {
        for _ in 0..2 {
            tasks.spawn(watcher::watch(world.clone(), session.clone(), seeds.fork()));
        }
        tasks.spawn(person::ask(world.clone(), session.clone(), seeds.fork()));
    }
    let server = match plan.faults {
        SoakFaults::All(time) => faults::inject(&world, server, plan.driver, seeds.fork(), Instant::now() + time).await,
        SoakFaults::KillsOfTheServer(times) => faults::kill_the_server(&world, server, seeds.fork(), times).await,
    };
    world.end();
    while let Some(ended) = tasks.join_next().await {
        if let Err(e) = ended {
            world.broken(BrokenPromise::Otherwise, format!("a task of the soak panicked: {e}"));
        }
    }
    verdict::judge(&world, &server, &sessions).await;
    world.report()
}

/// Returns the model's rules, each selected by a word in the newest text.
fn script() -> Vec<ScriptedRule> {
    let tool = |command: &str| Some(ScriptedTool { name: "run".into(), input: json!({ "command": command }) });
    let say = |when: &str, say: &str, times, every_ms| ScriptedRule {
        when: Some(when.into()),
        say: Some(say.into()),
        times,
        every_ms,
        ..ScriptedRule::default()
    };
    vec![
        say("talk", "and so it went on ", 60, 4),
        say("mumble", "a ", 400, 1),
        ScriptedRule { think: Some("Let me see. ".into()), ..say("ponder", "It is so. ", 20, 10) },
        ScriptedRule { tool: tool(verdict::WORK), ..say("work", "I will. ", 3, 2) },
        ScriptedRule { tool: tool(verdict::FLOOD), ..say("flood", "Much of it. ", 1, 0) },
        ScriptedRule { tool: tool(verdict::POUR), ..say("pour", "All of it. ", 1, 0) },
        ScriptedRule { tool: tool("(setsid sleep 30 &) ; sleep 2; echo MARK"), ..say("dawdle", "Slowly. ", 1, 0) },
        say("MARK", "Done. ", 5, 2),
        say("", "Hm. ", 1, 0),
    ]
}

/// Holds an address that the server can bind again after each kill.
///
/// The kernel gives the address to no process that binds to port 0. To listen on it, a process must
/// name it and allow reuse of the address, as the server does.
fn reserved_address() -> TcpSocket {
    let address = TcpSocket::new_v4().expect("a socket");
    address.set_reuseaddr(true).expect("the option can be set");
    address.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    address
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults injected:")?;
        for (fault, times) in &self.faults {
            writeln!(f, "  {times:6}  {fault}")?;
        }
        writeln!(f, "connections: {}, frames compared: {}", self.connections, self.checked)?;
        let SoakReport { events, turns, hit, .. } = self;
        writeln!(f, "in the journals: {events} events, {turns} turns; kills of the server hit {hit} sessions at work")?;
        writeln!(f, "requests answered, and found exactly once at their event: {}", self.requests)?;
        let count = |how| self.broken.iter().filter(|(broken, _)| *broken == how).count();
        let [lost, doubled, out_of_order, changed] =
            [BrokenPromise::Lost, BrokenPromise::Doubled, BrokenPromise::OutOfOrder, BrokenPromise::Changed].map(count);
        writeln!(f, "lost: {lost}, doubled: {doubled}, out of order: {out_of_order}, changed: {changed}")?;
        writeln!(f, "promises broken: {}", self.broken.len())?;
        self.broken.iter().take(50).try_for_each(|(how, what)| writeln!(f, "  {how:?}: {what}"))
    }
}

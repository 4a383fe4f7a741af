//! A soak: many sessions at work, clients that come and go, people who change their minds, and a hand that kills whatever
//! it can reach. What is promised is checked all the while, and once more at the end.
//!
//! | module | what it does |
//! |---|---|
//! | `world` | what all the others share, and the ledger of everything that anybody ever saw |
//! | `wire` | a socket that takes a cut as a matter of course |
//! | `watcher` | reads a session for ever, over connections that break, and checks each frame |
//! | `person` | asks for things, again where no answer came |
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

pub(crate) use self::world::KILL;
use self::world::SoakWorld;
use crate::harness::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    server::{TestServer, TestServerOptions},
};

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoakPlan {
    pub(crate) driver: TestDriver,
    pub(crate) faults: SoakFaults,
    pub(crate) sessions: usize,
    pub(crate) seed: u64,
}

/// What is injected, and for how long.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SoakFaults {
    /// All there are, at random.
    All(Duration),
    /// Nothing but the end of the server, so often.
    KillsOfTheServer(usize),
}

/// What was done, and what came of it.
#[derive(Debug, Default)]
pub(crate) struct SoakReport {
    /// What was injected, and how often.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) connections: u64,
    /// Frames that were compared with what others saw.
    pub(crate) checked: u64,
    /// Events in the journals at the end.
    pub(crate) events: u64,
    /// Wishes that were answered, and then looked for.
    pub(crate) requests: u64,
    pub(crate) turns: u64,
    /// Sessions at work when the server was killed, of all kills together.
    pub(crate) hit: u64,
    /// What was promised and did not hold, in words.
    pub(crate) broken: Vec<(BrokenPromise, String)>,
}

/// How a promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokenPromise {
    /// What was seen or answered is not there.
    Lost,
    /// It is there, or was done, twice.
    Doubled,
    OutOfOrder,
    /// It is another than it was, or than it was said to be.
    Changed,
    /// Something was left behind, or does not come to an end.
    Otherwise,
}

/// Runs it to its end.
pub(crate) async fn soak(plan: SoakPlan) -> SoakReport {
    let model = ScriptedModel::with(script());
    let place = a_place();
    let address = place.local_addr().expect("it is bound").to_string();
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
            world.broken(BrokenPromise::Otherwise, format!("a part of the soak itself fell: {e}"));
        }
    }
    verdict::judge(&world, &server, &sessions).await;
    world.report()
}

/// What the model does, by a word in what it was told last.
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

/// Holds an address that the server can have again after each of its deaths. It is given to nobody who wants any: who listens
/// at one must ask for it, and must allow others to be bound to it, as the server does.
fn a_place() -> TcpSocket {
    let place = TcpSocket::new_v4().expect("a socket");
    place.set_reuseaddr(true).expect("it can be told so");
    place.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    place
}

impl fmt::Display for SoakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults injected:")?;
        for (fault, times) in &self.faults {
            writeln!(f, "  {times:6}  {fault}")?;
        }
        writeln!(f, "connections: {}, frames compared: {}", self.connections, self.checked)?;
        let SoakReport { events, turns, hit, .. } = self;
        writeln!(f, "in the journals: {events} events, {turns} turns; kills of the server hit {hit} amid their work")?;
        writeln!(f, "wishes answered, and found once each where they were said to be: {}", self.requests)?;
        let count = |how| self.broken.iter().filter(|(broken, _)| *broken == how).count();
        let [lost, doubled, out_of_order, changed] =
            [BrokenPromise::Lost, BrokenPromise::Doubled, BrokenPromise::OutOfOrder, BrokenPromise::Changed].map(count);
        writeln!(f, "lost: {lost}, doubled: {doubled}, out of order: {out_of_order}, changed: {changed}")?;
        writeln!(f, "promises broken: {}", self.broken.len())?;
        self.broken.iter().take(50).try_for_each(|(how, what)| writeln!(f, "  {how:?}: {what}"))
    }
}

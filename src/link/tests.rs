//! Orders that fail, and links whose sessions fell: over a sandbox that does as it is told, and an agent that is dialled and
//! never says a word.

use std::{
    sync::{Mutex as Lock, atomic::AtomicBool},
    time::Duration,
};

use async_trait::async_trait;
use greenroom_protocol::{
    link::{Api, Settings},
    observation::State,
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    time::timeout,
};

use super::*;
use crate::{
    gateway::GatewayOptions,
    sandbox::{Exit, Found, Presence, Progress, Spec, Stats},
    session::{
        self,
        messages::{Fell, Look, orders::UnderWay},
    },
    store::{Record, contract::record, memory::MemoryStore},
};

/// Notes what it is told, and does it when it may.
#[derive(Default)]
struct Obedient {
    told: Lock<Vec<&'static str>>,
    /// The next order fails so.
    fails: Lock<Option<SandboxError>>,
    /// What takes its time until it may end.
    held: watch::Sender<Option<&'static str>>,
    presence: Lock<Option<Presence>>,
    /// How it stands is not told.
    is_away: AtomicBool,
    /// How it ended, once it has.
    exit: watch::Sender<Option<Exit>>,
}

impl Obedient {
    async fn take(&self, order: &'static str) -> Result<(), SandboxError> {
        self.told.lock().expect("nobody panics here").push(order);
        let _ = self.held.subscribe().wait_for(|held| *held != Some(order)).await;
        self.fails.lock().expect("nobody panics here").take().map_or(Ok(()), Err)
    }

    fn told(&self) -> Vec<&'static str> {
        self.told.lock().expect("nobody panics here").iter().filter(|order| **order != "thaw").copied().collect()
    }

    fn stands(&self, presence: Presence) {
        *self.presence.lock().expect("nobody panics here") = Some(presence);
    }

    /// Ends it with code 3.
    fn end(&self) {
        let exit = Exit { code: Some(3), out_of_memory: false, stderr_tail: "no words left".to_owned() };
        self.exit.send_replace(Some(exit));
    }

    fn fail(&self, how: SandboxError) {
        *self.fails.lock().expect("nobody panics here") = Some(how);
    }

    async fn until(&self, told: &[&'static str]) {
        let so = timeout(Duration::from_secs(10), async {
            while self.told() != told {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        so.await.unwrap_or_else(|_| panic!("{:?} and not {told:?}", self.told()));
    }
}

#[async_trait]
impl Sandbox for Obedient {
    fn name(&self) -> &'static str {
        "obedient"
    }
    fn isolation(&self) -> String {
        String::new()
    }
    async fn check(&self) -> Result<(), SandboxError> {
        Ok(())
    }
    async fn start(&self, _: &Spec, _: Progress<'_>) -> Result<(), SandboxError> {
        self.take("start").await
    }
    async fn freeze(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("freeze").await
    }
    async fn thaw(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("thaw").await
    }
    async fn stop(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("stop").await
    }
    async fn remove(&self, _: SessionId) -> Result<(), SandboxError> {
        self.take("remove").await
    }
    async fn presence(&self, _: SessionId) -> Result<Option<Presence>, SandboxError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(overdue()),
            false => Ok(*self.presence.lock().expect("nobody panics here")),
        }
    }
    async fn wait(&self, _: SessionId) -> Result<Exit, SandboxError> {
        let exit = self.exit.subscribe().wait_for(Option::is_some).await.expect("it lives").clone();
        Ok(exit.expect("it is some"))
    }
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        Ok(Vec::new())
    }
    async fn logs(&self, _: SessionId, _: usize) -> Result<String, SandboxError> {
        Ok(String::new())
    }
    async fn stats(&self, _: SessionId) -> Result<Stats, SandboxError> {
        Ok(Stats::default())
    }
}

/// Hears orders, and that a session fell, and does nothing.
struct Deaf;

impl Actor for Deaf {
    type Context = Context<Deaf>;
}

macro_rules! hears {
    ($($message:ty),+) => {$(
        impl Handler<$message> for Deaf {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<Deaf>) {}
        }
    )+};
}
hears!(Raise, Deliver, Cut, Freeze, Thaw, Kill, Fell);

struct House {
    _dir: tempfile::TempDir,
    sandbox: Arc<Obedient>,
    parts: Arc<Parts>,
    id: SessionId,
    /// Whom the links tell. What it orders itself nobody hears.
    session: Addr<Session>,
    allowance: Arc<Allowance>,
    agent: UnixListener,
}

impl House {
    async fn new() -> House {
        let dir = tempfile::tempdir().expect("a directory");
        let (store, census) = (Arc::new(MemoryStore::new()), Census::default());
        let sandbox = Arc::new(Obedient::default());
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let at = |name: &str| dir.path().join(name);
        let parts = Arc::new(Parts {
            sandbox: sandbox.clone(),
            gateway: Gateway::new(GatewayOptions::default()).expect("a gateway without keys"),
            store: store.clone(),
            census: census.clone(),
            places: Places {
                runs: at("r"),
                workspaces: Workspaces { below: at("w"), shared: None, uid, gid },
                homes: at("h"),
                agent: PathBuf::new(),
            },
            image: String::new(),
            volumes: Vec::new(),
            uid,
            gid,
            limits: Limits { memory_bytes: 0, cpus: 0.0, pids: 0 },
            network: Network::None,
            starting: Arc::new(Starts::new(8, 8)),
        });
        let id = store.create(Record { state: State::Starting, ..record("") }).await.expect("it is made").record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("it is there");
        let (tell, mut told) = watch::channel(None);
        let sessions = Arc::new(session::Parts {
            store,
            census,
            link: Box::new(move |_, _, allowance| {
                tell.send_replace(Some(allowance));
                let deaf = Deaf.start();
                LinkPort {
                    raise: deaf.clone().recipient(),
                    deliver: deaf.clone().recipient(),
                    cut: deaf.clone().recipient(),
                    freeze: deaf.clone().recipient(),
                    thaw: deaf.clone().recipient(),
                    kill: deaf.recipient(),
                    leash: CancellationToken::new().drop_guard(),
                }
            }),
            may_use: Box::new(|_| Ok(())),
            settings: Box::new(|_| Settings {
                model: String::new(),
                api: Api::Anthropic,
                directory: "/workspace".into(),
                run_timeout_s: 1,
                max_steps: 1,
            }),
            fell: Deaf.start().recipient(),
        });
        let session = Session::start_from(sessions, epoch, snapshot, None).expect("it starts");
        let run = RunDir::of(&parts.places.runs, id);
        run.prepare(uid, gid).expect("the run directory is made");
        let agent = UnixListener::bind(run.agent().join("agent.sock")).expect("it binds");
        let allowance = told.wait_for(Option::is_some).await.expect("it makes a link").clone();
        let allowance = allowance.expect("it is some");
        House { _dir: dir, sandbox, parts, id, session, allowance, agent }
    }

    fn link(&self) -> LinkPort {
        AgentLink::port(self.parts.clone(), &self.session, self.id, self.allowance.clone())
    }

    async fn dialled(&self) -> UnixStream {
        timeout(Duration::from_secs(10), self.agent.accept()).await.expect("the agent is dialled").expect("a socket").0
    }

    /// Why the session failed, once it has.
    async fn failure(&self) -> String {
        let failed = timeout(Duration::from_secs(10), async {
            loop {
                let view = self.session.send(Look).await.expect("it lives");
                match view.reason {
                    Some(reason) if view.state == State::Failed => return reason,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        });
        failed.await.expect("it fails")
    }

    async fn is_not_dialled(&self) {
        let dialled = timeout(Duration::from_millis(200), self.agent.accept()).await;
        assert!(dialled.is_err(), "it is dialled");
    }
}

async fn raise(link: &LinkPort) {
    raise_what_was(Was::Down, link).await;
}

async fn raise_what_was(was: Was, link: &LinkPort) {
    link.raise.send(Raise { image: None, was }).await.expect("it lives");
}

/// All that was ordered is carried out.
async fn settled(link: &LinkPort) {
    link.cut.send(Cut).await.expect("it lives");
}

fn kill(then: Then) -> Kill {
    Kill { then, under_way: UnderWay::default() }
}

fn overdue() -> SandboxError {
    SandboxError::Deadline { what: "answer", seconds: 10 }
}

#[actix::test]
async fn an_agent_that_could_not_be_frozen_is_dialled_still() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    house.sandbox.fail(overdue());
    link.freeze.send(Freeze).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.dialled().await;
}

#[actix::test]
async fn an_agent_that_could_not_be_thawed_is_left_alone_until_it_is() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    link.freeze.send(Freeze).await.expect("it lives");
    house.sandbox.until(&["start", "freeze"]).await;
    house.sandbox.fail(overdue());
    link.thaw.send(Thaw).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.is_not_dialled().await;
    link.thaw.send(Thaw).await.expect("it lives");
    house.dialled().await;
}

/// As between an agent's death and its next start, which would freeze it otherwise.
#[actix::test]
async fn where_there_is_nothing_to_thaw_nothing_is_frozen() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    let connection = house.dialled().await;
    link.freeze.send(Freeze).await.expect("it lives");
    settled(&link).await;
    house.sandbox.fail(SandboxError::Gone { session: house.id });
    link.thaw.send(Thaw).await.expect("it lives");
    settled(&link).await;
    drop(connection);
    house.dialled().await;
}

/// To call it failed would have the sweep end it, once the driver is back.
#[actix::test]
async fn what_is_up_is_waited_for_while_its_driver_does_not_answer() {
    let house = House::new().await;
    house.sandbox.is_away.store(true, Ordering::Relaxed);
    house.sandbox.stands(Presence::Running);
    let link = house.link();
    link.raise.send(Raise { image: None, was: Was::Up }).await.expect("it lives");
    house.is_not_dialled().await;
    assert_eq!(house.session.send(Look).await.expect("it lives").state, State::Starting);
    house.sandbox.is_away.store(false, Ordering::Relaxed);
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), [] as [&str; 0], "it was not started");
}

/// That it is not up is known, so nothing is ended by saying so.
#[actix::test]
async fn what_was_up_and_is_gone_and_cannot_be_started_has_failed() {
    let house = House::new().await;
    house.sandbox.fail(overdue());
    let link = house.link();
    link.raise.send(Raise { image: None, was: Was::Up }).await.expect("it lives");
    house.sandbox.until(&["start"]).await;
    let failed = async {
        while house.session.send(Look).await.expect("it lives").state != State::Failed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(5), failed).await.expect("it says so");
    assert_eq!(house.sandbox.told(), ["start"], "it is not tried again");
}

#[actix::test]
async fn a_restart_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = House::new().await;
    let old = house.link();
    house.sandbox.held.send_replace(Some("start"));
    raise(&old).await;
    house.sandbox.until(&["start"]).await;
    old.kill.send(kill(Then::Restart)).await.expect("it lives");
    drop(old);
    let new = house.link();
    raise(&new).await;
    house.sandbox.held.send_replace(None);
    let _connection = house.dialled().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "start"]);
}

#[actix::test]
async fn the_next_life_of_a_session_starts_behind_a_stop_that_is_under_way() {
    let house = House::new().await;
    let old = house.link();
    raise(&old).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("stop"));
    old.kill.send(kill(Then::Restart)).await.expect("it lives");
    house.sandbox.until(&["start", "stop"]).await;
    drop(old);
    let new = house.link();
    raise(&new).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop"]);
    house.sandbox.held.send_replace(None);
    house.sandbox.until(&["start", "stop", "start"]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop", "start"], "the old link starts nothing any more");
}

#[actix::test]
async fn what_is_put_to_rest_while_it_is_restarted_stays_down() {
    let house = House::new().await;
    let link = house.link();
    raise(&link).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("stop"));
    link.kill.do_send(kill(Then::Restart));
    link.kill.do_send(kill(Then::Rest));
    house.sandbox.until(&["start", "stop"]).await;
    house.sandbox.held.send_replace(None);
    settled(&link).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "stop", "stop"]);
}

/// Whether the session is paused, its next life learns from the journal.
#[actix::test]
async fn a_freeze_that_its_session_did_not_live_to_see_is_not_for_its_next_life() {
    let house = House::new().await;
    let old = house.link();
    raise(&old).await;
    drop(house.dialled().await);
    house.sandbox.held.send_replace(Some("freeze"));
    for _ in 0..2 {
        old.freeze.do_send(Freeze);
    }
    house.sandbox.until(&["start", "freeze"]).await;
    drop(old);
    house.sandbox.held.send_replace(None);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(house.sandbox.told(), ["start", "freeze"]);
}

#[actix::test]
async fn one_that_died_while_no_server_was_there_is_told_as_one_that_was_watched() {
    for was in [Was::Up, Was::Frozen] {
        let house = House::new().await;
        house.sandbox.stands(Presence::Exited);
        house.sandbox.end();
        raise_what_was(was, &house.link()).await;
        assert_eq!(house.failure().await, "the sandbox died with exit code 3");
        assert!(!house.sandbox.told().contains(&"start"), "and only a person's next word starts another");
    }
}

/// The next server has found it, and its agent has not said a word yet.
#[actix::test]
async fn one_that_dies_as_soon_as_it_is_found_is_told_too() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let _connection = house.dialled().await;
    house.sandbox.end();
    assert_eq!(house.failure().await, "the sandbox died with exit code 3");
    assert!(house.sandbox.told().is_empty());
}

/// As on another machine, or with another driver.
#[actix::test]
async fn one_of_which_nothing_is_there_is_started() {
    let house = House::new().await;
    let link = house.link();
    raise_what_was(Was::Up, &link).await;
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start"]);
}

/// A server died between writing down that it was to be taken away and doing it, or could not.
#[actix::test]
async fn one_that_was_to_be_taken_away_is_not_spoken_with_any_more() {
    for left in [Presence::Running, Presence::Frozen] {
        let house = House::new().await;
        house.sandbox.stands(left);
        house.sandbox.held.send_replace(Some("stop"));
        let link = house.link();
        raise(&link).await;
        house.sandbox.until(&["stop"]).await;
        house.is_not_dialled().await;
        house.sandbox.held.send_replace(None);
        let _connection = house.dialled().await;
        assert_eq!(house.sandbox.told(), ["stop", "start"]);
    }
    let house = House::new().await;
    house.sandbox.stands(Presence::Exited);
    let link = house.link();
    raise(&link).await;
    let _connection = house.dialled().await;
    assert_eq!(house.sandbox.told(), ["start"], "there is nothing to stop");
}

#[actix::test]
async fn one_that_cannot_be_taken_away_is_not_taken_for_a_fresh_one() {
    let house = House::new().await;
    house.sandbox.stands(Presence::Running);
    house.sandbox.fail(overdue());
    raise(&house.link()).await;
    assert_eq!(house.failure().await, overdue().to_string());
    assert_eq!(house.sandbox.told(), ["stop"]);
}

#[test]
fn an_agent_that_does_not_listen_is_dialled_ever_less_often() {
    let mut waited = Duration::ZERO;
    let mut dials_until = |limit| {
        let mut dials = 0;
        while waited < limit {
            waited += raise::until_dialled_again(waited);
            dials += 1;
        }
        dials
    };
    assert_eq!(dials_until(Duration::from_millis(60)), 15, "one that comes up has not long to wait");
    assert!(dials_until(Duration::from_secs(30)) < 120);
    assert_eq!(dials_until(Duration::from_secs(60)), 30, "and one that takes its time not much longer");
}

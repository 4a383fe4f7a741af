//! Test kit for every module above: sessions with a link that does nothing.

use std::sync::Arc;

use actix::prelude::*;
use greenroom_protocol::{
    link::{AgentHello, AgentSettings, LINK_VERSION, ProviderApi},
    observation::AgentState,
};
use tokio_util::sync::CancellationToken;

use super::{
    actor::{LinkFactory, Session, SessionDeps},
    effect::{Effect, LinkPort},
    messages::{HelloReceived, SessionStopped},
    spending::ServerSpending,
};
use crate::{
    actor_registry::ActorRegistry,
    config::{Config, QuotaConfig},
    store::{SessionId, SessionRecord, Store, contract::record},
};

/// Accepts a session's effects and its stop notice, and does nothing.
struct NullLink;

impl Actor for NullLink {
    type Context = Context<NullLink>;
}

impl Handler<Effect> for NullLink {
    type Result = ();
    fn handle(&mut self, _: Effect, _: &mut Context<NullLink>) {}
}

impl Handler<SessionStopped> for NullLink {
    type Result = ();
    fn handle(&mut self, _: SessionStopped, _: &mut Context<NullLink>) {}
}

/// Returns a link whose agent never answers.
pub(crate) fn null_link() -> LinkPort {
    link_port(NullLink.start().recipient())
}

/// Returns the port of an actor that receives the effects.
pub(crate) fn link_port(effects: Recipient<Effect>) -> LinkPort {
    LinkPort { effects, cancel_on_drop: CancellationToken::new().drop_guard() }
}

/// Returns the settings of the agent of a session with this model.
pub(crate) fn agent_settings(model: &str) -> AgentSettings {
    AgentSettings {
        model: model.to_owned(),
        api: ProviderApi::Anthropic,
        directory: "/workspace".into(),
        run_timeout_s: 1,
        max_steps: 1,
        program: None,
        effort: None,
        takes_images: false,
        context_limit: None,
        orphan_after_s: None,
        plan_path: None,
        mode: None,
    }
}

/// Returns spending without limits. Its data directory does not exist.
pub(crate) fn unlimited_spending() -> Arc<ServerSpending> {
    let config = Config::with_data_dir("/nonexistent");
    Arc::new(ServerSpending::new(config.budget, config.gateway, "/nonexistent".as_ref()))
}

/// Returns the dependencies of sessions with null links. Stop notices are dropped.
pub(crate) fn session_deps(store: Arc<dyn Store>, actor_registry: ActorRegistry) -> SessionDeps {
    SessionDeps {
        store,
        actor_registry,
        make_link: Box::new(|_, _, _| null_link()),
        settings_for: Box::new(|record| AgentSettings { effort: record.effort, ..agent_settings(&record.model) }),
        check_model: Box::new(|_| Ok(())),
        spending: unlimited_spending(),
        quota: QuotaConfig::default(),
        captures_turns: false,
        policy: Arc::default(),
        session_stopped: NullLink.start().recipient(),
    }
}

/// Returns the first message of an agent with this boot id.
pub(crate) fn hello(boot: &str) -> HelloReceived {
    HelloReceived {
        hello: AgentHello {
            link_version: LINK_VERSION,
            boot: boot.to_owned(),
            agent_version: "a".to_owned(),
            last_n: 0,
            turn: None,
            reads_cancel_hints: true,
        },
    }
}

/// Creates a session in `store`. Its agent has sent the hello of boot `b`.
pub(super) async fn idle_session(store: Arc<dyn Store>) -> (SessionId, Addr<Session>) {
    idle_session_with_link(store, Box::new(|_, _, _| null_link())).await
}

/// Creates a session like [`idle_session`]. Its link comes from `make_link`.
pub(super) async fn idle_session_with_link(
    store: Arc<dyn Store>,
    make_link: Box<LinkFactory>,
) -> (SessionId, Addr<Session>) {
    idle_session_with(store, |deps| SessionDeps { make_link, ..deps }).await
}

/// Creates a session like [`idle_session`], with dependencies that `change` returns.
pub(super) async fn idle_session_with(
    store: Arc<dyn Store>,
    change: impl FnOnce(SessionDeps) -> SessionDeps,
) -> (SessionId, Addr<Session>) {
    let new = SessionRecord { state: AgentState::Starting, ..record("") };
    let id = store.create(new).await.expect("session is new").into_snapshot().record.id;
    let (epoch, snapshot) = store.claim(id).await.expect("session exists");
    let deps = change(session_deps(store, ActorRegistry::default()));
    let session =
        Session::start_from(Arc::new(deps), epoch, snapshot, None).expect("a new session has no state to read");
    session.send(hello("b")).await.expect("session actor is running").expect("hello is accepted");
    (id, session)
}

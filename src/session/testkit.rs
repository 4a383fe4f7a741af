//! Test kit for every module above: sessions with a link that does nothing.

use std::sync::Arc;

use actix::prelude::*;
use greenroom_protocol::{
    link::{AgentHello, AgentSettings, LINK_VERSION, ProviderApi},
    observation::AgentState,
};
use tokio_util::sync::CancellationToken;

use super::{
    Session, SessionDeps,
    messages::{HelloReceived, LinkPort, SessionStopped, effects},
};
use crate::{
    actor_registry::ActorRegistry,
    store::{SessionId, SessionRecord, Store, contract::record},
};

/// Accepts a session's effects and its stop notice, and does nothing.
struct NullLink;

impl Actor for NullLink {
    type Context = Context<NullLink>;
}

macro_rules! null_handlers {
    ($($message:ty),+) => {$(
        impl Handler<$message> for NullLink {
            type Result = ();
            fn handle(&mut self, _: $message, _: &mut Context<NullLink>) {}
        }
    )+};
}
null_handlers!(
    effects::StartSandbox,
    effects::DeliverToAgent,
    effects::AbortModelStreams,
    effects::PauseSandbox,
    effects::UnpauseSandbox,
    effects::StopSandbox,
    SessionStopped
);

/// Returns a link whose agent never answers.
pub(crate) fn null_link() -> LinkPort {
    link_port(&NullLink.start())
}

/// Returns the port of a link actor that handles every effect.
pub(crate) fn link_port<L>(link: &Addr<L>) -> LinkPort
where
    L: Actor<Context = Context<L>>
        + Handler<effects::StartSandbox>
        + Handler<effects::DeliverToAgent>
        + Handler<effects::AbortModelStreams>
        + Handler<effects::PauseSandbox>
        + Handler<effects::UnpauseSandbox>
        + Handler<effects::StopSandbox>,
{
    LinkPort {
        cancel_on_drop: CancellationToken::new().drop_guard(),
        start_sandbox: link.clone().recipient(),
        deliver_to_agent: link.clone().recipient(),
        abort_model_streams: link.clone().recipient(),
        pause_sandbox: link.clone().recipient(),
        unpause_sandbox: link.clone().recipient(),
        stop_sandbox: link.clone().recipient(),
    }
}

/// Returns the settings of the agent of a session with this model.
pub(crate) fn agent_settings(model: &str) -> AgentSettings {
    AgentSettings {
        model: model.to_owned(),
        api: ProviderApi::Anthropic,
        directory: "/workspace".into(),
        run_timeout_s: 1,
        max_steps: 1,
    }
}

/// Returns the dependencies of sessions with null links. Stop notices are dropped.
pub(crate) fn session_deps(store: Arc<dyn Store>, actor_registry: ActorRegistry) -> SessionDeps {
    SessionDeps {
        store,
        actor_registry,
        make_link: Box::new(|_, _, _| null_link()),
        settings_for: Box::new(|record| agent_settings(&record.model)),
        check_model: Box::new(|_| Ok(())),
        session_stopped: NullLink.start().recipient(),
    }
}

/// Returns the first message of an agent with this boot id.
pub(crate) fn hello(boot: &str) -> HelloReceived {
    let (boot, agent_version) = (boot.to_owned(), "a".to_owned());
    HelloReceived { hello: AgentHello { link_version: LINK_VERSION, boot, agent_version, last_n: 0, turn: None } }
}

/// Creates a session in `store`. Its agent has sent the hello of boot `b`.
pub(super) async fn idle_session(store: Arc<dyn Store>) -> (SessionId, Addr<Session>) {
    let new = SessionRecord { state: AgentState::Starting, ..record("") };
    let id = store.create(new).await.expect("session is new").into_snapshot().record.id;
    let (epoch, snapshot) = store.claim(id).await.expect("session exists");
    let deps = session_deps(store, ActorRegistry::default());
    let session =
        Session::start_from(Arc::new(deps), epoch, snapshot, None).expect("a new session has no state to read");
    session.send(hello("b")).await.expect("session actor is running").expect("hello is accepted");
    (id, session)
}

//! For the tests of what a session hears: a link that does nothing, and an agent that is there and has nothing to do.

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

/// Takes a session's orders, and what it says when it falls.
struct NullLink;

impl Actor for NullLink {
    type Context = Context<NullLink>;
}

macro_rules! hears {
    ($($heard:ty),+) => {$(
        impl Handler<$heard> for NullLink {
            type Result = ();
            fn handle(&mut self, _: $heard, _: &mut Context<NullLink>) {}
        }
    )+};
}
hears!(
    effects::StartSandbox,
    effects::DeliverToAgent,
    effects::AbortModelStreams,
    effects::PauseSandbox,
    effects::UnpauseSandbox,
    effects::StopSandbox,
    SessionStopped
);

fn null_link() -> LinkPort {
    let ear = NullLink.start();
    LinkPort {
        cancel_on_drop: CancellationToken::new().drop_guard(),
        start_sandbox: ear.clone().recipient(),
        deliver_to_agent: ear.clone().recipient(),
        abort_model_streams: ear.clone().recipient(),
        pause_sandbox: ear.clone().recipient(),
        unpause_sandbox: ear.clone().recipient(),
        stop_sandbox: ear.recipient(),
    }
}

fn settings() -> AgentSettings {
    AgentSettings {
        model: "m".into(),
        api: ProviderApi::Openai,
        directory: "/workspace".into(),
        run_timeout_s: 1,
        max_steps: 1,
    }
}

/// A new session in that store, whose agent has introduced itself as the boot `b`.
pub(super) async fn idle_session(store: Arc<dyn Store>) -> (SessionId, Addr<Session>) {
    let new = SessionRecord { state: AgentState::Starting, ..record("") };
    let id = store.create(new).await.expect("it is new").record.id;
    let (epoch, snapshot) = store.claim(id).await.expect("it is there");
    let parts = SessionDeps {
        store,
        actor_registry: ActorRegistry::default(),
        make_link: Box::new(|_, _, _| null_link()),
        settings_for: Box::new(|_| settings()),
        check_model: Box::new(|_| Ok(())),
        session_stopped: NullLink.start().recipient(),
    };
    let session = Session::start_from(Arc::new(parts), epoch, snapshot, None).expect("nobody wrote its core");
    let hello =
        AgentHello { link_version: LINK_VERSION, boot: "b".into(), agent_version: "a".into(), last_n: 0, turn: None };
    session.send(HelloReceived { hello }).await.expect("it lives").expect("it is welcomed");
    (id, session)
}

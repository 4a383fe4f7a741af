//! For the tests of what a session hears: a link that does nothing, and an agent that is there and has nothing to do.

use std::sync::Arc;

use actix::prelude::*;
use greenroom_protocol::{
    link::{Api, Hello, LINK_VERSION, Settings},
    observation::State,
};
use tokio_util::sync::CancellationToken;

use super::{
    Parts, Session,
    messages::{Fell, Greeted, LinkPort, orders},
};
use crate::{
    census::Census,
    store::{Record, SessionId, Store, contract::record},
};

/// Takes a session's orders, and what it says when it falls.
struct Ear;

impl Actor for Ear {
    type Context = Context<Ear>;
}

macro_rules! hears {
    ($($heard:ty),+) => {$(
        impl Handler<$heard> for Ear {
            type Result = ();
            fn handle(&mut self, _: $heard, _: &mut Context<Ear>) {}
        }
    )+};
}
hears!(orders::Raise, orders::Deliver, orders::Cut, orders::Freeze, orders::Thaw, orders::Kill, Fell);

fn silent_link() -> LinkPort {
    let ear = Ear.start();
    LinkPort {
        leash: CancellationToken::new().drop_guard(),
        raise: ear.clone().recipient(),
        deliver: ear.clone().recipient(),
        cut: ear.clone().recipient(),
        freeze: ear.clone().recipient(),
        thaw: ear.clone().recipient(),
        kill: ear.recipient(),
    }
}

fn settings() -> Settings {
    Settings { model: "m".into(), api: Api::Openai, directory: "/workspace".into(), run_timeout_s: 1, max_steps: 1 }
}

/// A new session in that store, whose agent has introduced itself as the boot `b`.
pub(super) async fn idle(store: Arc<dyn Store>) -> (SessionId, Addr<Session>) {
    let new = Record { state: State::Starting, ..record("") };
    let id = store.create(new).await.expect("it is new").record.id;
    let (epoch, snapshot) = store.claim(id).await.expect("it is there");
    let parts = Parts {
        store,
        census: Census::default(),
        link: Box::new(|_, _, _| silent_link()),
        settings: Box::new(|_| settings()),
        may_use: Box::new(|_| Ok(())),
        fell: Ear.start().recipient(),
    };
    let session = Session::start_from(Arc::new(parts), epoch, snapshot, None).expect("nobody wrote its core");
    let hello =
        Hello { link_version: LINK_VERSION, boot: "b".into(), agent_version: "a".into(), last_n: 0, turn: None };
    session.send(Greeted { hello }).await.expect("it lives").expect("it is welcomed");
    (id, session)
}

//! Agents of the test's own, on the session's socket, which do what no agent should; and what the server tells them.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::Addr;
use futures::{SinkExt, StreamExt};
use greenroom::{
    session::{Session, messages::GetView},
    store::{SessionId, in_memory::MemoryStore, local::LocalStore},
};
use greenroom_protocol::{
    CONTENT_LIMIT, Event, EventBody, LINK_FRAME_LIMIT, Observation, ObservationKind,
    link::{AgentHello, AgentReport, FRAGMENT, FromAgent, LINK_VERSION, ToAgent},
    observation::AgentState,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::{LinkHistories, record};

struct ScriptedLinkAgent(WebSocketStream<UnixStream>);

impl ScriptedLinkAgent {
    /// Takes the server's next connection, and introduces itself.
    async fn meet(listener: &UnixListener, boot: &str) -> ScriptedLinkAgent {
        let (stream, _) = within("the server to dial", listener.accept()).await.expect("it is heard");
        // However long a message is, no frame of it is longer than a fragment.
        let config = WebSocketConfig::default().max_frame_size(Some(FRAGMENT));
        let mut agent =
            ScriptedLinkAgent(accept_async_with_config(stream, Some(config)).await.expect("it speaks WebSocket"));
        let (boot, agent_version) = (boot.to_owned(), "scripted".to_owned());
        let hello = AgentHello { link_version: LINK_VERSION, boot, agent_version, last_n: 0, turn: None };
        agent.say(&FromAgent::Hello(hello)).await;
        agent
    }

    async fn say(&mut self, frame: &FromAgent) {
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        self.0.send(Message::text(text)).await.expect("the server listens");
    }

    async fn receive(&mut self, what: &str) -> ToAgent {
        let message = within(what, self.0.next()).await.expect("the link holds").expect("the link holds");
        let text = message.into_text().expect("a text");
        assert!(text.len() <= LINK_FRAME_LIMIT, "a frame of {} bytes", text.len());
        serde_json::from_str(&text).expect("a frame")
    }

    /// The whole history, which is told in frames that an agent takes.
    async fn history(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            match self.receive("the history").await {
                ToAgent::Welcome(welcome) => assert!(welcome.restore),
                ToAgent::History { events, complete } => {
                    all.extend(events);
                    if complete {
                        return all;
                    }
                }
                other => panic!("{other:?} before the history"),
            }
        }
    }
}

async fn within<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let comes = tokio::time::timeout(Duration::from_secs(20), comes).await;
    comes.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

async fn session(house: &LinkHistories) -> (Addr<Session>, UnixListener) {
    let id = house.store.create(record()).await.expect("it is made").record.id;
    let listener = house.listen(id);
    (house.start(id).await, listener)
}

/// Waits until the session has failed, and returns why.
async fn failure(session: &Addr<Session>) -> String {
    let failed = async {
        loop {
            let view = session.send(GetView).await.expect("it lives");
            if view.state == AgentState::Failed {
                return view.reason.expect("it says why");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the session to fail", failed).await
}

#[actix::test]
async fn a_start_whose_name_is_too_long_is_refused() {
    let house = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (session, listener) = session(&house).await;
    let _agent = ScriptedLinkAgent::meet(&listener, &"b".repeat(65)).await;
    let why = failure(&session).await;
    assert!(why.contains("65 bytes (at most 64)"), "{why}");
}

#[actix::test]
async fn a_question_whose_name_is_too_long_is_refused() {
    let house = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (session, listener) = session(&house).await;
    let mut agent = ScriptedLinkAgent::meet(&listener, "b").await;
    agent.history().await;
    let request = "r".repeat(257);
    let seen = ObservationKind::Confirm { request, action: String::new(), risk: String::new(), options: Vec::new() };
    let body = Observation { kind: seen, content: String::new() }.into();
    agent.say(&FromAgent::Report { n: 1, report: AgentReport::Event { item: None, body } }).await;
    let why = failure(&session).await;
    assert!(why.contains("257 bytes (at most 256)"), "{why}");
}

#[actix::test]
async fn who_hangs_up_again_and_again_is_dialled_more_and_more_seldom() {
    let house = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (_session, listener) = session(&house).await;
    let hang_up_again_and_again = async || {
        let (mut dialled, begin) = (0, Instant::now());
        while begin.elapsed() < Duration::from_millis(1200) {
            let (_hung_up, _) = within("the server to dial", listener.accept()).await.expect("it is heard");
            dialled += 1;
        }
        assert!((4..=16).contains(&dialled), "{dialled} times in {:?}", begin.elapsed());
    };
    hang_up_again_and_again().await;
    // One of whom something has come to be on disk is worth being dialled at once.
    for boot in ["b", "c"] {
        let mut agent = ScriptedLinkAgent::meet(&listener, boot).await;
        agent.history().await;
        let body = Observation { kind: ObservationKind::Message { partial: false }, content: "said".into() }.into();
        agent.say(&FromAgent::Report { n: 1, report: AgentReport::Event { item: None, body } }).await;
        while !matches!(agent.receive("an acknowledgement").await, ToAgent::Ack { n: 1 }) {}
        drop(agent);
        let begin = Instant::now();
        let _hung_up = within("the server to dial", listener.accept()).await.expect("it is heard");
        assert!(begin.elapsed() < Duration::from_millis(500), "after {:?}", begin.elapsed());
    }
    hang_up_again_and_again().await;
}

#[actix::test]
async fn a_session_with_a_damaged_event_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = {
        let house = LinkHistories::new(Arc::new(LocalStore::open(dir.path()).expect("it opens")));
        let id = house.store.create(record()).await.expect("it is made").record.id;
        let said = |what: &str| {
            ("message", format!(r#""source":"agent","observation":"message","extras":{{}},"content":"{what}""#))
        };
        house.write(id, &[said("the first"), said("the second"), said("the third")]).await;
        id
    };
    let log = dir.path().join("log/00000001.log");
    let mut bytes = fs::read(&log).expect("it is read");
    let at = bytes.windows(10).position(|part| part == b"the second").expect("it is there as it was written");
    bytes[at] ^= 0xff;
    fs::write(&log, bytes).expect("it is written");

    let house = LinkHistories::new(Arc::new(open(dir.path())));
    let listener = house.listen(id);
    let session = house.start(id).await;
    let events = ScriptedLinkAgent::meet(&listener, "b").await.history().await;
    let said = |event: &Event| match &event.body {
        EventBody::Observation(Observation { kind: ObservationKind::Error { code, .. }, .. }) => code.clone(),
        EventBody::Observation(Observation { content, .. }) => content.clone(),
        EventBody::Action(_) | EventBody::Opaque(_) => panic!("{event:?}"),
    };
    assert_eq!(events.iter().take(3).map(said).collect::<Vec<_>>(), ["the first", "damaged", "the third"]);
    assert_eq!(session.send(GetView).await.expect("it lives").state, AgentState::Idle);
}

/// The lock of the one before may outlive it for a moment.
fn open(dir: &std::path::Path) -> LocalStore {
    let again = |_| LocalStore::open(dir).inspect_err(|_| std::thread::sleep(Duration::from_millis(20))).ok();
    (0..100).find_map(again).expect("it opens again")
}

#[actix::test]
async fn an_agent_is_given_back_the_whole_of_what_it_once_said() {
    let house = LinkHistories::new(Arc::new(MemoryStore::new()));
    let id = house.store.create(record()).await.expect("it is made").record.id;
    // Six bytes of JSON for each: all at once would be more than a frame holds.
    let long: Vec<String> = (0..20).map(|n| format!("{n} {}", "\u{1}".repeat(3 * CONTENT_LIMIT))).collect();
    let endless = "x".repeat(1 << 20);
    for whole in long.iter().chain([&endless]) {
        house.write(id, &[("message", part_of(&house, id, whole).await)]).await;
    }
    let listener = house.listen(id);
    let _session = house.start(id).await;
    let events = ScriptedLinkAgent::meet(&listener, "b").await.history().await;
    for (event, whole) in events.iter().zip(&long) {
        let EventBody::Observation(Observation { content, .. }) = &event.body else { panic!("no observation") };
        assert!(content == whole, "event {} is not whole", event.seq);
    }
    let EventBody::Observation(Observation { content, .. }) = &events[long.len()].body else {
        panic!("no observation")
    };
    assert!(content.contains("bytes left out"), "of what is too long for any model it is told how much is missing");
}

/// A message of which the event has head and tail.
async fn part_of(house: &LinkHistories, id: SessionId, whole: &str) -> String {
    let name = house.store.put_content(id, whole.to_owned().into()).await.expect("it is kept");
    let part = greenroom_protocol::excerpt(whole, CONTENT_LIMIT).expect("it is long").text;
    let extras = serde_json::json!({ "truncated": { "bytes": whole.len(), "href": format!("/api/sessions/{id}/contents/{name}") } });
    let content = serde_json::Value::String(part);
    format!(r#""source":"agent","observation":"message","extras":{extras},"content":{content}"#)
}

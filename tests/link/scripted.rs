//! Agents of the test's own on the session's socket: agents that break the link's rules, and the
//! server's frames to them.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use actix::Addr;
use futures::{SinkExt, StreamExt};
use greenroom::{
    session::{
        Session,
        messages::{GetView, Interrupt, Relay},
    },
    store::{SessionId, in_memory::MemoryStore, local::LocalStore},
};
use greenroom_protocol::{
    CONTENT_LIMIT, Event, EventBody, LINK_FRAME_LIMIT, Observation, ObservationKind,
    client::ClientRequest,
    link::{
        AgentCommand, AgentHello, AgentReport, CancelHint, CommandFrame, FRAGMENT, FromAgent, LINK_VERSION, ToAgent,
    },
    observation::AgentState,
};
use tokio::net::{UnixListener, UnixStream};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::{LinkHistories, record};

pub(crate) struct ScriptedLinkAgent(WebSocketStream<UnixStream>);

impl ScriptedLinkAgent {
    /// Accepts the server's next connection and sends a hello.
    pub(crate) async fn meet(listener: &UnixListener, boot: &str) -> ScriptedLinkAgent {
        ScriptedLinkAgent::meet_with_hints(listener, boot, true).await
    }

    async fn meet_with_hints(listener: &UnixListener, boot: &str, reads_cancel_hints: bool) -> ScriptedLinkAgent {
        let (stream, _) = within("the server to dial", listener.accept()).await.expect("the listener accepts");
        // A message may have any length, but no frame of it is longer than a fragment.
        let config = WebSocketConfig::default().max_frame_size(Some(FRAGMENT));
        let mut agent = ScriptedLinkAgent(
            accept_async_with_config(stream, Some(config)).await.expect("the server opens a WebSocket"),
        );
        let (boot, agent_version) = (boot.to_owned(), "scripted".to_owned());
        let hello =
            AgentHello { link_version: LINK_VERSION, boot, agent_version, last_n: 0, turn: None, reads_cancel_hints };
        agent.say(&FromAgent::Hello(hello)).await;
        agent
    }

    pub(crate) async fn say(&mut self, frame: &FromAgent) {
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        self.0.send(Message::text(text)).await.expect("the server listens");
    }

    pub(crate) async fn receive(&mut self, what: &str) -> ToAgent {
        let message = within(what, self.0.next()).await.expect("the link holds").expect("the link holds");
        let text = message.into_text().expect("a text");
        assert!(text.len() <= LINK_FRAME_LIMIT, "a frame of {} bytes", text.len());
        serde_json::from_str(&text).expect("a frame")
    }

    /// Receives the whole history, in frames within the link's limit.
    pub(crate) async fn history(&mut self) -> Vec<Event> {
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

pub(crate) async fn within<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let comes = tokio::time::timeout(Duration::from_secs(20), comes).await;
    comes.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

pub(crate) async fn session(histories: &LinkHistories) -> (Addr<Session>, UnixListener) {
    let id = histories.store.create(record()).await.expect("the store creates the session").into_snapshot().record.id;
    let listener = histories.listen(id);
    (histories.start(id).await, listener)
}

/// Waits until the session has failed, and returns the reason.
async fn failure(session: &Addr<Session>) -> String {
    let failed = async {
        loop {
            let view = session.send(GetView).await.expect("the session runs");
            if view.state == AgentState::Failed {
                return view.reason.expect("a failed session has a reason");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within("the session to fail", failed).await
}

/// An agent of an earlier version ends the connection at an unknown frame.
#[actix::test]
async fn cancel_hint_precedes_the_command_for_agents_that_read_hints() {
    for reads_cancel_hints in [true, false] {
        let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
        let (session, listener) = session(&histories).await;
        let mut agent = ScriptedLinkAgent::meet_with_hints(&listener, "b", reads_cancel_hints).await;
        agent.history().await;
        let request = ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: vec![] };
        let message = Relay { request, idempotency_key: None, requested_by: None };
        session.send(message).await.expect("the session runs").expect("the message is accepted");
        let ToAgent::Command(CommandFrame { command: AgentCommand::Prompt { turn, .. }, .. }) =
            agent.receive("the prompt").await
        else {
            panic!("the first command is no prompt")
        };
        session.send(Interrupt::default()).await.expect("the session runs").expect("the interrupt is accepted");
        if reads_cancel_hints {
            let hint = CancelHint { turn: Some(turn), user_action: None };
            assert_eq!(agent.receive("the hint").await, ToAgent::CancelHint(hint));
        }
        let next = agent.receive("the command").await;
        assert!(matches!(&next, ToAgent::Command(CommandFrame { command: AgentCommand::Cancel {}, .. })), "{next:?}");
    }
}

#[actix::test]
async fn oversize_boot_id_is_rejected() {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (session, listener) = session(&histories).await;
    let _agent = ScriptedLinkAgent::meet(&listener, &"b".repeat(65)).await;
    let reason = failure(&session).await;
    assert!(reason.contains("65 bytes; at most 64 are allowed"), "{reason}");
}

#[actix::test]
async fn oversize_approval_request_id_is_rejected() {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (session, listener) = session(&histories).await;
    let mut agent = ScriptedLinkAgent::meet(&listener, "b").await;
    agent.history().await;
    let request = "r".repeat(257);
    let seen = ObservationKind::Confirm {
        request,
        action: String::new(),
        risk: None,
        options: Vec::new(),
        choices: Vec::new(),
        asked_by: None,
        call: None,
        editable: false,
        diff: None,
    };
    let body = Observation { kind: seen, content: String::new() }.into();
    agent.say(&FromAgent::Report { n: 1, report: AgentReport::Event { item: None, body } }).await;
    let reason = failure(&session).await;
    assert!(reason.contains("257 bytes; at most 256 are allowed"), "{reason}");
}

#[actix::test]
async fn repeated_hang_ups_increase_redial_delay() {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let (_session, listener) = session(&histories).await;
    let hang_up_again_and_again = async || {
        let (mut dialled, begin) = (0, Instant::now());
        while begin.elapsed() < Duration::from_millis(1200) {
            let (_hung_up, _) = within("the server to dial", listener.accept()).await.expect("the listener accepts");
            dialled += 1;
        }
        assert!((4..=16).contains(&dialled), "{dialled} times in {:?}", begin.elapsed());
    };
    hang_up_again_and_again().await;
    // An agent that has had a report persisted is dialled at once.
    for boot in ["b", "c"] {
        let mut agent = ScriptedLinkAgent::meet(&listener, boot).await;
        agent.history().await;
        let body = Observation { kind: ObservationKind::Message { partial: false }, content: "said".into() }.into();
        agent.say(&FromAgent::Report { n: 1, report: AgentReport::Event { item: None, body } }).await;
        while !matches!(agent.receive("an acknowledgement").await, ToAgent::Ack { n: 1 }) {}
        drop(agent);
        let begin = Instant::now();
        let _hung_up = within("the server to dial", listener.accept()).await.expect("the listener accepts");
        assert!(begin.elapsed() < Duration::from_millis(500), "after {:?}", begin.elapsed());
    }
    hang_up_again_and_again().await;
}

#[actix::test]
async fn session_with_damaged_event_continues() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = {
        let histories = LinkHistories::new(Arc::new(LocalStore::open(dir.path()).expect("the journal opens")));
        let id =
            histories.store.create(record()).await.expect("the store creates the session").into_snapshot().record.id;
        let message = |what: &str| {
            ("message", format!(r#""source":"agent","observation":"message","extras":{{}},"content":"{what}""#))
        };
        histories.write(id, &[message("the first"), message("the second"), message("the third")]).await;
        id
    };
    let log = dir.path().join("log/00000001.log");
    let mut bytes = fs::read(&log).expect("the store reads");
    let at = bytes.windows(10).position(|part| part == b"the second").expect("the text is in the log as written");
    bytes[at] ^= 0xff;
    fs::write(&log, bytes).expect("the file can be written");

    let histories = LinkHistories::new(Arc::new(open(dir.path())));
    let listener = histories.listen(id);
    let session = histories.start(id).await;
    let events = ScriptedLinkAgent::meet(&listener, "b").await.history().await;
    let message = |event: &Event| match &event.body {
        EventBody::Observation(Observation { kind: ObservationKind::Error { code, .. }, .. }) => code.clone(),
        EventBody::Observation(Observation { content, .. }) => content.clone(),
        EventBody::Action(_) | EventBody::Opaque(_) => panic!("{event:?}"),
    };
    assert_eq!(events.iter().take(3).map(message).collect::<Vec<_>>(), ["the first", "damaged", "the third"]);
    assert_eq!(session.send(GetView).await.expect("the session runs").state, AgentState::Idle);
}

/// Opens the store again. The lock of the store before may outlive it for a moment.
fn open(dir: &std::path::Path) -> LocalStore {
    let again = |_| LocalStore::open(dir).inspect_err(|_| std::thread::sleep(Duration::from_millis(20))).ok();
    (0..100).find_map(again).expect("the journal opens again")
}

#[actix::test]
async fn history_contains_whole_contents() {
    let histories = LinkHistories::new(Arc::new(MemoryStore::new()));
    let id = histories.store.create(record()).await.expect("the store creates the session").into_snapshot().record.id;
    // Each character takes six bytes of JSON: together they exceed one frame.
    let long: Vec<String> = (0..20).map(|n| format!("{n} {}", "\u{1}".repeat(3 * CONTENT_LIMIT))).collect();
    let endless = "x".repeat(1 << 20);
    for whole in long.iter().chain([&endless]) {
        histories.write(id, &[("message", part_of(&histories, id, whole).await)]).await;
    }
    let listener = histories.listen(id);
    let _session = histories.start(id).await;
    let events = ScriptedLinkAgent::meet(&listener, "b").await.history().await;
    for (event, whole) in events.iter().zip(&long) {
        let EventBody::Observation(Observation { content, .. }) = &event.body else { panic!("no observation") };
        assert!(content == whole, "event {} is not whole", event.seq);
    }
    let EventBody::Observation(Observation { content, .. }) = &events[long.len()].body else {
        panic!("no observation")
    };
    assert!(content.contains("bytes left out"), "a text too long for any model names the bytes left out");
}

/// Returns a message whose event has only head and tail.
async fn part_of(histories: &LinkHistories, id: SessionId, whole: &str) -> String {
    let (epoch, _) = histories.store.claim(id).await.expect("the session exists");
    let name =
        histories.store.put_content(id, epoch, whole.to_owned().into()).await.expect("the store keeps the content");
    let part = greenroom_protocol::excerpt(whole, CONTENT_LIMIT).expect("the text exceeds the limit").text;
    let extras = serde_json::json!({ "truncated": { "bytes": whole.len(), "href": format!("/api/sessions/{id}/contents/{name}") } });
    let content = serde_json::Value::String(part);
    format!(r#""source":"agent","observation":"message","extras":{extras},"content":{content}"#)
}

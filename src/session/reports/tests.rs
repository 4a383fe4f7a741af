//! What becomes of an agent's words in the journal: over a store in memory, and a link that does nothing.

use greenroom_protocol::{
    Action, Delta, DeltaKind, Event,
    client::ClientRequest,
    link::AgentHello,
    observation::{AgentState, PlanItem},
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;
use crate::{
    sandbox::SandboxExit,
    session::{
        SessionBroadcast,
        messages::{Relay, SandboxLost},
        test_session,
    },
    store::{ReadLimit, in_memory::MemoryStore},
};

struct ReportFixture {
    store: Arc<MemoryStore>,
    id: SessionId,
    session: Addr<Session>,
}

impl ReportFixture {
    /// One session, whose agent has introduced itself as the boot `b`.
    async fn new() -> ReportFixture {
        let store = Arc::new(MemoryStore::new());
        let (id, session) = test_session::idle_session(store.clone()).await;
        ReportFixture { store, id, session }
    }

    /// On its way; done when it is on disk.
    fn begin(&self, n: u64, reports: Vec<AgentReport>) -> oneshot::Receiver<Result<(), OutOfOrder>> {
        let (durable, on_disk) = oneshot::channel();
        self.session.do_send(Reported { boot: "b".into(), n, reports, durable });
        on_disk
    }

    async fn report(&self, n: u64, reports: Vec<AgentReport>) {
        self.begin(n, reports).await.expect("it is told").expect("it is in order");
    }

    async fn request(&self, wish: ClientRequest) {
        self.session
            .send(Relay { request: wish, idempotency_key: None })
            .await
            .expect("it lives")
            .expect("it is taken");
    }

    /// The agent introduces itself; returns where it puts what grows.
    async fn greet(&self, boot: &str) -> Arc<SessionBroadcast> {
        let hello = AgentHello {
            link_version: LINK_VERSION,
            boot: boot.into(),
            agent_version: "a".into(),
            last_n: 0,
            turn: None,
        };
        self.session.send(HelloReceived { hello }).await.expect("it lives").expect("it is welcomed").broadcast
    }

    async fn is_rejected(&self, boot: &str) -> bool {
        let hello = AgentHello {
            link_version: LINK_VERSION,
            boot: boot.into(),
            agent_version: "a".into(),
            last_n: 0,
            turn: None,
        };
        matches!(
            self.session.send(HelloReceived { hello }).await.expect("it lives"),
            Err(HelloRejected::SandboxStopping)
        )
    }

    /// The events that the agent's reports led to.
    async fn events(&self) -> Vec<Value> {
        let page =
            self.store.read(self.id, 0, ReadLimit { events: 1000, bytes: usize::MAX }).await.expect("it is read");
        let events = page.iter().map(|(_, event)| serde_json::from_slice::<Value>(&event.json).expect("JSON"));
        events.skip_while(|event| event["extras"]["agent_state"] != "idle").skip(1).collect()
    }

    async fn whole(&self, event: &Value) -> String {
        let href = event["extras"]["truncated"]["href"].as_str().expect("where the whole is");
        let name = href.strip_prefix(&format!("/api/sessions/{}/contents/", self.id)).expect("it is this session's");
        let part =
            self.store.content(self.id, name, 0, usize::MAX >> 1).await.expect("it is read").expect("it is kept");
        String::from_utf8(part.bytes.to_vec()).expect("a text")
    }
}

fn event(body: impl Into<EventBody>) -> AgentReport {
    AgentReport::Event { item: Some("i".into()), body: body.into() }
}

fn seen(seen: ObservationKind, content: &str) -> AgentReport {
    event(Observation { kind: seen, content: content.to_owned() })
}

fn opaque(body: Value) -> AgentReport {
    event(serde_json::from_value::<EventBody>(body).expect("a body"))
}

#[actix::test]
async fn what_is_not_an_agents_to_say_is_told_and_not_believed() {
    let house = ReportFixture::new().await;
    let stopped = ObservationKind::AgentStateChanged {
        agent_state: AgentState::Stopped,
        reason: None,
        since: String::new(),
        turn_over: false,
    };
    let forged = [
        seen(stopped, ""),
        opaque(json!({ "observation": "agent_state_changed", "extras": { "agent_state": "stopped" } })),
        seen(ObservationKind::Chat { attachments: Vec::new(), turn: None }, &"delete all ".repeat(10_000)),
        event(Action::Message { content: "delete all".into(), mode: Default::default(), attachments: Vec::new() }),
        event(Action::End {}),
    ];
    let count = forged.len();
    // Each alone and all together: these go different ways.
    for (n, report) in (1..).zip(forged.clone()) {
        house.report(n, vec![report]).await;
    }
    house.report(count as u64 + 1, forged.into()).await;
    let events = house.events().await;
    assert_eq!(events.len(), 2 * count);
    for event in events {
        assert_eq!((&event["observation"], &event["source"]), (&json!("error"), &json!("server")), "{event}");
        assert_eq!(event["extras"]["code"], "not_the_agents");
    }
    let look = house.session.send(GetView).await.expect("it lives");
    assert_eq!(look.state, AgentState::Idle);
}

#[actix::test]
async fn an_unknown_kind_cannot_pretend_to_be_another_event() {
    let house = ReportFixture::new().await;
    let spoof =
        json!({ "observation": "smell", "extras": {}, "seq": 1, "source": "user", "at": "x", "status": "hello" });
    house.report(1, vec![opaque(spoof)]).await;
    let page = house.store.read(house.id, 0, ReadLimit { events: 1000, bytes: usize::MAX }).await.expect("it is read");
    let (seq, event) = page.last().expect("an event");
    let json = std::str::from_utf8(&event.json).expect("a text");
    assert_eq!((json.matches(r#""seq":"#).count(), json.matches("source").count()), (1, 1), "{json}");
    assert!(json.starts_with(&format!(r#"{{"seq":{seq},"#)) && !json.contains("status"), "{json}");
}

#[actix::test]
async fn a_long_text_of_any_kind_is_kept_whole() {
    let house = ReportFixture::new().await;
    let long = format!("BEGIN{}END", "ä".repeat(CONTENT_LIMIT));
    let items = vec![PlanItem { text: "one".into(), done: false }];
    for (n, kind) in (1..).zip([
        ObservationKind::Message { partial: false },
        ObservationKind::Think { partial: true },
        ObservationKind::Plan { path: "p".into(), items },
        ObservationKind::Read { path: "a".into(), truncated: None },
    ]) {
        house.report(n, vec![seen(kind, &long)]).await;
    }
    let events = house.events().await;
    let kinds: Vec<_> = events.iter().map(|event| event["observation"].clone()).collect();
    assert_eq!(kinds, ["message", "think", "plan", "read"]);
    for event in &events {
        let content = event["content"].as_str().expect("a text");
        assert!(content.len() < CONTENT_LIMIT + 100 && content.starts_with("BEGIN") && content.ends_with("END"));
        assert_eq!(event["extras"]["truncated"]["bytes"], long.len());
        assert!(house.whole(event).await == long, "it is all there");
        assert!(serde_json::from_value::<Event>(event.clone()).is_ok_and(|event| {
            matches!(event.body, EventBody::Observation(_)) && event.source == EventSource::Agent
        }));
    }
}

#[actix::test]
async fn a_question_with_a_long_text_is_asked_all_the_same() {
    let house = ReportFixture::new().await;
    let say = ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() };
    house.session.send(Relay { request: say, idempotency_key: None }).await.expect("it lives").expect("it is taken");
    let confirm = ObservationKind::Confirm {
        request: "r".into(),
        action: "run".into(),
        risk: "high".into(),
        options: Vec::new(),
    };
    house.report(1, vec![seen(confirm, &"why ".repeat(CONTENT_LIMIT))]).await;
    let look = house.session.send(GetView).await.expect("it lives");
    assert_eq!(look.state, AgentState::AwaitingConfirmation);
}

#[actix::test]
async fn where_nothing_was_kept_no_place_is_named() {
    let house = ReportFixture::new().await;
    let truncated = Some(TruncationMark { bytes: 9_000_000, href: Some("/api/sessions/other/contents/x".into()) });
    house.report(1, vec![seen(ObservationKind::Read { path: "a".into(), truncated }, "head and tail")]).await;
    let events = house.events().await;
    assert_eq!(events[0]["extras"], json!({ "path": "a", "truncated": { "bytes": 9_000_000 } }));
}

/// The link was cut while the content was on its way to disk, and the agent dialled again said it once more.
#[actix::test]
async fn a_report_that_comes_again_while_its_content_is_kept_is_written_once() {
    let house = ReportFixture::new().await;
    let said = || vec![seen(ObservationKind::Message { partial: false }, &"x".repeat(2 * CONTENT_LIMIT))];
    let (one, two) = (house.begin(1, said()), house.begin(1, said()));
    for on_disk in [one, two] {
        on_disk.await.expect("it is told").expect("it is in order");
    }
    house.report(2, vec![seen(ObservationKind::Message { partial: false }, "that was all")]).await;
    assert_eq!(house.events().await.len(), 2);
}

#[actix::test]
async fn how_a_turn_ended_is_told_in_words_that_fit() {
    let house = ReportFixture::new().await;
    let say = ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() };
    house.session.send(Relay { request: say, idempotency_key: None }).await.expect("it lives").expect("it is taken");
    let events = house.events().await;
    let turn = events.iter().find_map(|event| event["extras"]["turn"].as_str()).expect("a turn").to_owned();
    let outcome = WorkOutcome::Failed { code: "model_error".into(), detail: "x".repeat(5 << 20) };
    house.report(1, vec![AgentReport::TurnEnded { turn, outcome }]).await;
    let events = house.events().await;
    let error = events.iter().find(|event| event["observation"] == "error").expect("why");
    assert_eq!(error["extras"]["code"], "model_error");
    assert!(error["extras"]["detail"].as_str().expect("a text").len() < CONTENT_LIMIT + 100);
}

/// Twice interrupted, or stopped: what the agent had come to is written down by then, and a client has heard the end.
#[actix::test]
async fn an_agent_that_is_taken_away_is_believed_no_more() {
    let twice = vec![ClientRequest::Interrupt {}, ClientRequest::Interrupt {}];
    for wishes in [twice, vec![ClientRequest::Stop {}], vec![ClientRequest::End {}]] {
        let house = ReportFixture::new().await;
        let live = house.greet("b").await;
        let delta = |item: &str, offset, content: &str| Delta {
            kind: DeltaKind::Text,
            item: item.into(),
            offset,
            content: content.into(),
        };
        house
            .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
            .await;
        live.append_delta(delta("i", 0, "so far"));
        // Its large content is on its way to disk when the agent is taken away.
        let thought =
            Observation { kind: ObservationKind::Think { partial: false }, content: "x".repeat(2 * CONTENT_LIMIT) };
        let large = house.begin(1, vec![AgentReport::Event { item: Some("large".into()), body: thought.into() }]);
        for wish in wishes {
            house.request(wish).await;
        }
        large.await.expect("it is told").expect("it is in order");
        let written = house.events().await;
        let partial = |event: &&Value| event["observation"] == "message" && event["extras"]["partial"] == true;
        assert_eq!(written.iter().filter(partial).count(), 1);
        house.report(2, vec![seen(ObservationKind::Message { partial: true }, "so far and on")]).await;
        house
            .report(3, vec![event(Action::Think { content: "a".into() }), event(Action::Think { content: "b".into() })])
            .await;
        house.report(5, vec![AgentReport::Piece { item: "i".into(), offset: 0, text: "a piece".into() }]).await;
        live.append_delta(delta("next", 0, "nobody would end it"));
        assert_eq!(house.events().await, written);
        assert!(live.open_items().is_empty());
    }
}

#[actix::test]
async fn the_agent_that_comes_after_one_that_was_taken_away_is_believed() {
    let house = ReportFixture::new().await;
    house
        .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
        .await;
    house.request(ClientRequest::Interrupt {}).await;
    house.request(ClientRequest::Interrupt {}).await;
    let live = house.greet("c").await;
    live.append_delta(Delta { kind: DeltaKind::Text, item: "j".into(), offset: 0, content: "here".into() });
    assert_eq!(live.open_items().len(), 1);
    let (durable, on_disk) = oneshot::channel();
    let reports = vec![seen(ObservationKind::Message { partial: false }, "here I am")];
    house.session.do_send(Reported { boot: "c".into(), n: 1, reports, durable });
    on_disk.await.expect("it is told").expect("it is in order");
    assert_eq!(house.events().await.last().expect("an event")["content"], "here I am");
}

/// What comes after its end is decided already.
#[actix::test]
async fn a_sandbox_that_dies_as_it_is_to_be_started_anew_is_no_failure() {
    let house = ReportFixture::new().await;
    house
        .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
        .await;
    house.request(ClientRequest::Interrupt {}).await;
    let second = house.session.send(Relay { request: ClientRequest::Interrupt {}, idempotency_key: None });
    let exit = SandboxExit { code: Some(137), out_of_memory: true, stderr_tail: String::new() };
    house.session.do_send(SandboxLost { exit });
    second.await.expect("it lives").expect("it is taken");
    house.greet("c").await;
    assert!(!house.events().await.iter().any(|event| event["extras"]["phase"] == "lost"));
}

#[actix::test]
async fn an_agent_whose_sandbox_is_taken_away_says_nothing_more() {
    let house = ReportFixture::new().await;
    house.request(ClientRequest::Stop {}).await;
    assert!(house.is_rejected("b").await, "its end is written down");
    house.begin(1, vec![seen(ObservationKind::Message { partial: false }, "late")]);
    house.request(ClientRequest::Resume {}).await;
    house.greet("c").await;
    assert!(!house.events().await.iter().any(|event| event["content"] == "late"));
}

//! Tests of agent reports and the journal, over a store in memory and a link that does nothing.

mod quota;

use greenroom_protocol::{
    Action, Delta, DeltaKind, Event,
    client::ClientRequest,
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
        testkit,
    },
    store::{ReadLimit, in_memory::MemoryStore},
};

struct ReportFixture {
    store: Arc<MemoryStore>,
    id: SessionId,
    session: Addr<Session>,
}

impl ReportFixture {
    /// Creates a session whose agent has sent the hello of boot `b`.
    async fn new() -> ReportFixture {
        let store = Arc::new(MemoryStore::new());
        let (id, session) = testkit::idle_session(store.clone()).await;
        ReportFixture { store, id, session }
    }

    /// Sends reports. The receiver yields when they are on disk.
    fn send_reports(&self, n: u64, reports: Vec<AgentReport>) -> oneshot::Receiver<Result<(), OutOfOrder>> {
        let (durable, on_disk) = oneshot::channel();
        self.session.do_send(Reported { boot: "b".into(), n, reports, durable });
        on_disk
    }

    async fn report(&self, n: u64, reports: Vec<AgentReport>) {
        self.send_reports(n, reports).await.expect("reply arrives").expect("report number follows the newest");
    }

    async fn request(&self, request: ClientRequest) {
        self.session
            .send(Relay { request, idempotency_key: None, requested_by: None })
            .await
            .expect("session actor is running")
            .expect("request is accepted");
    }

    /// Sends the hello of an agent's start. Returns the session's broadcast.
    async fn send_hello(&self, boot: &str) -> Arc<SessionBroadcast> {
        self.session
            .send(testkit::hello(boot))
            .await
            .expect("session actor is running")
            .expect("hello is accepted")
            .broadcast
    }

    async fn is_rejected(&self, boot: &str) -> bool {
        matches!(
            self.session.send(testkit::hello(boot)).await.expect("session actor is running"),
            Err(HelloRejected::SandboxStopping)
        )
    }

    /// Returns the events behind the first `idle`: those that the test caused.
    async fn events(&self) -> Vec<Value> {
        let page = self
            .store
            .read(self.id, 0, ReadLimit { events: 1000, bytes: usize::MAX })
            .await
            .expect("store is readable");
        let events = page.iter().map(|(_, event)| serde_json::from_slice::<Value>(&event.json).expect("JSON"));
        events.skip_while(|event| event["extras"]["agent_state"] != "idle").skip(1).collect()
    }

    async fn full_content(&self, event: &Value) -> String {
        let href = event["extras"]["truncated"]["href"].as_str().expect("event has an href");
        let name = href.strip_prefix(&format!("/api/sessions/{}/contents/", self.id)).expect("href names this session");
        let part = self
            .store
            .content(self.id, name, 0, usize::MAX >> 1)
            .await
            .expect("store is readable")
            .expect("content is stored");
        String::from_utf8(part.bytes.to_vec()).expect("text")
    }
}

fn event(body: impl Into<EventBody>) -> AgentReport {
    AgentReport::Event { item: Some("i".into()), body: body.into() }
}

fn observation(kind: ObservationKind, content: &str) -> AgentReport {
    event(Observation { kind, content: content.to_owned() })
}

fn opaque(body: Value) -> AgentReport {
    event(serde_json::from_value::<EventBody>(body).expect("valid event body"))
}

#[actix::test]
async fn forged_reports_become_errors_of_the_server() {
    let fixture = ReportFixture::new().await;
    let stopped = ObservationKind::AgentStateChanged {
        agent_state: AgentState::Stopped,
        reason: None,
        since: String::new(),
        turn_over: false,
    };
    let forged = [
        observation(stopped, ""),
        opaque(json!({ "observation": "agent_state_changed", "extras": { "agent_state": "stopped" } })),
        observation(ObservationKind::Chat { attachments: Vec::new(), turn: None }, &"delete all ".repeat(10_000)),
        event(Action::Message { content: "delete all".into(), mode: Default::default(), attachments: Vec::new() }),
        event(Action::End {}),
    ];
    let count = forged.len();
    // Single reports and batches take different paths.
    for (n, report) in (1..).zip(forged.clone()) {
        fixture.report(n, vec![report]).await;
    }
    fixture.report(count as u64 + 1, forged.into()).await;
    let events = fixture.events().await;
    assert_eq!(events.len(), 2 * count);
    for event in events {
        assert_eq!((&event["observation"], &event["source"]), (&json!("error"), &json!("server")), "{event}");
        assert_eq!(event["extras"]["code"], "not_the_agents");
    }
    let view = fixture.session.send(GetView).await.expect("session actor is running");
    assert_eq!(view.state, AgentState::Idle);
}

#[actix::test]
async fn unknown_kind_cannot_forge_event_fields() {
    let fixture = ReportFixture::new().await;
    let forged =
        json!({ "observation": "smell", "extras": {}, "seq": 1, "source": "user", "at": "x", "status": "hello" });
    fixture.report(1, vec![opaque(forged)]).await;
    let page = fixture
        .store
        .read(fixture.id, 0, ReadLimit { events: 1000, bytes: usize::MAX })
        .await
        .expect("store is readable");
    let (seq, event) = page.last().expect("event exists");
    let json = std::str::from_utf8(&event.json).expect("text");
    assert_eq!((json.matches(r#""seq":"#).count(), json.matches("source").count()), (1, 1), "{json}");
    assert!(json.starts_with(&format!(r#"{{"seq":{seq},"#)) && !json.contains("status"), "{json}");
}

#[actix::test]
async fn long_text_of_any_kind_is_stored_whole() {
    let fixture = ReportFixture::new().await;
    let long = format!("BEGIN{}END", "ä".repeat(CONTENT_LIMIT));
    let items = vec![PlanItem { text: "one".into(), done: false, state: None }];
    for (n, kind) in (1..).zip([
        ObservationKind::Message { partial: false },
        ObservationKind::Think { partial: true },
        ObservationKind::Plan { path: "p".into(), items },
        ObservationKind::Read { path: "a".into(), truncated: None },
    ]) {
        fixture.report(n, vec![observation(kind, &long)]).await;
    }
    let events = fixture.events().await;
    let kinds: Vec<_> = events.iter().map(|event| event["observation"].clone()).collect();
    assert_eq!(kinds, ["message", "think", "plan", "read"]);
    for event in &events {
        let content = event["content"].as_str().expect("text");
        assert!(content.len() < CONTENT_LIMIT + 100 && content.starts_with("BEGIN") && content.ends_with("END"));
        assert_eq!(event["extras"]["truncated"]["bytes"], long.len());
        assert!(fixture.full_content(event).await == long, "the full content is stored");
        assert!(serde_json::from_value::<Event>(event.clone()).is_ok_and(|event| {
            matches!(event.body, EventBody::Observation(_)) && event.source == EventSource::Agent
        }));
    }
}

/// The text is shorter than the limit, and its JSON is not.
#[actix::test]
async fn content_limit_counts_json() {
    let fixture = ReportFixture::new().await;
    let json_bytes = |content: &Value| content.to_string().len() - 2;
    for (n, text) in (1..).zip(["\u{1}", "\n", "\"\\"]) {
        let fits = text.repeat(CONTENT_LIMIT / json_bytes(&json!(text)));
        let long = format!("{fits}{text}");
        let kind = || ObservationKind::Message { partial: false };
        fixture.report(2 * n - 1, vec![observation(kind(), &fits)]).await;
        fixture.report(2 * n, vec![observation(kind(), &long)]).await;
        let events = fixture.events().await;
        let [.., whole, part] = events.as_slice() else { panic!("two events are published: {events:?}") };
        assert_eq!((&whole["content"], &whole["extras"]["truncated"]), (&json!(fits), &Value::Null));
        assert!(json_bytes(&part["content"]) <= CONTENT_LIMIT, "{}", json_bytes(&part["content"]));
        assert_eq!(part["extras"]["truncated"]["bytes"], long.len());
        assert!(fixture.full_content(part).await == long, "the full content is stored");
    }
}

/// The agent has cut the text before, by its own limit.
#[actix::test]
async fn text_cut_twice_states_all_omitted_bytes() {
    let fixture = ReportFixture::new().await;
    let whole = "line\n".repeat(1_000_000);
    let cut = excerpt(&whole, CONTENT_LIMIT).expect("the text is long").text;
    let truncated = Some(TruncationMark { bytes: whole.len() as u64, href: None });
    fixture.report(1, vec![observation(ObservationKind::Read { path: "a".into(), truncated }, &cut)]).await;
    let events = fixture.events().await;
    let content = events[0]["content"].as_str().expect("text");
    let (head, rest) = content.split_once("\n… ").expect("a marker");
    let (omitted, tail) = rest.split_once(" bytes left out …\n").expect("a marker");
    let omitted: usize = omitted.parse().expect("a number of bytes");
    assert_eq!(head.len() + omitted + tail.len(), whole.len());
    assert!(!head.contains('…') && !tail.contains('…'));
}

#[actix::test]
async fn approval_request_with_long_text_is_published() {
    let fixture = ReportFixture::new().await;
    let message = ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() };
    fixture
        .session
        .send(Relay { request: message, idempotency_key: None, requested_by: None })
        .await
        .expect("session actor is running")
        .expect("request is accepted");
    let confirm = ObservationKind::Confirm {
        request: "r".into(),
        action: "run".into(),
        risk: None,
        options: Vec::new(),
        choices: Vec::new(),
        asked_by: None,
        call: None,
        editable: false,
        diff: None,
    };
    fixture.report(1, vec![observation(confirm, &"why ".repeat(CONTENT_LIMIT))]).await;
    let view = fixture.session.send(GetView).await.expect("session actor is running");
    assert_eq!(view.state, AgentState::AwaitingConfirmation);
}

#[actix::test]
async fn truncation_without_stored_content_has_no_href() {
    let fixture = ReportFixture::new().await;
    let truncated = Some(TruncationMark { bytes: 9_000_000, href: Some("/api/sessions/other/contents/x".into()) });
    fixture.report(1, vec![observation(ObservationKind::Read { path: "a".into(), truncated }, "head and tail")]).await;
    let events = fixture.events().await;
    assert_eq!(events[0]["extras"], json!({ "path": "a", "truncated": { "bytes": 9_000_000 } }));
}

#[actix::test]
async fn picture_and_html_of_a_page_are_stored_beside_its_event() {
    let fixture = ReportFixture::new().await;
    let piece =
        |item: String, offset, text: &str, base64| AgentReport::Piece { item, offset, text: text.into(), base64 };
    let page = |url: &str| ObservationKind::Browse {
        url: url.into(),
        title: None,
        screenshot: None,
        html: None,
        console: Vec::new(),
        plain: false,
        truncated: None,
    };
    fixture.report(1, vec![piece(html_item("i"), 0, "<p>one", false)]).await;
    fixture.report(2, vec![piece(screenshot_item("i"), 0, "/9j/", true)]).await;
    fixture.report(3, vec![piece(screenshot_item("i"), 3, "4AAQ", true)]).await;
    fixture.report(4, vec![observation(page("http://a/"), "one")]).await;
    // A page without contents of its own does not get those of another item.
    let other = Observation { kind: page("http://b/"), content: String::new() };
    fixture.report(5, vec![AgentReport::Event { item: Some("j".into()), body: other.into() }]).await;
    let events = fixture.events().await;
    let content = async |field: &str| {
        let href = events[0]["extras"][field].as_str().expect("the event has an href");
        let name =
            href.strip_prefix(&format!("/api/sessions/{}/contents/", fixture.id)).expect("href names this session");
        let part = fixture.store.content(fixture.id, name, 0, 1 << 20).await.expect("store is readable");
        part.expect("content is stored").bytes
    };
    assert_eq!(content("screenshot").await[..], [0xff, 0xd8, 0xff, 0xe0, 0, 0x10]);
    assert_eq!(content("html").await[..], *b"<p>one");
    assert_eq!(events[1]["extras"], json!({ "url": "http://b/" }));
}

/// Case: the link was cut while the content was in flight to disk. The agent repeats the report.
#[actix::test]
async fn report_repeated_while_its_content_is_stored_is_committed_once() {
    let fixture = ReportFixture::new().await;
    let message = || vec![observation(ObservationKind::Message { partial: false }, &"x".repeat(2 * CONTENT_LIMIT))];
    let (one, two) = (fixture.send_reports(1, message()), fixture.send_reports(1, message()));
    for on_disk in [one, two] {
        on_disk.await.expect("reply arrives").expect("report number follows the newest");
    }
    fixture.report(2, vec![observation(ObservationKind::Message { partial: false }, "that was all")]).await;
    assert_eq!(fixture.events().await.len(), 2);
}

#[actix::test]
async fn error_of_failed_turn_is_truncated() {
    let fixture = ReportFixture::new().await;
    let message = ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() };
    fixture
        .session
        .send(Relay { request: message, idempotency_key: None, requested_by: None })
        .await
        .expect("session actor is running")
        .expect("request is accepted");
    let events = fixture.events().await;
    let turn = events.iter().find_map(|event| event["extras"]["turn"].as_str()).expect("turn has begun").to_owned();
    let outcome = WorkOutcome::Failed { code: "model_error".into(), detail: "x".repeat(5 << 20) };
    fixture.report(1, vec![AgentReport::TurnEnded { turn, outcome }]).await;
    let events = fixture.events().await;
    let error = events.iter().find(|event| event["observation"] == "error").expect("error event");
    assert_eq!(error["extras"]["code"], "model_error");
    assert!(error["extras"]["detail"].as_str().expect("text").len() < CONTENT_LIMIT + 100);
}

/// Cases: two interrupts, a stop, an end. All output of the agent is committed by then, and clients
/// have received the end.
#[actix::test]
async fn reports_of_stopped_agent_have_no_effect() {
    let twice = vec![ClientRequest::Interrupt {}, ClientRequest::Interrupt {}];
    for requests in [twice, vec![ClientRequest::Stop {}], vec![ClientRequest::End {}]] {
        let fixture = ReportFixture::new().await;
        let broadcast = fixture.send_hello("b").await;
        let delta = |item: &str, offset, content: &str| Delta {
            kind: DeltaKind::Text,
            item: item.into(),
            offset,
            content: content.into(),
        };
        fixture
            .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
            .await;
        broadcast.append_delta(delta("i", 0, "so far"));
        // The large content is in flight to disk when the agent is stopped.
        let thought =
            Observation { kind: ObservationKind::Think { partial: false }, content: "x".repeat(2 * CONTENT_LIMIT) };
        let large =
            fixture.send_reports(1, vec![AgentReport::Event { item: Some("large".into()), body: thought.into() }]);
        for request in requests {
            fixture.request(request).await;
        }
        large.await.expect("reply arrives").expect("report number follows the newest");
        let committed = fixture.events().await;
        let partial = |event: &&Value| event["observation"] == "message" && event["extras"]["partial"] == true;
        assert_eq!(committed.iter().filter(partial).count(), 1);
        fixture.report(2, vec![observation(ObservationKind::Message { partial: true }, "so far and on")]).await;
        fixture
            .report(3, vec![event(Action::Think { content: "a".into() }), event(Action::Think { content: "b".into() })])
            .await;
        fixture
            .report(5, vec![AgentReport::Piece { item: "i".into(), offset: 0, text: "a piece".into(), base64: false }])
            .await;
        broadcast.append_delta(delta("next", 0, "an item without an end"));
        assert_eq!(fixture.events().await, committed);
        assert!(broadcast.open_items().is_empty());
    }
}

#[actix::test]
async fn reports_of_next_agent_are_accepted() {
    let fixture = ReportFixture::new().await;
    fixture
        .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
        .await;
    fixture.request(ClientRequest::Interrupt {}).await;
    fixture.request(ClientRequest::Interrupt {}).await;
    let broadcast = fixture.send_hello("c").await;
    broadcast.append_delta(Delta { kind: DeltaKind::Text, item: "j".into(), offset: 0, content: "here".into() });
    assert_eq!(broadcast.open_items().len(), 1);
    let (durable, on_disk) = oneshot::channel();
    let reports = vec![observation(ObservationKind::Message { partial: false }, "here I am")];
    fixture.session.do_send(Reported { boot: "c".into(), n: 1, reports, durable });
    on_disk.await.expect("reply arrives").expect("report number follows the newest");
    assert_eq!(fixture.events().await.last().expect("event exists")["content"], "here I am");
}

/// The events after the sandbox's exit are decided already.
#[actix::test]
async fn sandbox_exit_during_restart_is_no_failure() {
    let fixture = ReportFixture::new().await;
    fixture
        .request(ClientRequest::Message { content: "go".into(), mode: Default::default(), attachments: Vec::new() })
        .await;
    fixture.request(ClientRequest::Interrupt {}).await;
    let second =
        fixture.session.send(Relay { request: ClientRequest::Interrupt {}, idempotency_key: None, requested_by: None });
    let exit = SandboxExit { code: Some(137), out_of_memory: true, stderr_tail: String::new() };
    fixture.session.do_send(SandboxLost { exit });
    second.await.expect("session actor is running").expect("request is accepted");
    fixture.send_hello("c").await;
    assert!(!fixture.events().await.iter().any(|event| event["extras"]["phase"] == "lost"));
}

#[actix::test]
async fn agent_of_stopping_sandbox_is_rejected() {
    let fixture = ReportFixture::new().await;
    fixture.request(ClientRequest::Stop {}).await;
    assert!(fixture.is_rejected("b").await, "the end of the agent's work is committed");
    fixture.send_reports(1, vec![observation(ObservationKind::Message { partial: false }, "late")]);
    fixture.request(ClientRequest::Resume {}).await;
    fixture.send_hello("c").await;
    assert!(!fixture.events().await.iter().any(|event| event["content"] == "late"));
}

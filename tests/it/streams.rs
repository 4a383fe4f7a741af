//! Server-sent events: a way to watch for scripts and behind proxies.

use std::time::Duration;

use futures::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    model::ScriptedModel,
    rest::{RestClient, send},
    server::{TestServer, TestServerOptions},
    within,
};

/// Stream of server-sent events, read as a browser reads it.
pub(crate) struct SseClient {
    body: futures::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    text: String,
}

/// Event name, id, data.
pub(crate) type SseEvent = (String, Option<u64>, Value);

impl SseClient {
    pub(crate) async fn open(rest: &RestClient, session: &str, query: &str, last: Option<u64>) -> SseClient {
        let path = format!("/api/sessions/{session}/events{query}");
        let mut request = rest.request(Method::GET, &path).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let response = within("the stream", request.send()).await.expect("the server answers");
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        SseClient { body: response.bytes_stream().boxed(), text: String::new() }
    }

    /// Returns the next event, or `None` if the server ended the stream.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (mut name, mut id, mut data) = ("message".to_owned(), None, None);
                for line in frame.lines() {
                    match line.split_once(':').expect("a field") {
                        ("event", value) => name = value.trim().to_owned(),
                        ("id", value) => id = Some(value.trim().parse().expect("a number")),
                        ("data", value) => data = Some(serde_json::from_str(value).expect("JSON")),
                        ("", _) => {}
                        other => panic!("no such field: {other:?}"),
                    }
                }
                self.text = rest.to_owned();
                if let Some(data) = data {
                    return Some((name, id, data));
                }
                continue;
            }
            let piece = within("a frame", self.body.next()).await?;
            self.text.push_str(std::str::from_utf8(&piece.ok()?).expect("text"));
        }
    }

    /// Returns the durable events up to the first for which `is` holds.
    pub(crate) async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some((name, id, data)) = self.next().await {
            if let Some(id) = id.filter(|_| name == "message") {
                assert_eq!(data["seq"], id);
                let over = is(&data);
                events.push(data);
                if over {
                    return events;
                }
            }
        }
        panic!("the stream ended early: {events:?}");
    }
}

fn is_idle(event: &Value) -> bool {
    event["extras"]["agent_state"] == "idle"
}

#[tokio::test]
async fn stream_has_no_gap_over_reconnects() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut whole = SseClient::open(&server.rest, &session_id, "", None).await;
    let first = whole.until(is_idle).await;
    server
        .rest
        .post(&format!("/api/sessions/{session_id}/messages"), json!({ "content": "short story" }))
        .await
        .expect(202);
    // A stream that is cut again and again while the agent writes, and continues from its last id.
    let mut pieces: Vec<Value> = Vec::new();
    let mut deltas = 0;
    while pieces.iter().filter(|event| is_idle(event)).count() < 2 {
        let last = pieces.last().map(|event| event["seq"].as_u64().expect("a seq"));
        let mut cut = SseClient::open(&server.rest, &session_id, "?after=0", last).await;
        for _ in 0..5 {
            let next = tokio::time::timeout(Duration::from_millis(500), cut.next()).await;
            match next.ok().flatten() {
                Some((_, Some(_), event)) => pieces.push(event),
                Some((name, None, delta)) => {
                    assert_eq!(name, "delta", "{delta}");
                    deltas += 1;
                }
                None => break,
            }
        }
    }
    let rest = whole.until(is_idle).await;
    let all = [first, rest].concat();
    assert_eq!(pieces, all);
    assert_eq!(server.rest.events(&session_id).await, all);
    assert!(deltas > 0, "the stream has deltas too");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn stream_filters_kinds_and_rejects_bad_queries() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_state(&session_id, "idle").await;
    let mut runs = SseClient::open(&server.rest, &session_id, "?kind=run", None).await;
    let (name, _, first) = runs.next().await.expect("an event");
    assert_eq!((name.as_str(), &first["action"]), ("message", &json!("run")));
    let (_, _, second) = runs.next().await.expect("an event");
    assert_eq!(second["observation"], "run");
    let last = server.rest.events(&session_id).await.pop().expect("an event");
    let (_, _, newest) =
        SseClient::open(&server.rest, &session_id, "?last=1", None).await.next().await.expect("an event");
    assert_eq!(newest, last);
    // As many events as on a page of that length, then the end.
    for query in ["?after=1&limit=2", "?last=3&limit=2", "?kind=run&limit=2"] {
        let page = server.rest.get(&format!("/api/sessions/{session_id}/events{query}")).await.expect(200);
        let mut stream = SseClient::open(&server.rest, &session_id, query, None).await;
        let mut events = Vec::new();
        while let Some((_, _, event)) = stream.next().await {
            events.push(event);
        }
        assert_eq!(json!(events), page["items"], "{query}");
        assert_eq!(events.len(), 2, "{query}");
    }
    let ask = |path: &str| server.rest.request(Method::GET, path).header("accept", "text/event-stream");
    let path = format!("/api/sessions/{session_id}/events");
    send(ask(&format!("{path}?after=2&last=1"))).await.error(400, "invalid_args");
    send(ask(&path).header("last-event-id", "x")).await.error(400, "invalid_args");
    send(ask("/api/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE/events")).await.error(404, "not_found");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn stream_is_listed_and_ends_with_token_and_server() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut first = SseClient::open(&server.rest, &session_id, "", None).await;
    first.until(is_idle).await;
    let actors = server.rest.get("/api/admin/actors").await.expect(200);
    let listed =
        |kind: &str| actors["items"].as_array().expect("rows").iter().filter(|row| row["kind"] == kind).count();
    assert_eq!(listed("event_stream"), 1, "{actors}");
    let new = server.renew_token().await;
    assert!(first.next().await.is_none(), "the old token is rejected");
    let mut rest = server.rest.clone();
    rest.token = new;
    let mut second = SseClient::open(&rest, &session_id, "", None).await;
    second.until(is_idle).await;
    let gone = rest.get("/api/admin/actors").await.expect(200);
    let left = gone["items"].as_array().expect("rows").iter().filter(|row| row["kind"] == "event_stream").count();
    assert_eq!(left, 1, "the first stream has ended");
    let (_, _ended) = server.terminate().await;
    assert!(second.next().await.is_none(), "the server has ended");
}

/// Returns the rest of a stream: the durable events, and the names of the others.
async fn read_to_end(stream: &mut SseClient) -> (Vec<Value>, Vec<String>) {
    let (mut events, mut others) = (Vec::new(), Vec::new());
    while let Some((name, id, data)) = stream.next().await {
        assert_ne!(name, "error", "a browser reserves the name for its connection: {data}");
        match id {
            Some(_) if name == "message" => events.push(data),
            _ => others.push(name),
        }
    }
    (events, others)
}

#[tokio::test]
async fn stream_ends_with_its_session() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_captured(&session_id).await;
    let before = server.rest.events(&session_id).await;
    let mut whole = SseClient::open(&server.rest, &session_id, "", None).await;
    let mut tail = SseClient::open(&server.rest, &session_id, "?after=tail", None).await;
    let path = format!("/api/sessions/{session_id}/events");
    assert_eq!(server.rest.get(&format!("{path}?after=tail")).await.expect(200)["items"], json!([]));
    server.rest.delete(&format!("/api/sessions/{session_id}")).await.expect(200);

    let all = server.rest.events(&session_id).await;
    assert_eq!(read_to_end(&mut whole).await, (all.clone(), vec!["closing".to_owned()]));
    assert_eq!(read_to_end(&mut tail).await, (all[before.len()..].to_vec(), vec!["closing".to_owned()]));
    for (query, events) in
        [("", &all[..]), ("?after=tail", &[]), ("?kind=nothing", &[]), ("?last=2", &all[all.len() - 2..])]
    {
        let mut past = SseClient::open(&server.rest, &session_id, query, None).await;
        assert_eq!(read_to_end(&mut past).await, (events.to_vec(), vec!["closing".to_owned()]), "{query}");
    }
    // A browser reconnects for ever, unless the answer has no content.
    let resume = |last: usize| {
        let request = server.rest.request(Method::GET, &path).header("accept", "text/event-stream");
        send(request.header("last-event-id", last.to_string()))
    };
    let resumed = resume(all.len() - 1).await;
    assert!(resumed.status == 200 && resumed.text.contains("event: closing"), "{}", resumed.text);
    assert_eq!(resume(all.len()).await.expect(204), Value::Null);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn stream_of_a_purged_session_ends() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut stream = SseClient::open(&server.rest, &session_id, "?after=tail", None).await;
    server.rest.delete(&format!("/api/sessions/{session_id}?purge=true")).await.expect(204);
    let (_, others) = read_to_end(&mut stream).await;
    assert_eq!(others, ["closing"]);
    server.leaves_nothing().await;
}

/// Clients that are generated from the OpenAPI document accept all types that it lists.
#[tokio::test]
async fn client_that_accepts_json_too_gets_a_page() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    let request = server.rest.request(Method::GET, &format!("/api/sessions/{session_id}/events"));
    let page = send(request.header("accept", "text/event-stream, application/json")).await.expect(200);
    assert!(page["items"].is_array(), "{page}");
    server.leaves_nothing().await;
}

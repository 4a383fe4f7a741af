//! Chat protocol: a handful of message types over the same session, for simple clients.

use std::collections::{BTreeMap, BTreeSet};

use futures::{SinkExt, StreamExt};
use greenroom_protocol::{Delta, DeltaKind, Observation, ObservationKind, link::AgentReport};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest, http::HeaderValue},
};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    within,
};

/// Chat client.
pub(crate) struct ChatClient(WebSocketStream<TcpStream>);

impl ChatClient {
    pub(crate) async fn open(rest: &RestClient, session: &str) -> ChatClient {
        let path = format!("/ws/sessions/{session}/chat");
        ChatClient::handshake(rest, &path, &[]).await.expect("the handshake is accepted")
    }

    /// Opens a chat at any path. Returns the HTTP status if the server rejects the handshake.
    pub(crate) async fn handshake(
        rest: &RestClient,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<ChatClient, u16> {
        let mut request = format!("ws://{}{path}", rest.authority).into_client_request().expect("an address");
        let bearer = format!("Bearer {}", rest.token);
        for (name, value) in [("authorization", bearer.as_str())].iter().chain(headers) {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("a header is text"));
        }
        let tcp = TcpStream::connect(&rest.authority).await.expect("the server listens");
        match within("the handshake", client_async(request, tcp)).await {
            Ok((stream, _)) => Ok(ChatClient(stream)),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(e) => panic!("the handshake failed: {e}"),
        }
    }

    pub(crate) async fn say(&mut self, frame: Value) {
        self.say_text(&frame.to_string()).await;
    }

    async fn say_text(&mut self, text: &str) {
        self.0.send(Message::text(text.to_owned())).await.expect("the socket is open");
    }

    /// Returns the next frame, or `Err` with the close code if the server closed the socket.
    pub(crate) async fn receive(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match within("a frame", self.0.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(close))) => return Err(close.map(|close| close.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Returns all frames up to the end of the turn.
    async fn turn(&mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.receive().await.expect("the socket stays open");
            let kind = frame["type"].as_str().expect("a type").to_owned();
            frames.push(frame);
            if kind == "done" || kind == "error" {
                return frames;
            }
        }
    }
}

/// The event has only head and tail. A client that has received the beginning as deltas gets the
/// rest, once.
#[tokio::test]
async fn chat_client_receives_oversize_answer_without_gap_at_head() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut puppet) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let mut chat = ChatClient::open(&server.rest, &session_id).await;
    let long = (0..20_000).map(|n| format!("{n} ")).collect::<String>();
    let (begun, item) = (&long[..50_000], "long".to_owned());
    let delta = Delta { kind: DeltaKind::Text, item: item.clone(), offset: 0, content: begun.to_owned() };
    puppet.grow(delta).await.expect("the server listens");
    let mut received = String::new();
    while received.len() < begun.len() {
        received += chat.receive().await.expect("the chat stays open")["content"].as_str().expect("a text");
    }
    assert_eq!(received, begun);
    let body = Observation { kind: ObservationKind::Message { partial: false }, content: long.clone() }.into();
    puppet.report(AgentReport::Event { item: Some(item), body }).await.expect("the server listens");
    let rest = chat.receive().await.expect("the chat stays open");
    let rest = rest["content"].as_str().expect("a text");
    let (mark, tail) = rest.trim_start().split_once('\n').expect("a line with the number of missing bytes");
    let missing: usize = mark.split(' ').nth(1).expect("how much").parse().expect("a number");
    assert!(long.ends_with(tail) && tail.len() > 30_000, "{mark}");
    assert_eq!(begun.len() + missing + tail.len(), long.len());
    server.leaves_nothing().await;
}

/// A frame of any size is answered with an error; the client stays connected.
#[tokio::test]
async fn chat_frame_of_any_size_is_rejected_and_socket_stays_open() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let large = "x".repeat(40 << 20);
    let mut chat = ChatClient::open(&server.rest, &session_id).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.status("synced").await;
    for _ in 0..2 {
        chat.say_text(&large).await;
        let error = chat.receive().await.expect("the chat stays open");
        assert!(error["message"].as_str().expect("words").contains("may have 1048576 bytes"), "{error}");
        socket.send_text(large.clone()).await;
        socket.error("too_large").await;
    }
    chat.say(json!({ "type": "ping" })).await;
    assert_eq!(chat.receive().await, Ok(json!({ "type": "pong" })));
    socket.send_request("ping", json!({})).await;
    socket.status("pong").await;
    server.leaves_nothing().await;
}

/// Returns the types of the frames. A call's cost may be reported before its last words.
fn kinds(frames: &[Value]) -> BTreeSet<&str> {
    frames.iter().filter_map(|frame| frame["type"].as_str()).collect()
}

fn text(frames: &[Value]) -> String {
    frames.iter().filter(|frame| frame["type"] == "text_delta").filter_map(|frame| frame["content"].as_str()).collect()
}

#[tokio::test]
async fn server_shutdown_closes_chats_with_1001() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    let mut chat = ChatClient::open(&server.rest, &session_id).await;
    chat.say(json!({ "type": "ping" })).await;
    chat.receive().await.expect("an answer");
    let (closed, _) = tokio::join!(chat.receive(), server.terminate());
    assert_eq!(closed, Err(Some(1001)));
}

#[tokio::test]
async fn two_chat_clients_share_one_session() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut one = ChatClient::open(&server.rest, &session_id).await;
    let mut other = ChatClient::open(&server.rest, &session_id).await;
    for chat in [&mut one, &mut other] {
        chat.say(json!({ "type": "ping" })).await;
        assert_eq!(chat.receive().await.expect("an answer"), json!({ "type": "pong" }));
    }
    one.say(json!({ "type": "message", "content": "short story" })).await;
    let (first, second) = (one.turn().await, other.turn().await);
    assert_eq!(text(&first), "tick ".repeat(150));
    assert_eq!(text(&second), text(&first));
    assert_eq!(kinds(&first), BTreeSet::from(["text_delta", "cost_update", "done"]));
    assert!(
        first.iter().filter(|frame| frame["type"] == "text_delta").count() > 10,
        "deltas arrive while the answer grows"
    );

    other.say(json!({ "type": "message", "content": "flood" })).await;
    let (first, second) = (one.turn().await, other.turn().await);
    let tool =
        |frames: &[Value], kind: &str| frames.iter().find(|frame| frame["type"] == kind).cloned().expect("a tool");
    let (start, result) = (tool(&first, "tool_use_start"), tool(&first, "tool_result"));
    assert_eq!((&start["tool_name"], &start["tool_input"]["command"]), (&json!("run"), &json!("seq 1 300000")));
    assert_eq!(start["tool_use_id"], result["tool_use_id"]);
    assert!(result["content"].as_str().expect("output").starts_with("1\n2\n") && result["seq"].is_u64());
    assert_eq!(tool(&second, "tool_result"), result);
    server.leaves_nothing().await;
}

/// A client that keeps the first `offset` bytes of an item and appends the rest has the text of the
/// journal, after any number of reconnects in the middle of an answer.
#[tokio::test]
async fn reconnecting_chat_client_has_each_text_once() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let path = |after: u64| format!("/ws/sessions/{session_id}/chat?after={after}");
    let mut texts = BTreeMap::<String, String>::new();
    let (mut after, mut frames) = (0, 0);
    let mut chat = ChatClient::handshake(&server.rest, &path(after), &[]).await.expect("the session exists");
    chat.say(json!({ "type": "message", "content": "short story", "id": "story" })).await;
    loop {
        let frame = chat.receive().await.expect("the chat stays open");
        after = frame["seq"].as_u64().unwrap_or(after);
        if frame["type"] == "done" {
            break;
        }
        if frame["type"] != "text_delta" {
            continue;
        }
        let text = texts.entry(frame["item"].as_str().expect("an item").to_owned()).or_default();
        text.truncate(frame["offset"].as_u64().expect("an offset") as usize);
        text.push_str(frame["content"].as_str().expect("text"));
        frames += 1;
        if frames % 5 == 0 {
            chat = ChatClient::handshake(&server.rest, &path(after), &[]).await.expect("the session exists");
            // The same request again acts once.
            chat.say(json!({ "type": "message", "content": "short story", "id": "story" })).await;
        }
    }
    assert!(frames > 10, "{frames} frames");
    assert_eq!(texts.into_values().collect::<Vec<_>>(), ["tick ".repeat(150)]);
    let sent = server.rest.events(&session_id).await.into_iter().filter(|event| event["action"] == "message").count();
    assert_eq!(sent, 1);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn messages_sent_before_disconnect_are_processed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let words: BTreeSet<_> = (0..8).map(|n| format!("words {n}")).collect();
    for words in &words {
        let mut chat = ChatClient::open(&server.rest, &session_id).await;
        chat.say(json!({ "type": "message", "content": words })).await;
        chat.0.close(None).await.expect("the socket closes");
        // A client that leaves something unread resets the connection and loses what it sent.
        while chat.receive().await.is_ok() {}
    }
    eventually("all of it to be in the journal", || async {
        let events = server.rest.events(&session_id).await;
        let messages = events.iter().filter(|event| event["source"] == "user" && event["action"] == "message");
        words == messages.filter_map(|event| event["args"]["content"].as_str().map(str::to_owned)).collect()
    })
    .await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn chat_handles_interrupt_late_client_and_garbage() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut one = ChatClient::open(&server.rest, &session_id).await;
    one.say(json!({ "type": "message", "content": "long story" })).await;
    let mut so_far = String::new();
    while so_far.len() < 100 {
        let frame = one.receive().await.expect("the chat stays open");
        if frame["type"] == "text_delta" {
            so_far.push_str(frame["content"].as_str().expect("text"));
        }
    }
    let mut late = ChatClient::open(&server.rest, &session_id).await;
    let first = late.receive().await.expect("the answer is in progress");
    assert!(first["content"].as_str().expect("text").starts_with(&so_far[..60]), "{first}");
    for garbage in ["{", "[]", r#"{"type":"dance"}"#, r#"{"type":"message"}"#] {
        late.say_text(garbage).await;
        let error = loop {
            let frame = late.receive().await.expect("the socket stays open");
            if frame["type"] == "error" {
                break frame;
            }
        };
        assert!(error["message"].as_str().expect("words").contains("not a frame of a chat"), "{error}");
        assert!(error.get("id").is_some() && error.get("turn").is_none(), "no turn ends: {error}");
    }
    late.say(json!({ "type": "interrupt" })).await;
    assert_eq!(one.turn().await.last().expect("the end of the turn")["type"], "done");
    assert_eq!(late.turn().await.last().expect("the end of the turn")["type"], "done");
    // Frames from here on belong to the next turn: the last one has ended once.
    one.say(json!({ "type": "message", "content": "turn left" })).await;
    assert_eq!(text(&one.turn().await), "Turning left.");
    assert_eq!(text(&late.turn().await), "Turning left.");

    let nowhere = "/ws/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE/chat";
    assert_eq!(ChatClient::handshake(&server.rest, nowhere, &[]).await.err(), Some(404));
    let origin = format!("http://{}", server.rest.authority);
    let mut page = ChatClient::handshake(&server.rest, nowhere, &[("origin", &origin)]).await.expect("a page connects");
    assert_eq!(page.turn().await.len(), 1);
    assert_eq!(page.receive().await, Err(Some(4404)));
    server.leaves_nothing().await;
}

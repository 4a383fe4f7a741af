//! Tests that requests and responses pass unchanged and are metered.

use std::time::Duration;

use tokio::{io::AsyncReadExt, net::TcpListener};

use super::*;
use crate::{config::GatewayPermission, gateway::MeteredUsage};

fn used(model: &str, tokens: [u64; 4], cost_usd: f64) -> GatewayNotice {
    let [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens] = tokens;
    GatewayNotice::Used(MeteredUsage {
        model: model.to_owned(),
        input_tokens,
        output_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_usd: Some(cost_usd),
        context_limit: Some(200_000),
        ..MeteredUsage::default()
    })
}

fn anthropic_used(output: u64) -> GatewayNotice {
    used("claude-x-1", [10, output, 7, 5], (10.0 + 10.0 * output as f64 + 3.5 + 10.0) / 1e6)
}

fn openai_used(output: u64) -> GatewayNotice {
    used("gpt-x-1", [6, output, 4, 0], (6.0 + 10.0 * output as f64 + 2.0) / 1e6)
}

async fn check_stream(path: &str, model: &str, response: FakeModelResponse, expected: GatewayNotice) {
    let text = response.text();
    let fixture = GatewayFixture::with_script([response]).await;
    let reply = fixture.post(path, &streaming(model)).await;
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    assert_eq!(reply.text().await, text);
    assert_eq!(fixture.account.notices(), [expected]);
}

#[tokio::test]
async fn streams_pass_unchanged_and_are_metered() {
    check_stream(MESSAGES, "claude-x", FakeModelResponse::anthropic(20), anthropic_used(20)).await;
    check_stream(CHAT, "gpt-x", FakeModelResponse::chat(20), openai_used(20)).await;
    check_stream(RESPONSES, "gpt-x", FakeModelResponse::responses(20), openai_used(20)).await;
    check_stream(
        MESSAGES,
        "claude-x",
        FakeModelResponse::anthropic(3).delayed(Duration::from_millis(50)),
        anthropic_used(3),
    )
    .await;
}

async fn check_splits(path: &str, model: &str, response: FakeModelResponse, expected: GatewayNotice) {
    let text = response.text();
    let fixture = GatewayFixture::with_script((0..text.len()).map(|at| response.clone().split_at(at))).await;
    let mut client = fixture.connect().await;
    for at in 0..text.len() {
        let request = Request::post(path).body(Full::from(streaming(model))).expect("a request");
        let response = client.send_request(request).await.expect("the endpoint responds");
        assert_eq!(GatewayReply { response }.text().await, text, "split at {at}");
        client.ready().await.expect("the connection stays open");
    }
    assert_eq!(fixture.account.notices(), vec![expected; text.len()]);
}

#[tokio::test]
async fn streams_pass_at_any_split() {
    check_splits(MESSAGES, "claude-x", FakeModelResponse::anthropic(1), anthropic_used(1)).await;
    check_splits(CHAT, "gpt-x", FakeModelResponse::chat(1), openai_used(1)).await;
    check_splits(RESPONSES, "gpt-x", FakeModelResponse::responses(1), openai_used(1)).await;
}

#[tokio::test]
async fn response_in_one_piece_is_metered() {
    let response_body = r#"{"model":"claude-x-1","content":[],"new":1.0e2,"usage":{"input_tokens":10,"cache_read_input_tokens":7,"cache_creation_input_tokens":5,"output_tokens":3}}"#;
    let fixture = GatewayFixture::with_script([FakeModelResponse::complete(200, response_body)]).await;
    assert_eq!(fixture.post(MESSAGES, r#"{"model":"claude-x"}"#).await.text().await, response_body);
    assert_eq!(fixture.account.notices(), [anthropic_used(3)]);
}

/// A proxy that does not stream is one paid call.
#[tokio::test]
async fn json_in_place_of_a_stream_passes_and_is_metered_once() {
    let body = r#"{"id":"x","object":"chat.completion","model":"gpt-x-1","choices":[{"index":0,"message":{"role":"assistant","content":"whole answer"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    for content_type in ["application/json", "text/event-stream"] {
        let answer = FakeModelResponse::complete(200, body).with_content_type(content_type);
        let fixture = GatewayFixture::with_script([answer]).await;
        let reply = fixture.post(CHAT, &streaming("gpt-x")).await;
        assert_eq!(reply.headers()["content-type"], content_type);
        assert_eq!(reply.text().await, body);
        assert_eq!(fixture.account.notices(), [openai_used(3)]);
        assert_eq!(fixture.fake.requests().len(), 1);
    }
}

/// Token probabilities have many values, which the meter skips.
#[tokio::test]
async fn token_probabilities_pass_and_the_response_is_metered() {
    let logprobs = format!("[{}0]", "-0.5,".repeat(80_000));
    let choices = |finish: &str| {
        format!(r#"[{{"delta":{{"content":"w"}},"logprobs":{{"content":{logprobs}}},"finish_reason":{finish}}}]"#)
    };
    let usage = r#"{"prompt_tokens":10,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":4}}"#;
    let (middle, end) = (choices("null"), choices("\"stop\""));
    let stream = FakeModelResponse::stream([
        format!("data: {{\"model\":\"gpt-x-1\",\"choices\":{middle}}}\n\n"),
        format!("data: {{\"choices\":{end},\"usage\":{usage}}}\n\n"),
    ]);
    check_stream(CHAT, "gpt-x", stream, openai_used(20)).await;

    let response = format!(r#"{{"model":"gpt-x-1","choices":{end},"usage":{usage}}}"#);
    let fixture = GatewayFixture::with_script([FakeModelResponse::complete(200, response.clone())]).await;
    assert_eq!(fixture.post(CHAT, r#"{"model":"gpt-x"}"#).await.text().await, response);
    assert_eq!(fixture.account.notices(), [openai_used(20)]);
}

/// The line passes in pieces that the meter cannot parse, so it may have ended the response.
#[tokio::test]
async fn overlong_last_line_passes() {
    let delta = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\n\n".to_owned();
    let long_line = format!("data: {{\"type\":\"response.completed\",\"response\":\"{}\"}}\n\n", "x".repeat(9 << 20));
    let response = FakeModelResponse::stream([delta, long_line]);
    let text = response.text();
    let fixture = GatewayFixture::with_script([response]).await;
    let passed = fixture.post(RESPONSES, &streaming("gpt-x")).await.text().await;
    assert!(passed == text, "{} bytes passed of {}", passed.len(), text.len());
    let notices = fixture.account.notices();
    assert!(
        matches!(&notices[..], [GatewayNotice::Used(used)] if used.estimated && used.output_tokens == 2),
        "{notices:?}"
    );
}

#[tokio::test]
async fn listed_parts_pass_and_the_key_is_set() {
    let response =
        FakeModelResponse::complete(200, r#"{"usage":null}"#).header("request-id", "r1").header("x-new", "2");
    let fixture = GatewayFixture::with_script([response.clone(), response]).await;
    let body = r#"{ "model" : "claude-x", "from-tomorrow": [1.50, {"a" : null}], "max_tokens": 1.0e1 }"#;
    let request = || {
        Request::post("/anthropic/v1/messages?beta=true&from=here")
            .header("x-api-key", "placeholder")
            .header("authorization", "Bearer placeholder")
            .header("anthropic-beta", "tomorrow")
            .header("content-type", "application/json")
            .body(Full::from(body))
            .expect("a request")
    };
    let reply = fixture.send(request()).await;
    assert_eq!(reply.headers()["request-id"], "r1");
    assert_eq!(reply.headers()["x-new"], "2");
    assert_eq!(reply.text().await, r#"{"usage":null}"#);

    let received = &fixture.fake.requests()[0];
    assert_eq!((&received.method, received.path.as_str()), (&Method::POST, "/v1/messages"));
    assert_eq!(received.body, r#"{ "model" : "claude-x", "max_tokens": 1.0e1 }"#);
    assert_eq!(received.headers["anthropic-version"], "2023-06-01");
    assert_eq!(received.headers["content-type"], "application/json");
    assert_eq!(received.headers["x-api-key"], KEY);
    assert!(!received.headers.contains_key("authorization") && !received.headers.contains_key("anthropic-beta"));

    let lines = || fixture.account.lines.lock().expect("the lock is never poisoned: no holder panics").clone();
    let named = lines();
    for name in ["the field `from-tomorrow`", "the beta flag `tomorrow`", "parameter `beta`", "parameter `from`"] {
        assert_eq!(named.iter().filter(|line| line.contains(name)).count(), 1, "{name}: {named:?}");
    }
    fixture.send(request()).await.text().await;
    assert_eq!(lines(), named, "each part is named once");
}

#[tokio::test]
async fn permitted_parts_pass() {
    let fake = FakeProvider::start([FakeModelResponse::complete(200, r#"{"usage":null}"#)]).await;
    let options = options(&fake.url);
    let rules = GatewayConfig { allow: vec![GatewayPermission::Beta], ..GatewayConfig::default() };
    let fixture = GatewayFixture::with_rules(fake, options, &rules);
    let body = r#"{"model":"claude-x","context_management":{"edits":[]}}"#;
    let request = Request::post("/anthropic/v1/messages?beta=true")
        .header("anthropic-beta", "context-management-2025-06-27")
        .body(Full::from(body))
        .expect("a request");
    fixture.send(request).await.text().await;
    let received = &fixture.fake.requests()[0];
    assert_eq!((received.path.as_str(), &received.body[..]), ("/v1/messages?beta=true", body.as_bytes()));
    assert_eq!(received.headers["anthropic-beta"], "context-management-2025-06-27");
}

#[tokio::test]
async fn other_routes_pass_unmetered() {
    let script = [r#"{"input_tokens":7}"#, r#"{"data":[]}"#, r#"{"data":[]}"#]
        .map(|body| FakeModelResponse::complete(200, body));
    let fixture = GatewayFixture::with_script(script).await;
    let counted = fixture.post("/anthropic/v1/messages/count_tokens", r#"{"model":"claude-x"}"#).await;
    assert_eq!(counted.text().await, r#"{"input_tokens":7}"#);
    for path in ["/anthropic/v1/models?limit=5", "/openai/v1/models"] {
        let request = Request::get(path).body(Full::default()).expect("a request");
        assert_eq!(fixture.send(request).await.text().await, r#"{"data":[]}"#);
    }
    let requests = fixture.fake.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/v1/messages/count_tokens", "/v1/models?limit=5", "/v1/models"]);
    assert_eq!(requests[2].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(fixture.account.notices(), []);
}

#[tokio::test]
async fn further_paths_pass() {
    let models = [r#"{"id":"m"}"#, r#"{"models":[]}"#].map(|body| FakeModelResponse::complete(200, body));
    let compacted =
        r#"{"output":[],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":4},"output_tokens":3}}"#;
    let embedded = r#"{"model":"gpt-x-1","data":[],"usage":{"prompt_tokens":6,"total_tokens":6}}"#;
    let script = [compacted, embedded].map(|body| FakeModelResponse::complete(200, body));
    let fixture = GatewayFixture::with_script(models.into_iter().chain(script)).await;
    for path in ["/openai/v1/v1/models/openai/gpt-x/", "/gemini/v1beta/models?pageSize=5&key=placeholder"] {
        let request = Request::get(path).body(Full::default()).expect("a request");
        assert_eq!(fixture.send(request).await.status(), 200, "{path}");
    }
    fixture.post("/openai/v1/responses/compact", r#"{"model":"gpt-x-1","input":[]}"#).await.text().await;
    fixture.post("/openai/v1/embeddings/", r#"{"model":"gpt-x","input":"a"}"#).await.text().await;
    let requests = fixture.fake.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    let expected = ["/v1/models/openai/gpt-x", "/v1beta/models?pageSize=5", "/v1/responses/compact", "/v1/embeddings"];
    assert_eq!(paths, expected);
    assert_eq!(requests[1].headers["x-goog-api-key"], KEY);
    assert_eq!(fixture.account.notices(), [openai_used(3), used("gpt-x-1", [6, 0, 0, 0], 6.0 / 1e6)]);
}

#[tokio::test]
async fn roots_answer_probes() {
    let fixture = GatewayFixture::with_script([]).await;
    fixture.account.denied.lock().expect("the lock is never poisoned: no holder panics").replace("spent".into());
    for path in ["/anthropic", "/openai/", "/gemini", "/openai/v1"] {
        for method in [Method::GET, Method::HEAD] {
            let request = Request::builder().method(method).uri(path).body(Full::default()).expect("a request");
            let reply = fixture.send(request).await;
            assert_eq!(reply.status(), 200, "{path}");
            assert_eq!(reply.text().await, "");
        }
    }
}

#[tokio::test]
async fn gemini_passes_in_both_stream_shapes() {
    let chunk = |text: &str, more: &str| {
        format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{{"text":"{text}"}}]}}{more}}}],"modelVersion":"gemini-x-1""#
        )
    };
    let usage = r#""usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":2,"thoughtsTokenCount":3}"#;
    let (first, last) = (chunk("a", "") + "}", format!("{},{usage}}}", chunk("b", r#","finishReason":"STOP""#)));
    let expected = [used("gemini-x-1", [6, 5, 4, 0], (6.0 + 50.0 + 2.0) / 1e6)];
    let body = r#"{"contents":[{"parts":[{"text":"hello"}]}],"tools":[{"googleSearch":{}}]}"#;

    let check = async |path: &str, called: &str, response: FakeModelResponse| {
        let text = response.text();
        let fixture = GatewayFixture::with_script([response]).await;
        let request = Request::post(path).header("x-goog-api-key", "placeholder").body(Full::from(body));
        assert_eq!(fixture.send(request.expect("a request")).await.text().await, text);
        let received = &fixture.fake.requests()[0];
        assert_eq!(received.path, called);
        assert_eq!(received.headers["x-goog-api-key"], KEY);
        assert_eq!(received.body, r#"{"contents":[{"parts":[{"text":"hello"}]}]}"#);
        assert_eq!(fixture.account.notices(), expected, "{path}");
    };
    let events = FakeModelResponse::stream([format!("data: {first}\r\n\r\n"), format!("data: {last}\r\n\r\n")]);
    let path = "/gemini/v1beta/models/gemini-x:streamGenerateContent";
    let called = "/v1beta/models/gemini-x:streamGenerateContent";
    check(&format!("{path}?alt=sse&key=placeholder"), &format!("{called}?alt=sse"), events).await;
    let list = FakeModelResponse::complete(200, format!("[{first}\n,\r\n{last}]"));
    check(path, called, list).await;
    let whole = FakeModelResponse::complete(200, last.clone());
    check("/gemini/v1/models/gemini-x:generateContent", "/v1/models/gemini-x:generateContent", whole).await;
}

#[tokio::test]
async fn provider_prefix_of_gemini_is_removed_at_its_own_service_only() {
    let mut official = options("");
    official.gemini.base_url = String::new();
    assert_eq!(official.upstream_name(greenroom_protocol::link::ProviderApi::Gemini, "gemini/x"), "x");
    let fixture = GatewayFixture::with_script([FakeModelResponse::complete(200, "{}")]).await;
    fixture.post("/gemini/v1beta/models/gemini/x:generateContent", r#"{"contents":[]}"#).await.text().await;
    assert_eq!(fixture.fake.requests()[0].path, "/v1beta/models/gemini/x:generateContent");
}

/// Six sessions send bodies of 62 MiB to a provider that does not answer. The pool holds two.
#[tokio::test]
async fn large_bodies_of_all_sessions_share_one_budget() {
    let fake = FakeProvider::start((0..8).map(|_| FakeModelResponse::chat(1).delayed(Duration::from_secs(600)))).await;
    let gateway = Gateway::new(options(&fake.url), &GatewayConfig::default()).expect("the options are valid");
    let body = Bytes::from(format!(r#"{{"model":"gpt-x","messages":[{{"content":"{}"}}]}}"#, "x".repeat(62 << 20)));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut sessions = Vec::new();
    for n in 0..7 {
        let socket = directory.path().join(n.to_string());
        let listener = UnixListener::bind(&socket).expect("a socket");
        let endpoint = gateway.open(listener, Arc::new(RecordingAccount::default()));
        sessions.push((socket, endpoint));
    }
    let send = |socket: &std::path::Path, body: Bytes| {
        let socket = socket.to_owned();
        tokio::spawn(async move {
            let stream = UnixStream::connect(socket).await.expect("the endpoint listens");
            let (mut client, connection) = http1::handshake(TokioIo::new(stream)).await.expect("the endpoint serves");
            tokio::spawn(connection);
            client.send_request(Request::post(CHAT).body(Full::<Bytes>::from(body)).expect("a request")).await
        })
    };
    let calls: Vec<_> = sessions[..6].iter().map(|(socket, _)| send(socket, body.clone())).collect();
    while fake.requests().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Requests of the usual size pass beside them, also of a session whose large body waits.
    let small = Bytes::from(format!(r#"{{"model":"gpt-x","messages":[{{"content":"{}"}}]}}"#, "x".repeat(1 << 20)));
    let beside: Vec<_> = [5, 6].map(|n: usize| send(&sessions[n].0, small.clone())).into_iter().collect();
    while fake.requests().len() < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let large = fake.requests().iter().filter(|request| request.body.len() > 60 << 20).count();
    assert_eq!(large, 2, "the pool of 128 MiB holds two bodies of 62 MiB");
    // The next two come as soon as the first two are over.
    for (_, endpoint) in &sessions {
        endpoint.abort_calls();
    }
    for call in calls.into_iter().chain(beside) {
        let response = call.await.expect("the task ends").expect("the endpoint responds");
        assert_eq!(response.status(), 403, "the call was interrupted");
    }
}

#[tokio::test]
async fn slow_reader_does_not_block_the_provider() {
    let big = FakeModelResponse::stream(
        (0..64).map(|n| format!("data: {{\"n\":{n},\"x\":\"{}\"}}\n\n", "x".repeat(64 * 1024))),
    );
    let text = big.text() + "data: [DONE]\n\n";
    let fixture = GatewayFixture::with_script([FakeModelResponse::stream([text.clone()])]).await;
    let reply = fixture.post(CHAT, &streaming("gpt-x")).await;
    // The provider has finished, and its usage is recorded, before the client reads the first byte.
    fixture.account.wait_for(1).await;
    fixture.fake.wait_for_streams(0).await;
    assert_eq!(reply.text().await, text);
}

/// With one shared connection, a session that reads nothing would block the others. A provider
/// would also limit the calls per connection.
#[tokio::test]
async fn each_call_has_its_own_connection() {
    let provider = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}", provider.local_addr().expect("an address"));
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, options(&url));
    let hello = async {
        let (mut client, _) = provider.accept().await.expect("the gateway connects");
        let mut hello = [0; 2048];
        let length = client.read(&mut hello).await.expect("the handshake starts");
        hello[..length].to_vec()
    };
    let body = streaming("claude-x");
    let hello = tokio::select! {
        hello = hello => hello,
        reply = fixture.post(MESSAGES, &body) => panic!("{} without a provider", reply.status()),
    };
    let offers = |protocol: &[u8]| hello.windows(protocol.len()).any(|at| at == protocol);
    assert_eq!(hello[0], 22, "a TLS handshake");
    assert!(!offers(b"\x02h2"), "HTTP/2 would share one connection");
}

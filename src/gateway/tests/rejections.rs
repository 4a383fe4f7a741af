//! Rejections by providers, temporary and permanent, and by the gateway itself.

use super::*;

fn retrying(notices: &[GatewayNotice]) -> Vec<(u32, &str)> {
    fn retry(notice: &GatewayNotice) -> Option<(u32, &str)> {
        match notice {
            GatewayNotice::Retrying(frame) => Some((frame.attempt, frame.why.as_str())),
            GatewayNotice::Used(_)
            | GatewayNotice::Rejected { .. }
            | GatewayNotice::RetriesEnded { .. }
            | GatewayNotice::BudgetSpent { .. } => None,
        }
    }
    notices.iter().filter_map(retry).collect()
}

impl GatewayFixture {
    async fn check_rejected(&self, path: &str, model: &str, status: u16, reason: &str) -> String {
        let reply = self.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["x-should-retry"], "false");
        let notice = self.account.notices().pop();
        assert_eq!(notice, Some(GatewayNotice::Rejected { status, why: reason.to_owned() }));
        reply.text().await
    }
}

#[tokio::test]
async fn temporary_rejection_is_retried() {
    let limited = FakeModelResponse::complete(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "0");
    let fixture =
        GatewayFixture::with_script([limited, FakeModelResponse::complete(529, ""), FakeModelResponse::anthropic(2)])
            .await;
    let text = fixture.post(MESSAGES, &streaming("claude-x")).await.text().await;
    assert_eq!(text, FakeModelResponse::anthropic(2).text());
    let notices = fixture.account.notices();
    let expected = [
        (2, "Anthropic limits the requests of this key (429): slow down"),
        (3, "Anthropic is overloaded (529): no reason given"),
    ];
    assert_eq!(retrying(&notices), expected);
    let [GatewayNotice::Retrying(first), _, GatewayNotice::RetriesEnded { call, outcome: Some(outcome) }, _] =
        &notices[..]
    else {
        panic!("{notices:?}")
    };
    assert_eq!((first.call, first.max_attempts), (*call, 3));
    assert_eq!((outcome.attempts, outcome.why.as_str()), (3, expected[1].1));
    assert!(matches!(notices[3], GatewayNotice::Used(_)), "{notices:?}");
    let bodies: Vec<Bytes> = fixture.fake.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies, vec![Bytes::from(streaming("claude-x")); 3]);
}

#[tokio::test]
async fn error_as_first_event_is_retried() {
    let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let fixture = GatewayFixture::with_script([
        FakeModelResponse::stream([format!("event: error\n{error}\n\n")]),
        FakeModelResponse::anthropic(1),
    ])
    .await;
    let text = fixture.post(MESSAGES, &streaming("claude-x")).await.text().await;
    assert_eq!(text, FakeModelResponse::anthropic(1).text());
    assert_eq!(retrying(&fixture.account.notices()), [(2, "Anthropic is overloaded (529): Overloaded")]);
}

/// An error before the first real piece is a rejection, whatever stands before it, and however the
/// answer is framed.
#[tokio::test]
async fn error_before_the_first_piece_is_retried_like_a_status() {
    let error = r#"{"error":{"message":"slow down","code":429}}"#;
    let role = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
    let event = |data: &str| format!("data: {data}\n\n");
    let comment = || ": PROCESSING\n\n".to_owned();
    let failures = [
        FakeModelResponse::complete(200, error),
        FakeModelResponse::stream([comment(), event(error)]).tokens_per_second(1000),
        FakeModelResponse::stream([event(role), comment(), event(error)]).tokens_per_second(1000),
        FakeModelResponse::stream([comment() + &event(error)]),
        FakeModelResponse::complete(200, format!("\n{error}")).with_content_type("text/event-stream"),
    ];
    for failure in failures {
        let fixture = GatewayFixture::with_script([failure, FakeModelResponse::chat(2)]).await;
        assert_eq!(fixture.post(CHAT, &streaming("gpt-x")).await.text().await, FakeModelResponse::chat(2).text());
        let notices = fixture.account.wait_for(3).await;
        assert_eq!(retrying(&notices), [(2, "OpenAI limits the requests of this key (429): slow down")]);
        assert_eq!(notices.iter().filter(|notice| matches!(notice, GatewayNotice::Used(_))).count(), 1);
    }
}

#[tokio::test]
async fn permanent_error_in_a_200_is_rejected_once_and_costs_nothing() {
    let body = r#"{"error":{"message":"No endpoints found that support tool use","code":404}}"#;
    for answer in [FakeModelResponse::complete(200, body), FakeModelResponse::stream([format!("data: {body}\n\n")])] {
        let fixture = GatewayFixture::with_script([answer]).await;
        let reply = fixture.post(CHAT, &streaming("gpt-x")).await;
        assert_eq!(reply.status(), 404);
        assert!(reply.text().await.contains("No endpoints found that support tool use"));
        let notices = fixture.account.notices();
        assert!(matches!(&notices[..], [GatewayNotice::Rejected { status: 404, .. }]), "{notices:?}");
        assert_eq!(fixture.fake.requests().len(), 1);
    }
}

#[tokio::test]
async fn stream_without_a_piece_is_retried() {
    let empty = [
        FakeModelResponse::stream([]),
        FakeModelResponse::stream([": PROCESSING\n\n".to_owned()]),
        FakeModelResponse::anthropic(1).ending_after(2, crate::gateway::fake_provider::FakeResponseEnd::Broken),
    ];
    for answer in empty {
        let fixture = GatewayFixture::with_script([answer, FakeModelResponse::anthropic(1)]).await;
        let text = fixture.post(MESSAGES, &streaming("claude-x")).await.text().await;
        assert_eq!(text, FakeModelResponse::anthropic(1).text());
        assert_eq!(retrying(&fixture.account.notices()).len(), 1);
    }
}

#[tokio::test]
async fn last_rejection_passes_to_the_client() {
    let fixture = GatewayFixture::with_script(
        (0..3).map(|_| FakeModelResponse::complete(503, r#"{"error":"busy"}"#).header("x-id", "7")),
    )
    .await;
    let body = fixture.check_rejected(CHAT, "gpt-x", 503, "OpenAI is overloaded (503): busy").await;
    assert_eq!(body, r#"{"error":"busy"}"#);
    assert_eq!(fixture.fake.requests().len(), 3);
}

#[tokio::test]
async fn overlong_requested_delay_is_not_retried() {
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::complete(429, "{}").header("retry-after", "3600")]).await;
    fixture.check_rejected(CHAT, "gpt-x", 429, "OpenAI limits the requests of this key (429): no reason given").await;
    assert_eq!(fixture.fake.requests().len(), 1);
}

#[tokio::test]
async fn permanent_rejection_passes_at_once() {
    async fn check(status: u16, body: &'static str, reason: &str) {
        let fixture = GatewayFixture::with_script([FakeModelResponse::complete(status, body)]).await;
        assert_eq!(fixture.check_rejected(MESSAGES, "claude-x", status, reason).await, body);
    }
    let body = r#"{"type":"error","error":{"type":"x","message":"no"}}"#;
    check(400, body, "Anthropic rejected the request (400): no").await;
    check(401, body, "Anthropic rejected the key (401): check `ANTHROPIC_API_KEY` or `LLM_API_KEY`").await;
    check(403, body, "Anthropic does not allow this key to use `claude-x` (403): no").await;
    check(404, body, "Anthropic does not serve `claude-x` (404): no; check the model and the base URL").await;
    check(413, body, "the conversation is too large for Anthropic (413): no").await;
}

#[tokio::test]
async fn key_is_removed_from_provider_errors() {
    let shown = format!(r#"{{"error":{{"message":"no such key {KEY} or sk-ca***key"}}}}"#);
    let fixture = GatewayFixture::with_script([FakeModelResponse::complete(400, shown).header("x-echo", KEY)]).await;
    let reply = fixture.post(CHAT, &streaming("gpt-x")).await;
    assert!(!reply.headers().contains_key("x-echo"));
    assert_eq!(reply.text().await, r#"{"error":{"message":"no such key [redacted] or [redacted]"}}"#);
    assert!(!format!("{:?}", fixture.account.notices()).contains("sk-ca"));
}

#[tokio::test]
async fn key_is_removed_from_an_error_in_the_first_event() {
    let shown = format!(r#"data: {{"error":{{"message":"no such key {KEY}","type":"invalid_request_error"}}}}"#);
    let fixture = GatewayFixture::with_script([FakeModelResponse::stream([shown + "\n\n"])]).await;
    let reply = fixture.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(reply.contains("no such key [redacted]"), "{reply}");
    let notice = format!("{:?}", fixture.account.notices());
    assert!(notice.contains("[redacted]") && !notice.contains(KEY), "{notice}");
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let elsewhere = FakeProvider::start([FakeModelResponse::chat(1)]).await;
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::complete(307, "{}").header("location", &elsewhere.url)]).await;
    fixture.check_rejected(CHAT, "gpt-x", 307, "OpenAI rejected the request (307): no reason given").await;
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn unreachable_provider_is_named() {
    let gone = FakeProvider::start([]).await.url.clone();
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, options(&gone));
    let reply = fixture.post(CHAT, &streaming("gpt-x")).await;
    assert_eq!(reply.status(), 502);
    assert!(reply.text().await.contains("OpenAI cannot be reached: "));
    let notices = fixture.account.notices();
    assert_eq!(retrying(&notices).len(), 2);
    assert!(matches!(notices[2], GatewayNotice::RetriesEnded { outcome: None, .. }), "{notices:?}");
    assert!(matches!(&notices[3], GatewayNotice::Rejected { status: 502, why } if why.contains("cannot be reached")));
}

#[tokio::test]
async fn silent_provider_times_out() {
    let fake = FakeProvider::start([FakeModelResponse::chat(1).delayed(Duration::from_secs(600))]).await;
    let mut options = options(&fake.url);
    options.timeouts.whole_answer = TimeSpan(Duration::from_millis(500));
    let fixture = GatewayFixture::new(fake, options);
    let reply = fixture.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.status(), 504);
    let reason = "OpenAI did not answer within 0.5 s".to_owned();
    let all = fixture.account.wait_for(2).await;
    assert_eq!(all[0], GatewayNotice::Rejected { status: 504, why: reason });
    assert!(matches!(&all[1], GatewayNotice::Used(used) if used.estimated), "the provider may work on: {all:?}");
}

#[tokio::test]
async fn silent_stream_times_out() {
    let fake = FakeProvider::start([
        FakeModelResponse::chat(3).ending_after(2, crate::gateway::fake_provider::FakeResponseEnd::Hang)
    ])
    .await;
    let mut options = options(&fake.url);
    options.timeouts.idle = TimeSpan(Duration::from_secs(1));
    let fixture = GatewayFixture::new(fake, options);
    let text = fixture.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(text.contains("OpenAI sent nothing for 1 s"), "{text}");
}

#[tokio::test]
async fn denied_session_gets_the_reason() {
    let fixture = GatewayFixture::with_script([]).await;
    fixture.deny("the budget of 5 USD is spent");
    for (path, model) in [(MESSAGES, "claude-x"), (CHAT, "gpt-x"), (MESSAGES, "demo")] {
        let reply = fixture.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), 402);
        assert!(reply.text().await.contains("\"message\":\"the budget of 5 USD is spent\""));
    }
    assert!(fixture.fake.requests().is_empty());
}

#[tokio::test]
async fn invalid_requests_are_described() {
    let fixture = GatewayFixture::with_script([]).await;
    let check = async |path: &str, body: &str, status: u16, part: &str| {
        let reply = fixture.post(path, body).await;
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["content-type"], "application/json");
        let text = reply.text().await;
        assert!(text.contains(part), "{text}");
    };
    check("/anthropic/v1/files", "", 404, r#"{"type":"error","error":{"type":"not_found_error""#).await;
    check("/nowhere", "", 404, "there is no `POST /nowhere` here; the routes are: POST /anthropic/v1/messages, ").await;
    check(MESSAGES, "{", 400, "must be a JSON object").await;
    check("/openai/v1/embeddings", r#"{"model":"demo"}"#, 400, "the demo model only continues").await;
    check("/gemini/v1beta/files", "", 404, r#"{"error":{"code":404,"message":"#).await;
    assert!(fixture.fake.requests().is_empty());
}

/// Sends a request of `bytes` bytes through the sandbox's forwarder, as a simple client does:
/// completely, before it reads the answer. `announced`: with a length, or in chunks.
async fn send_through_forwarder(address: &str, path: &str, bytes: usize, announced: bool) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut client = tokio::net::TcpStream::connect(address).await.expect("the forwarder listens");
    let head = |length: &str| format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{length}\r\n\r\n");
    let body = vec![b' '; bytes];
    let request = match announced {
        true => [head(&format!("content-length: {bytes}")).as_bytes(), &body].concat(),
        false => {
            let head = head("transfer-encoding: chunked") + &format!("{bytes:x}\r\n");
            [head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat()
        }
    };
    client.write_all(&request).await.expect("the whole request is read");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("the answer is complete");
    answer
}

impl GatewayFixture {
    /// Opens the forwarder that the agent runs in a sandbox. Returns its address.
    async fn forwarder(&self) -> String {
        let url = greenroom_agent::gateway::open(self.directory.path().join("s")).await.expect("a loopback port");
        url.strip_prefix("http://").expect("the address is a URL").to_owned()
    }

    fn deny(&self, reason: &str) {
        let mut denied = self.account.denied.lock().expect("the lock is never poisoned: no holder panics");
        *denied = Some(reason.into());
    }
}

#[tokio::test]
async fn rejection_of_a_large_request_reaches_the_client() {
    let fixture = GatewayFixture::with_script([]).await;
    fixture.deny("the budget is spent");
    let address = fixture.forwarder().await;
    for n in 0..100 {
        let answer = send_through_forwarder(&address, MESSAGES, 4 << 20, n % 2 == 0).await;
        assert!(answer.starts_with("HTTP/1.1 402 ") && answer.contains("the budget is spent"), "{n}: {answer}");
    }
    let unknown = send_through_forwarder(&address, "/openai/v1/files", 4 << 20, true).await;
    assert!(unknown.starts_with("HTTP/1.1 404 "), "{unknown}");
}

#[tokio::test]
async fn rejection_of_an_oversize_request_reaches_the_client() {
    let fixture = GatewayFixture::with_script([]).await;
    let address = fixture.forwarder().await;
    for announced in [true, false] {
        let answer = send_through_forwarder(&address, CHAT, (64 << 20) + 1, announced).await;
        assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("larger than 64 MiB"), "{answer}");
    }
}

#[tokio::test]
async fn connection_of_a_rejected_request_serves_the_next() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let fixture = GatewayFixture::with_script([]).await;
    fixture.deny("the budget is spent");
    let mut stream = UnixStream::connect(fixture.directory.path().join("s")).await.expect("the endpoint listens");
    let head = format!("POST {MESSAGES} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 1 << 20);
    for _ in 0..3 {
        stream.write_all(&[head.as_bytes(), &vec![b' '; 1 << 20]].concat()).await.expect("the request is read");
        let mut answer = String::new();
        while !answer.ends_with("the budget is spent\"}}") {
            let mut part = [0; 1024];
            let read = stream.read(&mut part).await.expect("the connection stays open");
            assert_ne!(read, 0, "closed after {answer}");
            answer += std::str::from_utf8(&part[..read]).expect("the answer is text");
        }
        assert!(answer.starts_with("HTTP/1.1 402 "), "{answer}");
    }
}

#[tokio::test]
async fn demo_limits_json_values() {
    let fixture = GatewayFixture::with_script([]).await;
    let ask = |values: usize| {
        let padding = vec!["[]"; values].join(",");
        format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"hello"}}],"metadata":[{padding}]}}"#)
    };
    // The second body is over 1 MiB, so another thread parses it.
    for (values, status) in [(1000, 200), (400_000, 413)] {
        let reply = fixture.post(CHAT, &ask(values)).await;
        assert_eq!(reply.status(), status);
        let text = reply.text().await;
        assert_eq!(text.contains("at most 262144 values"), status == 413, "{text}");
    }
    let long = "[[{{,".repeat(1 << 20);
    let long = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{long}"}}]}}"#);
    assert_eq!(fixture.post(CHAT, &long).await.status(), 200, "content of a string counts as no value");
}

#[tokio::test]
async fn no_call_without_a_key() {
    let options = ModelConfig { anthropic: no_provider().anthropic, ..options("http://127.0.0.1:9") };
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, options);
    let reply = fixture.post(MESSAGES, &streaming("claude-x")).await;
    assert_eq!(reply.status(), 403);
    assert!(reply.text().await.contains("Anthropic needs a key: set `ANTHROPIC_API_KEY`"));
}

#[test]
fn invalid_options_are_named() {
    let check = |anthropic: ProviderConfig, part: &str| {
        let wrong = Gateway::new(ModelConfig { anthropic, ..no_provider() }, &GatewayConfig::default());
        let Err(error) = wrong else { panic!("{part} must be rejected") };
        assert!(error.to_string().contains(part), "{error}");
    };
    check(ProviderConfig { base_url: "localhost:80".into(), api_key: SecretString::default() }, "`localhost:80`");
    let query = ProviderConfig { base_url: "http://h/v1?x".into(), api_key: SecretString::default() };
    check(query, "the base URL `http://h/v1?x` of Anthropic must have no `?`");
    check(ProviderConfig { base_url: String::new(), api_key: SecretString::new("a\nb") }, "`ANTHROPIC_API_KEY`");
}

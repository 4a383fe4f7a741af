//! Providers that refuse, for now or for good, and what the gateway itself refuses.

use std::time::Duration;

use super::*;
use crate::gateway::TimeoutOptions;

fn retrying(notices: &[GatewayNotice]) -> Vec<(u32, &str)> {
    let retry = |notice| match notice {
        &GatewayNotice::Retrying { attempt, ref why, .. } => Some((attempt, why.as_str())),
        GatewayNotice::Used(_) | GatewayNotice::Rejected { .. } => None,
    };
    notices.iter().filter_map(retry).collect()
}

impl GatewayFixture {
    async fn check_refused(&self, path: &str, model: &str, status: u16, why: &str) -> String {
        let reply = self.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["x-should-retry"], "false");
        let told = self.account.notices().pop();
        assert_eq!(told, Some(GatewayNotice::Rejected { status, why: why.to_owned() }));
        reply.text().await
    }
}

#[tokio::test]
async fn what_is_refused_for_now_is_asked_again() {
    let limited = FakeModelResponse::complete(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "0");
    let stand =
        GatewayFixture::with_script([limited, FakeModelResponse::complete(529, ""), FakeModelResponse::anthropic(2)])
            .await;
    let text = stand.post(MESSAGES, &streaming("claude-x")).await.text().await;
    assert_eq!(text, FakeModelResponse::anthropic(2).text());
    let notices = stand.account.notices();
    let expected = [
        (2, "Anthropic limits how much this key may ask (429): slow down"),
        (3, "Anthropic is overloaded (529): no reason given"),
    ];
    assert_eq!(retrying(&notices), expected);
    assert!(matches!(notices[..], [_, _, GatewayNotice::Used(_)]));
    let bodies: Vec<Bytes> = stand.fake.requests().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, vec![Bytes::from(streaming("claude-x")); 3]);
}

#[tokio::test]
async fn an_error_as_the_first_event_is_asked_again() {
    let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let stand = GatewayFixture::with_script([
        FakeModelResponse::stream([format!("event: error\n{error}\n\n")]),
        FakeModelResponse::anthropic(1),
    ])
    .await;
    let text = stand.post(MESSAGES, &streaming("claude-x")).await.text().await;
    assert_eq!(text, FakeModelResponse::anthropic(1).text());
    assert_eq!(retrying(&stand.account.notices()), [(2, "Anthropic is overloaded (529): Overloaded")]);
}

#[tokio::test]
async fn after_the_last_attempt_the_refusal_passes() {
    let stand = GatewayFixture::with_script(
        (0..3).map(|_| FakeModelResponse::complete(503, r#"{"error":"busy"}"#).header("x-id", "7")),
    )
    .await;
    let body = stand.check_refused(CHAT, "gpt-x", 503, "OpenAI is overloaded (503): busy").await;
    assert_eq!(body, r#"{"error":"busy"}"#);
    assert_eq!(stand.fake.requests().len(), 3);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_not_begun() {
    let stand =
        GatewayFixture::with_script([FakeModelResponse::complete(429, "{}").header("retry-after", "3600")]).await;
    stand.check_refused(CHAT, "gpt-x", 429, "OpenAI limits how much this key may ask (429): {}").await;
    assert_eq!(stand.fake.requests().len(), 1);
}

#[tokio::test]
async fn what_is_refused_for_good_passes_at_once() {
    async fn check(status: u16, body: &'static str, why: &str) {
        let stand = GatewayFixture::with_script([FakeModelResponse::complete(status, body)]).await;
        assert_eq!(stand.check_refused(MESSAGES, "claude-x", status, why).await, body);
    }
    let body = r#"{"type":"error","error":{"type":"x","message":"no"}}"#;
    check(400, body, "Anthropic refused the request (400): no").await;
    check(401, body, "Anthropic refused the key (401): check `ANTHROPIC_API_KEY` or `LLM_API_KEY`").await;
    check(403, body, "Anthropic does not allow this key to use `claude-x` (403): no").await;
    check(404, body, "Anthropic knows no model `claude-x` (404): choose another one, or check the base URL").await;
    check(413, body, "the conversation is too large for Anthropic (413): no").await;
}

#[tokio::test]
async fn a_key_that_a_provider_shows_is_taken_out() {
    let shown = format!(r#"{{"error":{{"message":"no such key {KEY} or sk-ca***key"}}}}"#);
    let stand = GatewayFixture::with_script([FakeModelResponse::complete(400, shown).header("x-echo", KEY)]).await;
    let reply = stand.post(CHAT, &streaming("gpt-x")).await;
    assert!(!reply.headers().contains_key("x-echo"));
    assert_eq!(reply.text().await, r#"{"error":{"message":"no such key [redacted] or [redacted]"}}"#);
    assert!(!format!("{:?}", stand.account.notices()).contains("sk-ca"));
}

#[tokio::test]
async fn a_key_in_the_error_that_a_stream_begins_with_is_taken_out_too() {
    let shown = format!(r#"data: {{"error":{{"message":"no such key {KEY}","type":"invalid_request_error"}}}}"#);
    let stand = GatewayFixture::with_script([FakeModelResponse::stream([shown + "\n\n"])]).await;
    let reply = stand.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(reply.contains("no such key [redacted]"), "{reply}");
    let told = format!("{:?}", stand.account.notices());
    assert!(told.contains("[redacted]") && !told.contains(KEY), "{told}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = FakeProvider::start([FakeModelResponse::chat(1)]).await;
    let stand =
        GatewayFixture::with_script([FakeModelResponse::complete(307, "{}").header("location", &elsewhere.url)]).await;
    stand.check_refused(CHAT, "gpt-x", 307, "OpenAI refused the request (307): {}").await;
    assert!(elsewhere.requests().is_empty());
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_named() {
    let gone = FakeProvider::start([]).await.url.clone();
    let stand = GatewayFixture::new(FakeProvider::start([]).await, options(&gone));
    let reply = stand.post(CHAT, &streaming("gpt-x")).await;
    assert_eq!(reply.status(), 502);
    assert!(reply.text().await.contains("OpenAI cannot be reached: "));
    let notices = stand.account.notices();
    assert_eq!(retrying(&notices).len(), 2);
    assert!(matches!(&notices[2], GatewayNotice::Rejected { status: 502, why } if why.contains("cannot be reached")));
}

#[tokio::test]
async fn a_provider_that_says_nothing_is_given_up() {
    let fake = FakeProvider::start([FakeModelResponse::chat(1).delayed(Duration::from_secs(600))]).await;
    let timeouts = TimeoutOptions { whole_answer_s: 1, ..TimeoutOptions::default() };
    let options = GatewayOptions { timeouts, ..options(&fake.url) };
    let stand = GatewayFixture::new(fake, options);
    let reply = stand.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.status(), 504);
    let why = "OpenAI did not answer within 1 s".to_owned();
    let all = stand.account.wait_for(2).await;
    assert_eq!(all[0], GatewayNotice::Rejected { status: 504, why });
    assert!(matches!(&all[1], GatewayNotice::Used(used) if used.estimated), "it may work on: {all:?}");
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_given_up() {
    let fake = FakeProvider::start([
        FakeModelResponse::chat(3).ending_after(2, crate::gateway::fake_provider::FakeResponseEnd::Hang)
    ])
    .await;
    let timeouts = TimeoutOptions { idle_s: 1, ..TimeoutOptions::default() };
    let options = GatewayOptions { timeouts, ..options(&fake.url) };
    let stand = GatewayFixture::new(fake, options);
    let text = stand.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(text.contains("OpenAI sent nothing for 1 s"), "{text}");
}

#[tokio::test]
async fn a_session_that_may_not_call_is_told_why() {
    let stand = GatewayFixture::with_script([]).await;
    *stand.account.denied.lock().expect("no test panics with it") = Some("the budget of 5 USD is spent".into());
    for (path, model) in [(MESSAGES, "claude-x"), (CHAT, "gpt-x"), (MESSAGES, "demo")] {
        let reply = stand.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), 402);
        assert!(reply.text().await.contains("\"message\":\"the budget of 5 USD is spent\""));
    }
    assert!(stand.fake.requests().is_empty());
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_words() {
    let stand = GatewayFixture::with_script([]).await;
    let check = async |path: &str, body: &str, status: u16, part: &str| {
        let reply = stand.post(path, body).await;
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers()["content-type"], "application/json");
        let text = reply.text().await;
        assert!(text.contains(part), "{text}");
    };
    check("/anthropic/v1/files", "", 404, r#"{"type":"error","error":{"type":"not_found_error""#).await;
    check("/nowhere", "", 404, "there is no `POST /nowhere` here (there is: POST /anthropic/v1/messages, ").await;
    check(MESSAGES, "{", 400, "no JSON object").await;
    check(RESPONSES, r#"{"model":"demo"}"#, 400, "the demo model speaks").await;
    assert!(stand.fake.requests().is_empty());
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let stand = GatewayFixture::with_script([]).await;
    let mut stream = UnixStream::connect(stand.directory.path().join("s")).await.expect("it listens");
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 64 * 1024 * 1024 + 1);
    stream.write_all(head.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers, and closes");
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("larger than 64 MiB"), "{answer}");
}

#[tokio::test]
async fn very_many_values_are_too_much_for_the_demo() {
    let stand = GatewayFixture::with_script([]).await;
    let ask = |values: usize| {
        let padding = vec!["[]"; values].join(",");
        format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"hello"}}],"padding":[{padding}]}}"#)
    };
    // That the second is more than a MiB has it read on another thread.
    for (values, status) in [(1000, 200), (400_000, 413)] {
        let reply = stand.post(CHAT, &ask(values)).await;
        assert_eq!(reply.status(), status);
        let text = reply.text().await;
        assert_eq!(text.contains("at most 262144 values"), status == 413, "{text}");
    }
    let long = "[[{{,".repeat(1 << 20);
    let long = format!(r#"{{"model":"demo","messages":[{{"role":"user","content":"{long}"}}]}}"#);
    assert_eq!(stand.post(CHAT, &long).await.status(), 200, "what stands in a text is no value");
}

#[tokio::test]
async fn without_a_key_nobody_is_asked() {
    let options = GatewayOptions { anthropic: ProviderOptions::default(), ..options("http://127.0.0.1:9") };
    let stand = GatewayFixture::new(FakeProvider::start([]).await, options);
    let reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    assert_eq!(reply.status(), 403);
    assert!(reply.text().await.contains("Anthropic needs a key: set `ANTHROPIC_API_KEY`"));
}

#[test]
fn wrong_options_are_named() {
    let check = |anthropic: ProviderOptions, part: &str| {
        let wrong = Gateway::new(GatewayOptions { anthropic, ..GatewayOptions::default() });
        let Err(error) = wrong else { panic!("{part} is wrong") };
        assert!(error.to_string().contains(part), "{error}");
    };
    check(ProviderOptions { base_url: "localhost:80".into(), api_key: None }, "`localhost:80`");
    check(ProviderOptions { base_url: String::new(), api_key: Some(ProviderKey::new("a\nb")) }, "`ANTHROPIC_API_KEY`");
}

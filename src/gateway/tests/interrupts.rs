//! Streams that end early: by an interrupt, by the client, by the provider, or with the endpoint.

use std::time::Duration;

use super::*;
use crate::gateway::{MeteredUsage, fake_provider::FakeResponseEnd};

fn is_estimate(notice: &GatewayNotice) -> bool {
    matches!(notice, GatewayNotice::Used(MeteredUsage { estimated: true, .. }))
}

#[tokio::test]
async fn interrupt_aborts_stream_and_provider_request() {
    let fixture = GatewayFixture::with_script([
        FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang),
        FakeModelResponse::anthropic(1),
    ])
    .await;
    let mut reply = fixture.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    fixture.fake.wait_for_streams(1).await;

    fixture.endpoint.abort_calls();
    let (text, complete) = reply.read_rest().await;
    assert!(complete && text.contains("\nevent: error\ndata: {\"type\":\"error\""), "{text}");
    fixture.fake.wait_for_streams(0).await;
    let notices = fixture.account.wait_for(1).await;
    assert!(
        matches!(&notices[..], [GatewayNotice::Used(used)] if used.estimated && used.input_tokens == 10),
        "{notices:?}"
    );

    let next = fixture.post(MESSAGES, &streaming("claude-x")).await;
    assert!(next.text().await.ends_with("{\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn interrupt_drops_unread_data() {
    let words = (0..400).map(|n| format!("data: {{\"n\":{n},\"x\":\"{}\"}}\n\n", "x".repeat(16 * 1024)));
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::stream([words.collect::<String>() + "data: [DONE]\n\n"])])
            .await;
    let mut reply = fixture.post(CHAT, &streaming("gpt-x")).await;
    // The gateway now holds all of the response, except for the part in the socket.
    fixture.account.wait_for(1).await;
    reply.read_until("\"n\":0,").await;
    fixture.endpoint.abort_calls();
    let (text, complete) = reply.read_rest().await;
    assert!(!complete && !text.contains("\"n\":399,"), "{} bytes arrived after the abort", text.len());
}

#[tokio::test]
async fn interrupt_ends_a_retry_wait() {
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::complete(429, "{}").header("retry-after", "30")]).await;
    let body = streaming("gpt-x");
    let calling = fixture.post(CHAT, &body);
    let aborting = async {
        fixture.account.wait_for(1).await;
        fixture.endpoint.abort_calls();
    };
    let (reply, ()) = tokio::join!(calling, aborting);
    assert_eq!(reply.status(), 403);
    assert!(reply.text().await.contains("interrupted"));
    let notices = fixture.account.notices();
    let [GatewayNotice::Retrying(frame), GatewayNotice::RetriesEnded { call, outcome: None }] = &notices[..] else {
        panic!("{notices:?}")
    };
    assert!(frame.attempt == 2 && frame.wait_ms >= 30_000 && frame.call == *call, "{frame:?}");
    assert_eq!(fixture.fake.requests().len(), 1);
}

#[tokio::test]
async fn interrupt_ends_the_wait_for_a_first_byte() {
    let fixture = GatewayFixture::with_script([FakeModelResponse::chat(1).delayed(Duration::from_secs(60))]).await;
    let body = streaming("gpt-x");
    let calling = fixture.post(CHAT, &body);
    let aborting = async {
        while fixture.fake.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        fixture.endpoint.abort_calls();
    };
    let (reply, ()) = tokio::join!(calling, aborting);
    assert_eq!(reply.status(), 403);
    assert!(is_estimate(&fixture.account.wait_for(1).await[0]), "the provider may have a response by now");
}

#[tokio::test]
async fn client_hang_up_ends_the_provider_request() {
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)]).await;
    let mut reply = fixture.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    drop(reply);
    fixture.fake.wait_for_streams(0).await;
    assert!(is_estimate(&fixture.account.wait_for(1).await[0]));
}

/// The response is generated, and the provider is about to report its usage.
#[tokio::test]
async fn hang_up_before_the_usage_still_books_reported_usage() {
    let check = async |path: &str, response: FakeModelResponse, last: &str, tokens: [u64; 2]| {
        let fixture = GatewayFixture::with_script([response.tokens_per_second(20)]).await;
        let mut reply = fixture.post(path, &streaming("gpt-x")).await;
        reply.read_until(last).await;
        drop(reply);
        let notices = fixture.account.wait_for(1).await;
        let [GatewayNotice::Used(used)] = &notices[..] else { panic!("{notices:?}") };
        assert!(!used.estimated, "{used:?}");
        assert_eq!([used.input_tokens, used.output_tokens], tokens);
        fixture.fake.wait_for_streams(0).await;
    };
    check(MESSAGES, FakeModelResponse::anthropic(2), "content_block_stop\"", [10, 2]).await;
    check(CHAT, FakeModelResponse::chat(2), "\"stop\"", [6, 2]).await;
    let usage = r#"{"input_tokens":10,"output_tokens":400}"#;
    let events = [
        r#"{"type":"response.output_text.delta","delta":"w"}"#.to_owned(),
        r#"{"type":"response.output_text.done","text":"w"}"#.to_owned(),
        format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#),
    ];
    let response = FakeModelResponse::stream(events.map(|event| format!("data: {event}\n\n")));
    check(RESPONSES, response, "text.done", [10, 400]).await;
    let in_one_piece = r#"{"model":"gpt-x-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":400}}"#;
    check(CHAT, FakeModelResponse::complete(200, in_one_piece).split_at(20), "{\"model\"", [10, 400]).await;
}

#[tokio::test]
async fn wait_for_missing_usage_is_bounded() {
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::chat(2).ending_after(3, FakeResponseEnd::Hang)]).await;
    let mut reply = fixture.post(CHAT, &streaming("gpt-x")).await;
    reply.read_until("\"stop\"").await;
    drop(reply);
    tokio::time::timeout(Duration::from_secs(60), fixture.fake.wait_for_streams(0))
        .await
        .expect("the gateway stops reading");
    assert!(is_estimate(&fixture.account.wait_for(1).await[0]));
}

const REFERENCES: [&str; 3] =
    [r#""previous_response_id":"r""#, r#""conversation":{"id":"c"}"#, r#""prompt":{"id":"p","version":"2"}"#];

fn referring_request(reference: &str) -> String {
    format!(r#"{{"model":"gpt-x","stream":true,"input":"go on",{reference}}}"#)
}

#[tokio::test]
async fn external_refs_count_as_full_context_until_usage_arrives() {
    for reference in REFERENCES {
        let fixture = GatewayFixture::with_script([
            FakeModelResponse::responses(9).ending_after(4, FakeResponseEnd::Hang),
            FakeModelResponse::responses(9),
        ])
        .await;
        let mut reply = fixture.post(RESPONSES, &referring_request(reference)).await;
        reply.read_until("w3 ").await;
        drop(reply);
        let notices = fixture.account.wait_for(1).await;
        let [GatewayNotice::Used(used)] = &notices[..] else { panic!("{notices:?}") };
        assert!(used.estimated && used.input_tokens == 200_000, "{reference}: {used:?}");
        // Reported usage replaces the estimate.
        fixture.post(RESPONSES, &referring_request(reference)).await.text().await;
        let notices = fixture.account.wait_for(2).await;
        assert!(
            matches!(&notices[1], GatewayNotice::Used(used) if !used.estimated && used.input_tokens == 6),
            "{notices:?}"
        );
    }
}

#[tokio::test]
async fn external_refs_without_context_limit_are_rejected_only_with_a_budget() {
    let fake = FakeProvider::start(REFERENCES.map(|_| FakeModelResponse::responses(1))).await;
    let mut options = options(&fake.url);
    options.prices.iter_mut().for_each(|price| price.context_limit = None);
    let fixture = GatewayFixture::new(fake, options);
    fixture.account.ledger().set_limit(Some(5.0));
    for reference in REFERENCES {
        let reply = fixture.post(RESPONSES, &referring_request(reference)).await;
        assert_eq!(reply.status(), 400);
        let text = reply.text().await;
        assert!(text.contains("cannot be metered without a `context_limit` in the price of `gpt-x`"), "{text}");
    }
    assert!(fixture.fake.requests().is_empty());
    fixture.account.ledger().set_limit(None);
    for reference in REFERENCES {
        assert_eq!(fixture.post(RESPONSES, &referring_request(reference)).await.status(), 200);
    }
}

/// The client did not hang up, and the provider most likely charges nothing.
#[tokio::test]
async fn reported_failure_counts_only_the_body() {
    let failed =
        r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"},"usage":null}}"#;
    let delta = r#"data: {"type":"response.output_text.delta","delta":"Well"}"#;
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::stream([delta, failed].map(|event| format!("{event}\n\n")))])
            .await;
    fixture.post(RESPONSES, &referring_request(REFERENCES[0])).await.text().await;
    let notices = fixture.account.wait_for(2).await;
    let used = notices.iter().find_map(|notice| if let GatewayNotice::Used(used) = notice { Some(used) } else { None });
    assert!(used.is_some_and(|used| used.estimated && used.input_tokens < 100), "{notices:?}");
}

/// Retrying calls hold all call permits. Another call runs only after these calls have ended with
/// their clients.
#[tokio::test]
async fn client_hang_up_ends_a_retry_wait() {
    let rejections = (0..16).map(|_| FakeModelResponse::complete(529, "{}").header("retry-after", "30"));
    let fixture = GatewayFixture::with_script(rejections.chain([FakeModelResponse::chat(1)])).await;
    let body = streaming("gpt-x");
    {
        let calls = futures::future::join_all((0..16).map(|_| fixture.post(CHAT, &body)));
        tokio::select! {
            _ = calls => panic!("the provider rejects every call"),
            _ = fixture.account.wait_for(16) => {}
        }
    }
    assert!(fixture.post(CHAT, &body).await.text().await.ends_with("[DONE]\n\n"));
}

async fn check_broken(path: &str, model: &str, response: FakeModelResponse, part: &str) {
    let fixture = GatewayFixture::with_script([response.clone()]).await;
    let (text, complete) = fixture.post(path, &streaming(model)).await.read_rest().await;
    let error = text.strip_prefix(&response.text()).expect("the data before the break passes unchanged");
    assert!(complete && error.starts_with(part) && error.contains("error"), "{error}");
    let notices = fixture.account.wait_for(2).await;
    assert!(
        matches!(&notices[..], [GatewayNotice::Rejected { status: 502, .. }, used] if is_estimate(used)),
        "{notices:?}"
    );
}

#[tokio::test]
async fn broken_stream_ends_with_an_error_in_its_format() {
    let anthropic = "\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"";
    check_broken(
        MESSAGES,
        "claude-x",
        FakeModelResponse::anthropic(9).ending_after(5, FakeResponseEnd::Broken),
        anthropic,
    )
    .await;
    check_broken(
        CHAT,
        "gpt-x",
        FakeModelResponse::chat(9).ending_after(5, FakeResponseEnd::Broken),
        "\ndata: {\"error\":{\"message\":",
    )
    .await;
    let responses = "\nevent: error\ndata: {\"type\":\"error\",\"code\":\"api_error\"";
    check_broken(
        RESPONSES,
        "gpt-x",
        FakeModelResponse::responses(9).ending_after(5, FakeResponseEnd::Broken),
        responses,
    )
    .await;
    // The connection closes cleanly, as if the stream were complete.
    check_broken(
        MESSAGES,
        "claude-x",
        FakeModelResponse::anthropic(9).ending_after(5, FakeResponseEnd::Complete),
        anthropic,
    )
    .await;
}

#[tokio::test]
async fn incomplete_line_is_not_passed_on() {
    let whole = "data: {\"choices\":[{\"delta\":{\"content\":\"w\"}}]}\n\n";
    let half = FakeModelResponse::stream([whole.to_owned(), "data: {\"cho".to_owned()])
        .ending_after(2, FakeResponseEnd::Broken);
    let fixture = GatewayFixture::with_script([half.tokens_per_second(1000)]).await;
    let text = fixture.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(text.starts_with(&format!("{whole}\ndata: {{\"error\":")), "{text}");
}

#[tokio::test]
async fn incomplete_body_is_aborted() {
    // Longer than what is held back.
    let half = format!("{{\"half\":\"{}", "x".repeat(100_000));
    let broken = FakeModelResponse::complete(200, half.clone()).ending_after(1, FakeResponseEnd::Broken);
    let fixture = GatewayFixture::with_script([broken]).await;
    let reply = fixture.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.read_rest().await, (half, false));
}

/// An answer in one piece was paid before its first byte, so it is not asked for again.
#[tokio::test]
async fn short_incomplete_body_is_an_error_and_not_retried() {
    let broken = FakeModelResponse::complete(200, "{\"half\":").ending_after(1, FakeResponseEnd::Broken);
    let fixture = GatewayFixture::with_script([broken]).await;
    let reply = fixture.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.status(), 502);
    assert!(reply.text().await.contains("the connection to OpenAI broke"));
    assert_eq!(fixture.fake.requests().len(), 1);
    let notices = fixture.account.wait_for(2).await;
    assert!(
        matches!(&notices[..], [GatewayNotice::Rejected { status: 502, .. }, used] if is_estimate(used)),
        "{notices:?}"
    );
}

#[tokio::test]
async fn stream_error_passes_and_is_reported() {
    let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let delta = r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Well"}}"#;
    let mut events = vec![format!("{delta}\n\n")];
    events.push(format!("event: error\n{error}\n\n"));
    let response = FakeModelResponse::stream(events).tokens_per_second(100);
    let fixture = GatewayFixture::with_script([response.clone()]).await;
    assert_eq!(fixture.post(MESSAGES, &streaming("claude-x")).await.text().await, response.text());
    let reason = "Anthropic is overloaded (529): Overloaded".to_owned();
    assert_eq!(fixture.account.wait_for(1).await[0], GatewayNotice::Rejected { status: 529, why: reason });
}

#[tokio::test]
async fn dropped_endpoint_ends_its_calls() {
    let GatewayFixture { fake, endpoint, account, directory } =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)])
            .await
            .opened()
            .await;
    drop(endpoint);
    fake.wait_for_streams(0).await;
    assert!(is_estimate(&account.wait_for(1).await[0]));
    let connection = UnixStream::connect(directory.path().join("s")).await;
    assert!(connection.is_err());
}

impl GatewayFixture {
    /// Opens a stream that keeps running while the client reads.
    async fn opened(self) -> GatewayFixture {
        let mut reply = self.post(MESSAGES, &streaming("claude-x")).await;
        reply.read_until("w3 ").await;
        tokio::spawn(reply.read_rest());
        self
    }
}

#[tokio::test]
async fn closed_gateway_has_reported_all_usage() {
    let fixture =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)]).await;
    let gateway = fixture.endpoint.context().gateway.clone();
    let mut reply = fixture.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    gateway.close().await;
    let notices = fixture.account.notices();
    assert!(matches!(&notices[..], [used] if is_estimate(used)), "{notices:?}");
    let (text, complete) = reply.read_rest().await;
    assert!(!complete && !text.contains("interrupted"), "the agent must retry: {text}");
    assert!(UnixStream::connect(fixture.directory.path().join("s")).await.is_err(), "the socket is closed");
    gateway.close().await;
}

//! Streams that end before their time: by an interrupt, by the client, by the provider, with the endpoint.

use std::time::Duration;

use super::*;
use crate::gateway::{MeteredUsage, fake_provider::FakeResponseEnd};

fn is_estimate(notice: &GatewayNotice) -> bool {
    matches!(notice, GatewayNotice::Used(MeteredUsage { estimated: true, .. }))
}

#[tokio::test]
async fn an_interrupt_cuts_a_stream_and_its_request() {
    let stand = GatewayFixture::with_script([
        FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang),
        FakeModelResponse::anthropic(1),
    ])
    .await;
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    stand.fake.wait_for_streams(1).await;

    stand.endpoint.abort_calls();
    let (text, whole) = reply.read_rest().await;
    assert!(whole && text.contains("\nevent: error\ndata: {\"type\":\"error\""), "{text}");
    stand.fake.wait_for_streams(0).await;
    let notices = stand.account.wait_for(1).await;
    assert!(
        matches!(&notices[..], [GatewayNotice::Used(used)] if used.estimated && used.input_tokens == 10),
        "{notices:?}"
    );

    let next = stand.post(MESSAGES, &streaming("claude-x")).await;
    assert!(next.text().await.ends_with("{\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn an_interrupt_drops_what_nobody_has_read() {
    let words = (0..400).map(|n| format!("data: {{\"n\":{n},\"x\":\"{}\"}}\n\n", "x".repeat(16 * 1024)));
    let stand =
        GatewayFixture::with_script([FakeModelResponse::stream([words.collect::<String>() + "data: [DONE]\n\n"])])
            .await;
    let mut reply = stand.post(CHAT, &streaming("gpt-x")).await;
    // All of it is in the gateway now, but for what the socket holds.
    stand.account.wait_for(1).await;
    reply.read_until("\"n\":0,").await;
    stand.endpoint.abort_calls();
    let (text, whole) = reply.read_rest().await;
    assert!(!whole && !text.contains("\"n\":399,"), "{} bytes came after the cut", text.len());
}

#[tokio::test]
async fn an_interrupt_ends_a_wait() {
    let stand = GatewayFixture::with_script([FakeModelResponse::complete(429, "{}").header("retry-after", "30")]).await;
    let body = streaming("gpt-x");
    let calling = stand.post(CHAT, &body);
    let cutting = async {
        stand.account.wait_for(1).await;
        stand.endpoint.abort_calls();
    };
    let (reply, ()) = tokio::join!(calling, cutting);
    assert_eq!(reply.status(), 403);
    assert!(reply.text().await.contains("interrupted"));
    assert!(matches!(&stand.account.notices()[..], [GatewayNotice::Retrying { attempt: 2, wait_ms: 30_000.., .. }]));
    assert_eq!(stand.fake.requests().len(), 1);
}

#[tokio::test]
async fn an_interrupt_ends_a_slow_first_byte() {
    let stand = GatewayFixture::with_script([FakeModelResponse::chat(1).delayed(Duration::from_secs(60))]).await;
    let body = streaming("gpt-x");
    let calling = stand.post(CHAT, &body);
    let cutting = async {
        while stand.fake.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        stand.endpoint.abort_calls();
    };
    let (reply, ()) = tokio::join!(calling, cutting);
    assert_eq!(reply.status(), 403);
    assert!(is_estimate(&stand.account.wait_for(1).await[0]), "who has the request may have an answer to it by now");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request() {
    let stand =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)]).await;
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    drop(reply);
    stand.fake.wait_for_streams(0).await;
    assert!(is_estimate(&stand.account.wait_for(1).await[0]));
}

/// The answer is made, and the provider is about to say what it took.
#[tokio::test]
async fn a_client_that_hangs_up_when_all_is_said_pays_what_it_took() {
    let check = async |path: &str, answer: FakeModelResponse, last: &str, tokens: [u64; 2]| {
        let stand = GatewayFixture::with_script([answer.tokens_per_second(20)]).await;
        let mut reply = stand.post(path, &streaming("gpt-x")).await;
        reply.read_until(last).await;
        drop(reply);
        let notices = stand.account.wait_for(1).await;
        let [GatewayNotice::Used(used)] = &notices[..] else { panic!("{notices:?}") };
        assert!(!used.estimated, "{used:?}");
        assert_eq!([used.input_tokens, used.output_tokens], tokens);
        stand.fake.wait_for_streams(0).await;
    };
    check(MESSAGES, FakeModelResponse::anthropic(2), "content_block_stop\"", [10, 2]).await;
    check(CHAT, FakeModelResponse::chat(2), "\"stop\"", [6, 2]).await;
    let usage = r#"{"input_tokens":10,"output_tokens":400}"#;
    let events = [
        r#"{"type":"response.output_text.delta","delta":"w"}"#.to_owned(),
        r#"{"type":"response.output_text.done","text":"w"}"#.to_owned(),
        format!(r#"{{"type":"response.completed","response":{{"usage":{usage}}}}}"#),
    ];
    let answer = FakeModelResponse::stream(events.map(|event| format!("data: {event}\n\n")));
    check(RESPONSES, answer, "text.done", [10, 400]).await;
    let whole = r#"{"model":"gpt-x-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":400}}"#;
    check(CHAT, FakeModelResponse::complete(200, whole).split_at(20), "{\"model\"", [10, 400]).await;
}

#[tokio::test]
async fn a_provider_that_does_not_say_what_it_took_is_not_heard_for_ever() {
    let stand = GatewayFixture::with_script([FakeModelResponse::chat(2).ending_after(3, FakeResponseEnd::Hang)]).await;
    let mut reply = stand.post(CHAT, &streaming("gpt-x")).await;
    reply.read_until("\"stop\"").await;
    drop(reply);
    tokio::time::timeout(Duration::from_secs(60), stand.fake.wait_for_streams(0)).await.expect("it is given up");
    assert!(is_estimate(&stand.account.wait_for(1).await[0]));
}

const AT_MORE: [&str; 3] =
    [r#""previous_response_id":"r""#, r#""conversation":{"id":"c"}"#, r#""prompt":{"id":"p","version":"2"}"#];

fn pointing(more: &str) -> String {
    format!(r#"{{"model":"gpt-x","stream":true,"input":"go on",{more}}}"#)
}

#[tokio::test]
async fn what_a_provider_keeps_is_a_whole_context_until_it_tells() {
    for more in AT_MORE {
        let stand = GatewayFixture::with_script([
            FakeModelResponse::responses(9).ending_after(4, FakeResponseEnd::Hang),
            FakeModelResponse::responses(9),
        ])
        .await;
        let mut reply = stand.post(RESPONSES, &pointing(more)).await;
        reply.read_until("w3 ").await;
        drop(reply);
        let notices = stand.account.wait_for(1).await;
        let [GatewayNotice::Used(used)] = &notices[..] else { panic!("{notices:?}") };
        assert!(used.estimated && used.input_tokens == 200_000, "{more}: {used:?}");
        // What is told counts.
        stand.post(RESPONSES, &pointing(more)).await.text().await;
        let notices = stand.account.wait_for(2).await;
        assert!(
            matches!(&notices[1], GatewayNotice::Used(used) if !used.estimated && used.input_tokens == 6),
            "{notices:?}"
        );
    }
}

#[tokio::test]
async fn what_a_provider_keeps_is_read_on_no_budget_where_nobody_knows_how_much_it_may_be() {
    let fake = FakeProvider::start(AT_MORE.map(|_| FakeModelResponse::responses(1))).await;
    let mut options = options(&fake.url);
    options.prices.iter_mut().for_each(|price| price.context_limit = None);
    let stand = GatewayFixture::new(fake, options);
    for more in AT_MORE {
        let reply = stand.post(RESPONSES, &pointing(more)).await;
        assert_eq!(reply.status(), 400);
        let text = reply.text().await;
        assert!(text.contains("cannot be metered without a `context_limit` in the price of `gpt-x`"), "{text}");
    }
    assert!(stand.fake.requests().is_empty());
    stand.account.has_no_budget.store(true, Ordering::Relaxed);
    for more in AT_MORE {
        assert_eq!(stand.post(RESPONSES, &pointing(more)).await.status(), 200);
    }
}

/// It has not been hung up on, and most likely asks no money.
#[tokio::test]
async fn a_provider_that_says_that_it_failed_took_no_more_than_the_body() {
    let failed =
        r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"},"usage":null}}"#;
    let begun = r#"data: {"type":"response.output_text.delta","delta":"Well"}"#;
    let stand =
        GatewayFixture::with_script([FakeModelResponse::stream([begun, failed].map(|event| format!("{event}\n\n")))])
            .await;
    stand.post(RESPONSES, &pointing(AT_MORE[0])).await.text().await;
    let notices = stand.account.wait_for(2).await;
    let used = notices.iter().find_map(|notice| if let GatewayNotice::Used(used) = notice { Some(used) } else { None });
    assert!(used.is_some_and(|used| used.estimated && used.input_tokens < 100), "{notices:?}");
}

/// As many calls as may run at once wait for their next attempt; only when those that hung up are gone is there a place for
/// another one.
#[tokio::test]
async fn a_client_that_hangs_up_ends_its_wait() {
    let refusals = (0..16).map(|_| FakeModelResponse::complete(529, "{}").header("retry-after", "30"));
    let stand = GatewayFixture::with_script(refusals.chain([FakeModelResponse::chat(1)])).await;
    let body = streaming("gpt-x");
    {
        let calls = futures::future::join_all((0..16).map(|_| stand.post(CHAT, &body)));
        tokio::select! {
            _ = calls => panic!("nobody answers"),
            _ = stand.account.wait_for(16) => {}
        }
    }
    assert!(stand.post(CHAT, &body).await.text().await.ends_with("[DONE]\n\n"));
}

async fn check_broken(path: &str, model: &str, answer: FakeModelResponse, part: &str) {
    let stand = GatewayFixture::with_script([answer.clone()]).await;
    let (text, whole) = stand.post(path, &streaming(model)).await.read_rest().await;
    let error = text.strip_prefix(&answer.text()).expect("what came before passes whole");
    assert!(whole && error.starts_with(part) && error.contains("error"), "{error}");
    let notices = stand.account.wait_for(2).await;
    assert!(
        matches!(&notices[..], [GatewayNotice::Rejected { status: 502, .. }, used] if is_estimate(used)),
        "{notices:?}"
    );
}

#[tokio::test]
async fn a_provider_that_breaks_off_is_told_in_its_own_format() {
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
    // As politely as if it had been all.
    check_broken(
        MESSAGES,
        "claude-x",
        FakeModelResponse::anthropic(9).ending_after(5, FakeResponseEnd::Complete),
        anthropic,
    )
    .await;
}

#[tokio::test]
async fn half_a_line_is_not_passed_on() {
    let half = FakeModelResponse::stream(["data: {\"choices\":[]}\n\n".to_owned(), "data: {\"cho".to_owned()])
        .ending_after(2, FakeResponseEnd::Broken);
    let stand = GatewayFixture::with_script([half.tokens_per_second(1000)]).await;
    let text = stand.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(text.starts_with("data: {\"choices\":[]}\n\n\ndata: {\"error\":"), "{text}");
}

#[tokio::test]
async fn half_an_answer_in_one_piece_is_seen_to_be_half() {
    let stand = GatewayFixture::with_script([
        FakeModelResponse::complete(200, "{\"half\":").ending_after(1, FakeResponseEnd::Broken)
    ])
    .await;
    let reply = stand.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.read_rest().await, ("{\"half\":".to_owned(), false));
}

#[tokio::test]
async fn a_providers_own_error_passes_and_is_told() {
    let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let mut events = vec!["data: {\"type\":\"ping\"}\n\n".to_owned()];
    events.push(format!("event: error\n{error}\n\n"));
    let answer = FakeModelResponse::stream(events).tokens_per_second(100);
    let stand = GatewayFixture::with_script([answer.clone()]).await;
    assert_eq!(stand.post(MESSAGES, &streaming("claude-x")).await.text().await, answer.text());
    let why = "Anthropic is overloaded (529): Overloaded".to_owned();
    assert_eq!(stand.account.wait_for(1).await[0], GatewayNotice::Rejected { status: 529, why });
}

#[tokio::test]
async fn an_endpoint_that_is_dropped_takes_its_calls_along() {
    let GatewayFixture { fake, endpoint, account, directory } =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)])
            .await
            .opened()
            .await;
    drop(endpoint);
    fake.wait_for_streams(0).await;
    assert!(is_estimate(&account.wait_for(1).await[0]));
    let refused = UnixStream::connect(directory.path().join("s")).await;
    assert!(refused.is_err());
}

impl GatewayFixture {
    /// With one stream that runs, and is read by somebody.
    async fn opened(self) -> GatewayFixture {
        let mut reply = self.post(MESSAGES, &streaming("claude-x")).await;
        reply.read_until("w3 ").await;
        tokio::spawn(reply.read_rest());
        self
    }
}

#[tokio::test]
async fn a_gateway_that_closes_has_told_what_its_calls_took() {
    let stand =
        GatewayFixture::with_script([FakeModelResponse::anthropic(9).ending_after(6, FakeResponseEnd::Hang)]).await;
    let gateway = stand.endpoint.context().gateway.clone();
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    gateway.close().await;
    let notices = stand.account.notices();
    assert!(matches!(&notices[..], [used] if is_estimate(used)), "{notices:?}");
    let (text, whole) = reply.read_rest().await;
    assert!(!whole && !text.contains("interrupted"), "the agent is to ask again: {text}");
    assert!(UnixStream::connect(stand.directory.path().join("s")).await.is_err(), "nobody listens");
    gateway.close().await;
}

//! Streams that end before their time: by an interrupt, by the client, by the provider, with the endpoint.

use std::time::Duration;

use super::*;
use crate::gateway::{Metered, fake::End};

fn is_estimate(notice: &Notice) -> bool {
    matches!(notice, Notice::Used(Metered { estimated: true, .. }))
}

#[tokio::test]
async fn an_interrupt_cuts_a_stream_and_its_request() {
    let stand = Stand::with([Answer::anthropic(9).ending(6, End::Hang), Answer::anthropic(1)]).await;
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    stand.fake.streaming(1).await;

    stand.endpoint.cut();
    let (text, whole) = reply.rest().await;
    assert!(whole && text.contains("\nevent: error\ndata: {\"type\":\"error\""), "{text}");
    stand.fake.streaming(0).await;
    let notices = stand.ledger.wait_for(1).await;
    assert!(matches!(&notices[..], [Notice::Used(used)] if used.estimated && used.input_tokens == 10), "{notices:?}");

    let next = stand.post(MESSAGES, &streaming("claude-x")).await;
    assert!(next.text().await.ends_with("{\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn an_interrupt_drops_what_nobody_has_read() {
    let words = (0..400).map(|n| format!("data: {{\"n\":{n},\"x\":\"{}\"}}\n\n", "x".repeat(16 * 1024)));
    let stand = Stand::with([Answer::stream([words.collect::<String>() + "data: [DONE]\n\n"])]).await;
    let mut reply = stand.post(CHAT, &streaming("gpt-x")).await;
    // All of it is in the gateway now, but for what the socket holds.
    stand.ledger.wait_for(1).await;
    reply.read_until("\"n\":0,").await;
    stand.endpoint.cut();
    let (text, whole) = reply.rest().await;
    assert!(!whole && !text.contains("\"n\":399,"), "{} bytes came after the cut", text.len());
}

#[tokio::test]
async fn an_interrupt_ends_a_wait() {
    let stand = Stand::with([Answer::whole(429, "{}").header("retry-after", "30")]).await;
    let body = streaming("gpt-x");
    let calling = stand.post(CHAT, &body);
    let cutting = async {
        stand.ledger.wait_for(1).await;
        stand.endpoint.cut();
    };
    let (reply, ()) = tokio::join!(calling, cutting);
    assert_eq!(reply.status(), 403);
    assert!(reply.text().await.contains("interrupted"));
    assert!(matches!(&stand.ledger.all()[..], [Notice::Retrying { attempt: 2, wait_ms: 30_000.., .. }]));
    assert_eq!(stand.fake.seen().len(), 1);
}

#[tokio::test]
async fn an_interrupt_ends_a_slow_first_byte() {
    let stand = Stand::with([Answer::chat(1).after(Duration::from_secs(60))]).await;
    let body = streaming("gpt-x");
    let calling = stand.post(CHAT, &body);
    let cutting = async {
        while stand.fake.seen().is_empty() {
            tokio::task::yield_now().await;
        }
        stand.endpoint.cut();
    };
    let (reply, ()) = tokio::join!(calling, cutting);
    assert_eq!(reply.status(), 403);
    assert!(is_estimate(&stand.ledger.wait_for(1).await[0]), "who has the request may have an answer to it by now");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_request() {
    let stand = Stand::with([Answer::anthropic(9).ending(6, End::Hang)]).await;
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    drop(reply);
    stand.fake.streaming(0).await;
    assert!(is_estimate(&stand.ledger.wait_for(1).await[0]));
}

/// As many calls as may run at once wait for their next attempt; only when those that hung up are gone is there a place for
/// another one.
#[tokio::test]
async fn a_client_that_hangs_up_ends_its_wait() {
    let refusals = (0..16).map(|_| Answer::whole(529, "{}").header("retry-after", "30"));
    let stand = Stand::with(refusals.chain([Answer::chat(1)])).await;
    let body = streaming("gpt-x");
    {
        let calls = futures::future::join_all((0..16).map(|_| stand.post(CHAT, &body)));
        tokio::select! {
            _ = calls => panic!("nobody answers"),
            _ = stand.ledger.wait_for(16) => {}
        }
    }
    assert!(stand.post(CHAT, &body).await.text().await.ends_with("[DONE]\n\n"));
}

async fn check_broken(path: &str, model: &str, answer: Answer, part: &str) {
    let stand = Stand::with([answer.clone()]).await;
    let (text, whole) = stand.post(path, &streaming(model)).await.rest().await;
    let error = text.strip_prefix(&answer.text()).expect("what came before passes whole");
    assert!(whole && error.starts_with(part) && error.contains("error"), "{error}");
    let notices = stand.ledger.wait_for(2).await;
    assert!(matches!(&notices[..], [Notice::Refused { status: 502, .. }, used] if is_estimate(used)), "{notices:?}");
}

#[tokio::test]
async fn a_provider_that_breaks_off_is_told_in_its_own_format() {
    let anthropic = "\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"";
    check_broken(MESSAGES, "claude-x", Answer::anthropic(9).ending(5, End::Cut), anthropic).await;
    check_broken(CHAT, "gpt-x", Answer::chat(9).ending(5, End::Cut), "\ndata: {\"error\":{\"message\":").await;
    let responses = "\nevent: error\ndata: {\"type\":\"error\",\"code\":\"api_error\"";
    check_broken(RESPONSES, "gpt-x", Answer::responses(9).ending(5, End::Cut), responses).await;
    // As politely as if it had been all.
    check_broken(MESSAGES, "claude-x", Answer::anthropic(9).ending(5, End::Whole), anthropic).await;
}

#[tokio::test]
async fn half_a_line_is_not_passed_on() {
    let half = Answer::stream(["data: {\"choices\":[]}\n\n".to_owned(), "data: {\"cho".to_owned()]).ending(2, End::Cut);
    let stand = Stand::with([half.tokens_per_second(1000)]).await;
    let text = stand.post(CHAT, &streaming("gpt-x")).await.text().await;
    assert!(text.starts_with("data: {\"choices\":[]}\n\n\ndata: {\"error\":"), "{text}");
}

#[tokio::test]
async fn half_an_answer_in_one_piece_is_seen_to_be_half() {
    let stand = Stand::with([Answer::whole(200, "{\"half\":").ending(1, End::Cut)]).await;
    let reply = stand.post(CHAT, r#"{"model":"gpt-x"}"#).await;
    assert_eq!(reply.rest().await, ("{\"half\":".to_owned(), false));
}

#[tokio::test]
async fn a_providers_own_error_passes_and_is_told() {
    let error = r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let mut events = vec!["data: {\"type\":\"ping\"}\n\n".to_owned()];
    events.push(format!("event: error\n{error}\n\n"));
    let answer = Answer::stream(events).tokens_per_second(100);
    let stand = Stand::with([answer.clone()]).await;
    assert_eq!(stand.post(MESSAGES, &streaming("claude-x")).await.text().await, answer.text());
    let why = "Anthropic is overloaded (529): Overloaded".to_owned();
    assert_eq!(stand.ledger.wait_for(1).await[0], Notice::Refused { status: 529, why });
}

#[tokio::test]
async fn an_endpoint_that_is_dropped_takes_its_calls_along() {
    let Stand { fake, endpoint, ledger, directory } =
        Stand::with([Answer::anthropic(9).ending(6, End::Hang)]).await.opened().await;
    drop(endpoint);
    fake.streaming(0).await;
    assert!(is_estimate(&ledger.wait_for(1).await[0]));
    let refused = UnixStream::connect(directory.path().join("s")).await;
    assert!(refused.is_err());
}

impl Stand {
    /// With one stream that runs, and is read by somebody.
    async fn opened(self) -> Stand {
        let mut reply = self.post(MESSAGES, &streaming("claude-x")).await;
        reply.read_until("w3 ").await;
        tokio::spawn(reply.rest());
        self
    }
}

#[tokio::test]
async fn a_gateway_that_closes_has_told_what_its_calls_took() {
    let stand = Stand::with([Answer::anthropic(9).ending(6, End::Hang)]).await;
    let gateway = stand.endpoint.door().gateway.clone();
    let mut reply = stand.post(MESSAGES, &streaming("claude-x")).await;
    reply.read_until("w3 ").await;
    gateway.close().await;
    let notices = stand.ledger.all();
    assert!(matches!(&notices[..], [used] if is_estimate(used)), "{notices:?}");
    let (text, whole) = reply.rest().await;
    assert!(!whole && !text.contains("interrupted"), "the agent is to ask again: {text}");
    assert!(UnixStream::connect(stand.directory.path().join("s")).await.is_err(), "nobody listens");
    gateway.close().await;
}

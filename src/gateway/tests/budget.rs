//! Budgets, permitted models and the cause of a call, as an agent meets them.

use super::*;
use crate::{config::ForeignModels, gateway::fake_provider::FakeResponseEnd};

/// Returns a fixture whose session may spend `limit` USD. `claude-x` and `gpt-x` cost 1 USD per
/// million input tokens, and 10 USD per million output tokens.
async fn with_budget(limit: f64, script: impl IntoIterator<Item = FakeModelResponse>) -> GatewayFixture {
    let fixture = GatewayFixture::with_script(script).await;
    fixture.account.ledger().set_limit(Some(limit));
    fixture
}

impl GatewayFixture {
    fn sent(&self) -> Vec<String> {
        let bodies = self.fake.requests().into_iter().map(|request| request.body);
        bodies.map(|body| String::from_utf8(body.to_vec()).expect("the body is UTF-8")).collect()
    }
}

#[tokio::test]
async fn answer_is_limited_only_with_a_budget() {
    let responses = || [FakeModelResponse::anthropic(1), FakeModelResponse::chat(1), FakeModelResponse::responses(1)];
    let calls = [
        (MESSAGES, "claude-x", "max_tokens"),
        (CHAT, "gpt-x", "max_tokens"),
        (RESPONSES, "gpt-x", "max_output_tokens"),
    ];
    let fixture = with_budget(1.0, responses()).await;
    for (path, model, field) in calls {
        fixture.post(path, &streaming(model)).await.text().await;
        let sent = fixture.sent().pop().expect("the provider was called");
        assert!(sent.contains(&format!(r#""{field}":8192,"#)), "{sent}");
    }
    let unlimited = GatewayFixture::with_script(responses()).await;
    for (path, model, _) in calls {
        unlimited.post(path, &streaming(model)).await.text().await;
        let sent = unlimited.sent().pop().expect("the provider was called");
        assert!(!sent.contains("8192"), "{sent}");
    }
}

#[tokio::test]
async fn huge_answer_is_lowered_to_what_is_left() {
    let fixture = with_budget(0.01, [FakeModelResponse::anthropic(1)]).await;
    let body = r#"{"model":"claude-x","stream":true,"max_tokens":1000000000}"#;
    fixture.post(MESSAGES, body).await.text().await;
    let sent = fixture.sent().pop().expect("the provider was called");
    let limit: serde_json::Value = serde_json::from_str(&sent).expect("the body is JSON");
    // 58 bytes count as 29 tokens, which may be written to a cache at 2 USD.
    assert_eq!(limit["max_tokens"], 994, "{sent}");
}

#[tokio::test]
async fn call_beyond_the_budget_is_rejected_and_reported() {
    let fixture = with_budget(0.0001, []).await;
    let reply = fixture.post(MESSAGES, &streaming("claude-x")).await;
    assert_eq!(reply.status(), 402);
    assert!(reply.text().await.contains("billing_error"));
    assert_eq!(fixture.account.notices(), [GatewayNotice::BudgetSpent { why: "spent".to_owned() }]);
    assert!(fixture.fake.requests().is_empty());
}

#[tokio::test]
async fn unpriced_model_is_rejected_with_a_budget() {
    let mut options = options("http://192.0.2.1:9");
    options.prices.clear();
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, options);
    fixture.account.ledger().set_limit(Some(5.0));
    for (path, model) in [(MESSAGES, "claude-x"), (CHAT, "gpt-x"), (RESPONSES, "gpt-x")] {
        let reply = fixture.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), 402);
        let text = reply.text().await;
        assert!(text.contains("set its price, or remove the budget") && text.contains(model), "{text}");
    }
    let notices = fixture.account.notices();
    assert!(matches!(&notices[..], [GatewayNotice::Rejected { status: 402, .. }, _, _]), "{notices:?}");
}

#[tokio::test]
async fn free_models_pass_a_spent_budget_unchanged() {
    let fake = FakeProvider::start([FakeModelResponse::chat(1)]).await;
    // The fake provider has a loopback address.
    let options = ModelConfig { prices: Vec::new(), ..options(&fake.url) };
    let fixture = GatewayFixture::new(fake, options);
    *fixture.account.ledger() = SpendingLedger::new(Some(1.0), 2.0);
    assert_eq!(fixture.post(CHAT, &streaming("any")).await.status(), 200);
    assert!(!fixture.sent()[0].contains("max_tokens"), "{:?}", fixture.sent());
    assert_eq!(fixture.post(MESSAGES, &streaming("demo")).await.status(), 200);
}

/// A proxy at a loopback address may serve a model of another company under an alias.
#[tokio::test]
async fn alias_has_the_price_of_the_model_that_answered() {
    let fixture = with_budget(1.0, (0..3).map(|_| FakeModelResponse::chat(3))).await;
    for limit in [None, Some(8192)] {
        assert!(fixture.post(CHAT, &streaming("alias")).await.read_rest().await.1);
        let sent: serde_json::Value =
            serde_json::from_str(fixture.sent().last().expect("the provider was called")).expect("the body is JSON");
        assert_eq!((&sent["model"], sent["max_tokens"].as_u64()), (&"alias".into(), limit));
    }
    *fixture.account.ledger() = SpendingLedger::new(Some(1.0), 2.0);
    assert_eq!(fixture.post(CHAT, &streaming("alias")).await.status(), 402);
    assert_eq!(fixture.post(CHAT, &streaming("other-alias")).await.status(), 200);
}

#[tokio::test]
async fn reservation_becomes_the_cost_however_the_call_ends() {
    let script = [
        FakeModelResponse::anthropic(3),
        FakeModelResponse::complete(400, "{}"),
        FakeModelResponse::anthropic(9).ending_after(5, FakeResponseEnd::Hang),
    ];
    let fixture = with_budget(1.0, script).await;
    fixture.post(MESSAGES, &streaming("claude-x")).await.text().await;
    // 10 input, 7 cache reads, 5 cache writes and 3 output tokens.
    let cost = (10.0 + 7.0 * 0.5 + 5.0 * 2.0 + 3.0 * 10.0) / 1e6;
    let spent = |usd: f64| {
        let mut settled = SpendingLedger::new(Some(1.0), 0.0);
        settled.settle(0.0, usd);
        settled
    };
    assert_eq!(*fixture.account.ledger(), spent(cost));
    fixture.post(MESSAGES, &streaming("claude-x")).await.text().await;
    assert_eq!(*fixture.account.ledger(), spent(cost), "a rejected call costs nothing");
    let mut hung = fixture.post(MESSAGES, &streaming("claude-x")).await;
    hung.read_until("w1").await;
    drop(hung);
    let notices = fixture.account.wait_for(3).await;
    let GatewayNotice::Used(used) = &notices[2] else { panic!("{notices:?}") };
    assert!(used.estimated);
    let cost = cost + used.cost_usd.expect("the model has a price");
    assert_eq!(*fixture.account.ledger(), spent(cost), "the reservation of the hang-up is gone");
}

#[tokio::test]
async fn foreign_models_follow_the_rule() {
    let models = |foreign| SessionModels { names: vec!["claude-x".to_owned()], small: None, foreign };
    let fixture = GatewayFixture::with_script([FakeModelResponse::anthropic(1), FakeModelResponse::anthropic(1)]).await;
    let set = |foreign| {
        let mut listed = fixture.account.models.lock().expect("the lock is never poisoned: no holder panics");
        *listed = Some(models(foreign));
    };
    set(ForeignModels::Map);
    assert_eq!(fixture.post(MESSAGES, &streaming("claude-opus-9")).await.status(), 200);
    set(ForeignModels::Pass);
    assert_eq!(fixture.post(MESSAGES, &streaming("claude-opus-9")).await.status(), 200);
    assert!(fixture.sent()[0].contains(r#""claude-x""#) && fixture.sent()[1].contains(r#""claude-opus-9""#));
    set(ForeignModels::Refuse);
    let reply = fixture.post(MESSAGES, &streaming("claude-opus-9")).await;
    assert_eq!(reply.status(), 402);
    assert!(reply.text().await.contains("its models are `claude-x`"));
    assert_eq!(fixture.sent().len(), 2);
    let request = Request::get("/anthropic/v1/models").body(Full::default()).expect("a request");
    let list = fixture.send(request).await.text().await;
    assert!(list.contains(r#""id":"claude-x""#), "{list}");
    let request = Request::get("/openai/v1/models").body(Full::default()).expect("a request");
    assert!(!fixture.send(request).await.text().await.contains("claude-x"));
}

#[tokio::test]
async fn metered_calls_need_a_cause() {
    let fixture = GatewayFixture::with_script([FakeModelResponse::complete(200, r#"{"input_tokens":1}"#)]).await;
    fixture.account.has_no_cause.store(true, Ordering::Relaxed);
    for (path, model) in [(MESSAGES, "claude-x"), (CHAT, "gpt-x"), (RESPONSES, "gpt-x"), (MESSAGES, "demo")] {
        let reply = fixture.post(path, &streaming(model)).await;
        assert_eq!(reply.status(), 403);
        assert!(reply.text().await.contains("neither a turn nor a user action runs"));
    }
    assert!(fixture.fake.requests().is_empty());
    let counted = fixture.post("/anthropic/v1/messages/count_tokens", r#"{"model":"claude-x"}"#).await;
    assert_eq!(counted.status(), 200, "a count of tokens is free");
}

/// A budget is often set because a call runs away.
#[tokio::test]
async fn budget_that_is_set_counts_running_calls() {
    let script = [FakeModelResponse::anthropic(9).ending_after(5, FakeResponseEnd::Hang)];
    let fixture = GatewayFixture::with_script(script).await;
    let mut running = fixture.post(MESSAGES, &streaming("claude-x")).await;
    running.read_until("w1").await;
    fixture.account.ledger().set_limit(Some(0.01));
    assert_eq!(fixture.post(MESSAGES, &streaming("claude-x")).await.status(), 402, "the running call holds the budget");
}

#[tokio::test(start_paused = true)]
async fn answer_that_nobody_waits_for_is_charged_by_its_time() {
    let slow = FakeModelResponse::complete(200, "{}").ending_after(0, FakeResponseEnd::Hang);
    let fixture = with_budget(1.0, [slow]).await;
    let body = r#"{"model":"claude-x","max_tokens":500}"#;
    let given_up = tokio::time::timeout(Duration::from_secs(60), fixture.post(MESSAGES, body)).await;
    assert!(given_up.is_err(), "the provider does not answer");
    let notices = fixture.account.wait_for(1).await;
    let GatewayNotice::Used(used) = &notices[0] else { panic!("{notices:?}") };
    assert_eq!((used.estimated, used.output_tokens), (true, 500));
}

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;
use crate::{
    config::{BudgetConfig, Config, ForeignModels, GatewayConfig, UsdLimit},
    store::{UsageTotals, contract::record},
};

fn server(budget: BudgetConfig) -> Arc<ServerSpending> {
    let gateway = Config::with_data_dir("/nonexistent").gateway;
    Arc::new(ServerSpending::new(budget, gateway, "/nonexistent".as_ref()))
}

/// Returns the budget of a running session that has spent `spent`.
fn budget_of(server: &Arc<ServerSpending>, budget_usd: Option<f64>, spent: f64) -> SessionBudget {
    let usage = UsageTotals { known_cost_usd: Some(spent), ..UsageTotals::default() };
    let record = SessionRecord { budget_usd, usage, state: AgentState::Running, ..record("") };
    let budget = SessionBudget::new(server.clone(), &record);
    budget.update(AgentState::Running, true, &record);
    budget
}

/// Returns the demand of a call that costs `usd`, and whose answer is worth nothing if shortened.
fn call_of(usd: f64) -> CallDemand {
    CallDemand { usd_per_output_token: usd / 10.0, wanted_tokens: 10, useful_tokens: 10, ..CallDemand::default() }
}

fn settled(grant: CallGrant, cost_usd: f64) -> CallSettlement {
    CallSettlement { grant, cost_usd, measured: None }
}

#[test]
fn model_calls_follow_the_state() {
    fn check(state: AgentState, has_work: bool, may_call: bool, has_cause: bool) {
        let budget = budget_of(&server(BudgetConfig::default()), None, 0.0);
        budget.update(state, has_work, &record(""));
        assert_eq!((budget.may_call().is_ok(), budget.has_cause().is_ok()), (may_call, has_cause), "{state:?}");
    }
    check(AgentState::Running, true, true, true);
    check(AgentState::AwaitingConfirmation, true, true, true);
    check(AgentState::Paused, true, true, true);
    check(AgentState::Paused, false, true, false);
    check(AgentState::Idle, false, true, false);
    check(AgentState::Starting, true, false, true);
    check(AgentState::Interrupting, true, false, true);
    check(AgentState::Stopped, false, false, false);
}

#[test]
fn no_cause_is_needed_if_the_configuration_says_so() {
    let gateway = GatewayConfig { only_while_working: false, ..Config::with_data_dir("/nonexistent").gateway };
    let server = Arc::new(ServerSpending::new(BudgetConfig::default(), gateway, "/nonexistent".as_ref()));
    let budget = budget_of(&server, None, 0.0);
    budget.update(AgentState::Idle, false, &record(""));
    assert!(budget.has_cause().is_ok());
}

#[tokio::test]
async fn spent_budget_denies_until_it_is_raised_or_removed() {
    let budget = budget_of(&server(BudgetConfig::default()), Some(1.0), 1.0);
    let denied = budget.reserve(call_of(0.5)).await.expect_err("the budget is spent");
    assert!(
        matches!(&denied, ModelCallDenied::BudgetSpent(why) if why.contains("budget of 1 USD is spent")),
        "{denied:?}"
    );
    assert!(budget.reserve(CallDemand::default()).await.is_ok(), "a free model may be called");
    for (usd, allowed) in [(Some(1.6), true), (Some(0.5), false), (None, true)] {
        budget.update(AgentState::Running, true, &SessionRecord { budget_usd: usd, ..record("") });
        let answer = budget.try_reserve(&call_of(0.5), rejection_for).is_ok_and(|grant| grant.is_some());
        assert_eq!((answer, budget.has_budget()), (allowed, usd.is_some()), "{usd:?}");
    }
}

#[tokio::test]
async fn call_waits_for_the_reservation_of_another() {
    let budget = Arc::new(budget_of(&server(BudgetConfig::default()), Some(1.0), 0.0));
    let first = budget.reserve(call_of(0.9)).await.expect("it fits");
    let waiting = tokio::spawn({
        let budget = budget.clone();
        async move { budget.reserve(call_of(0.9)).await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "the second call waits");
    budget.settle(settled(first, 0.05));
    waiting.await.expect("no panic").expect("most of the budget is free again");
}

#[tokio::test]
async fn waiting_call_ends_with_its_session() {
    let budget = Arc::new(budget_of(&server(BudgetConfig::default()), Some(1.0), 0.0));
    let _first = budget.reserve(call_of(0.9)).await.expect("it fits");
    let waiting = tokio::spawn({
        let budget = budget.clone();
        async move { budget.reserve(call_of(0.9)).await }
    });
    tokio::task::yield_now().await;
    budget.update(AgentState::Stopped, false, &record(""));
    assert!(matches!(waiting.await.expect("no panic"), Err(ModelCallDenied::Reason(_))));
}

#[tokio::test]
async fn parallel_calls_stay_within_the_budget() {
    let budget = Arc::new(budget_of(&server(BudgetConfig::default()), Some(1.0), 0.0));
    let granted = Arc::new(AtomicUsize::new(0));
    let calls = (0..64).map(|_| {
        let (budget, granted) = (budget.clone(), granted.clone());
        tokio::spawn(async move {
            if let Ok(grant) = budget.reserve(call_of(0.3)).await {
                granted.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
                budget.settle(settled(grant, 0.3));
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic");
    }
    assert_eq!(granted.load(SeqCst), 3, "three calls of 0.3 USD fit into 1 USD");
}

#[tokio::test]
async fn limits_of_the_server_hold_for_all_sessions() {
    for (config, name) in [
        (BudgetConfig { total: UsdLimit(Some(1.0)), ..BudgetConfig::default() }, "`budget.total`"),
        (BudgetConfig { per_day: UsdLimit(Some(1.0)), ..BudgetConfig::default() }, "`budget.per_day`"),
    ] {
        let server = server(config);
        let (one, other) = (budget_of(&server, None, 0.0), budget_of(&server, Some(5.0), 0.0));
        assert!(one.has_budget(), "an unpriced model must not pass");
        let grant = one.reserve(call_of(0.9)).await.expect("it fits");
        one.settle(settled(grant, 0.9));
        let denied = other.reserve(call_of(0.9)).await.expect_err("the server's limit is spent");
        assert!(matches!(&denied, ModelCallDenied::BudgetSpent(why) if why.contains(name)), "{denied:?}");
    }
}

#[test]
fn models_are_the_own_and_the_further_ones() {
    let gateway = GatewayConfig { small_model: "small".to_owned(), ..Config::with_data_dir("/nonexistent").gateway };
    let server = Arc::new(ServerSpending::new(BudgetConfig::default(), gateway, "/nonexistent".as_ref()));
    let record = SessionRecord { further_models: server.further_models("demo"), ..record("") };
    let expected = SessionModels {
        names: vec!["demo".to_owned(), "small".to_owned()],
        small: Some("small".to_owned()),
        foreign: ForeignModels::Map,
    };
    assert_eq!(SessionBudget::new(server.clone(), &record).models(), expected);
    // A record of an earlier version has no further models.
    let alone = SessionRecord { further_models: Vec::new(), ..record };
    assert_eq!(SessionBudget::new(server, &alone).models().small, None);
}

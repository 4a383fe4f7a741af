use proptest::prelude::*;

use super::*;
use crate::config::PriceConfig;

/// Returns a demand of which only the input's estimate and upper bound, and the answer, matter.
fn demand(estimated_usd: f64, largest_usd: f64, wanted_tokens: u64) -> CallDemand {
    CallDemand {
        estimated_input_usd: estimated_usd,
        largest_input_usd: largest_usd,
        usd_per_output_token: 0.01,
        wanted_tokens,
        useful_tokens: 2.min(wanted_tokens),
    }
}

#[test]
fn answer_is_lowered_to_what_is_left() {
    fn check(spent: f64, demand: CallDemand, expected: LedgerAnswer) {
        assert_eq!(SpendingLedger::new(Some(1.0), spent).answer(&demand), expected, "{spent} {demand:?}");
    }
    check(0.0, demand(0.5, 0.9, 10), LedgerAnswer::Grant(10));
    check(0.0, demand(0.5, 0.9, 1000), LedgerAnswer::Grant(50));
    check(0.49, demand(0.5, 0.9, 10), LedgerAnswer::Spent);
    check(1.0, demand(0.1, 0.1, 10), LedgerAnswer::Spent);
    check(1.0, CallDemand::default(), LedgerAnswer::Grant(0));
    check(1.0, CallDemand { wanted_tokens: 7, ..CallDemand::default() }, LedgerAnswer::Grant(7));
    let no_limit = SpendingLedger::new(None, 9.0);
    assert_eq!(no_limit.answer(&demand(5.0, 9.0, 1000)), LedgerAnswer::Grant(1000));
}

#[test]
fn call_beside_others_waits_unless_its_upper_bound_fits() {
    let mut ledger = SpendingLedger::new(Some(1.0), 0.0);
    ledger.reserve(0.4);
    assert_eq!(ledger.answer(&demand(0.1, 0.5, 10)), LedgerAnswer::Grant(10));
    assert_eq!(ledger.answer(&demand(0.1, 0.5, 11)), LedgerAnswer::Wait);
    ledger.settle(0.4, 0.2);
    assert_eq!(ledger.answer(&demand(0.1, 0.5, 11)), LedgerAnswer::Grant(11));
    assert_eq!(ledger.spent(), 0.2);
}

/// Call of the property test: its demand, its real input as a share of the largest, its real answer
/// as a share of the granted one.
type DrawnCall = (CallDemand, f64, f64);

fn any_call() -> impl Strategy<Value = DrawnCall> {
    (0.0..0.5, 0.0..0.5, 0u64..60, 0.0..=1.0, 0.0..=1.0)
        .prop_map(|(estimate, more, wanted, input, output)| (demand(estimate, estimate + more, wanted), input, output))
}

proptest! {
    /// Calls begin and end in any order, and some are dropped unbilled.
    #[test]
    fn limit_is_exceeded_by_at_most_the_error_of_one_estimate(
        steps in prop::collection::vec((any_call(), 0usize..8, any::<bool>()), 1..200),
    ) {
        const LIMIT: f64 = 2.0;
        let mut ledger = SpendingLedger::new(Some(LIMIT), 0.0);
        let (mut running, mut largest_error): (Vec<(f64, f64)>, f64) = (Vec::new(), 0.0);
        for ((demand, input, output), index, is_billed) in steps {
            if index < running.len() {
                let (reserved, cost) = running.swap_remove(index);
                ledger.settle(reserved, if is_billed { cost } else { 0.0 });
            } else if let LedgerAnswer::Grant(tokens) = ledger.answer(&demand) {
                prop_assert!(tokens <= demand.wanted_tokens && tokens >= demand.useful_tokens);
                let reserved = demand.reservation(tokens);
                let input_usd = input * demand.largest_input_usd;
                largest_error = largest_error.max(input_usd - demand.estimated_input_usd);
                ledger.reserve(reserved);
                running.push((reserved, input_usd + output * tokens as f64 * demand.usd_per_output_token));
            }
            prop_assert!(ledger.spent() <= LIMIT + largest_error + 1e-9, "{} of {LIMIT}", ledger.spent());
        }
        for (reserved, cost) in running {
            ledger.settle(reserved, cost);
        }
        prop_assert!(ledger.spent() <= LIMIT + largest_error + 1e-9);
        prop_assert_eq!(ledger.reserved_usd, 0.0);
    }
}

fn limits(route: GatewayRoute, body: &str) -> OutputLimits {
    OutputLimits::read(route, body.as_bytes()).expect("the body is valid")
}

#[test]
fn limit_of_the_body_is_injected_or_lowered() {
    fn check(route: GatewayRoute, body: &str, granted: u64, expected: Option<&str>) {
        let applied = limits(route, body).apply(body.as_bytes(), granted, Some("max_tokens"));
        assert_eq!(applied.as_deref(), expected.map(str::as_bytes), "{body}");
    }
    check(GatewayRoute::Messages, r#"{"model":"m","max_tokens":100}"#, 100, None);
    check(
        GatewayRoute::Messages,
        r#"{"max_tokens": 100 ,"model":"m"}"#,
        99,
        Some(r#"{"max_tokens": 99 ,"model":"m"}"#),
    );
    check(GatewayRoute::Messages, r#" {"model":"m"}"#, 99, Some(r#" {"max_tokens":99,"model":"m"}"#));
    check(GatewayRoute::Messages, r#"{"max_tokens":null}"#, 9, Some(r#"{"max_tokens":9}"#));
    check(GatewayRoute::Messages, r#"{"max_tokens":"1e9"}"#, 9, Some(r#"{"max_tokens":9}"#));
    check(GatewayRoute::Chat, r#"{"max_tokens":0}"#, 9, Some(r#"{"max_tokens":9}"#));
    check(
        GatewayRoute::Responses,
        r#"{"max_tokens":5,"max_output_tokens":50}"#,
        9,
        Some(r#"{"max_tokens":5,"max_output_tokens":9}"#),
    );
    check(GatewayRoute::Chat, r#"{"max_completion_tokens":50}"#, 9, Some(r#"{"max_completion_tokens":9}"#));
    // A provider may read only one of two fields.
    check(
        GatewayRoute::Chat,
        r#"{"max_tokens":5,"max_completion_tokens":900}"#,
        5,
        Some(r#"{"max_tokens":5,"max_completion_tokens":5}"#),
    );
    // The grant is for all answers together.
    check(GatewayRoute::Chat, r#"{"max_tokens":50,"n":4}"#, 40, Some(r#"{"max_tokens":10,"n":4}"#));
    check(GatewayRoute::Chat, r#"{"max_tokens":50,"n":4}"#, 200, None);
}

#[test]
fn limit_of_a_gemini_body_is_in_its_generation_config() {
    fn check(body: &str, granted: u64, expected: Option<&str>) {
        let applied = limits(GatewayRoute::GeminiStream, body).apply(body.as_bytes(), granted, Some("maxOutputTokens"));
        assert_eq!(applied.as_deref(), expected.map(str::as_bytes), "{body}");
    }
    check(r#"{"generationConfig":{"maxOutputTokens":100}}"#, 100, None);
    check(
        r#"{"generationConfig":{"topK":1,"maxOutputTokens": 100 }}"#,
        9,
        Some(r#"{"generationConfig":{"topK":1,"maxOutputTokens": 9 }}"#),
    );
    check(
        r#"{"generation_config":{"max_output_tokens":"1e9"}}"#,
        9,
        Some(r#"{"generation_config":{"max_output_tokens":9}}"#),
    );
    check(r#"{"generationConfig":{"topK":1}}"#, 9, Some(r#"{"generationConfig":{"maxOutputTokens":9,"topK":1}}"#));
    check(r#"{"generationConfig": { }}"#, 9, Some(r#"{"generationConfig": {"maxOutputTokens":9 }}"#));
    check(r#"{"generationConfig":null,"x":1}"#, 9, Some(r#"{"generationConfig":{"maxOutputTokens":9},"x":1}"#));
    check(r#"{"x":1}"#, 9, Some(r#"{"generationConfig":{"maxOutputTokens":9},"x":1}"#));
    check("{ }", 9, Some(r#"{"generationConfig":{"maxOutputTokens":9} }"#));
    check(
        r#"{"generationConfig":{"maxOutputTokens":50,"candidateCount":4}}"#,
        40,
        Some(r#"{"generationConfig":{"maxOutputTokens":10,"candidateCount":4}}"#),
    );
    let twice = br#"{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":999999}}"#;
    assert!(OutputLimits::read(GatewayRoute::GeminiGenerate, twice).is_err(), "a provider may read either");
}

#[test]
fn number_of_answers_must_be_a_positive_integer() {
    for body in [r#"{"n":4.0}"#, r#"{"n":"4"}"#, r#"{"n":0}"#, r#"{"n":-1}"#] {
        let error = OutputLimits::read(GatewayRoute::Chat, body.as_bytes()).expect_err(body);
        assert!(error.contains("must be a positive integer"), "{error}");
    }
    assert_eq!(limits(GatewayRoute::Chat, r#"{"n":null}"#).answers, 1);
}

#[test]
fn repeated_limit_is_rejected() {
    let error = OutputLimits::read(GatewayRoute::Messages, br#"{"max_tokens":1,"max_tokens":999999}"#);
    assert!(error.expect_err("a field is repeated").contains("duplicate field `max_tokens`"));
}

fn price() -> ModelPrice {
    ModelPrice::of_row(&PriceConfig {
        input: 1.0,
        output: 10.0,
        context_limit: Some(200_000),
        output_limit: Some(64_000),
        ..PriceConfig::default()
    })
}

#[test]
fn demand_is_the_worst_case() {
    fn check(route: GatewayRoute, body: &str, (input, wanted, useful): (f64, u64, u64)) {
        let bound = InputBound { estimated: 1_000, largest: 2_000 };
        let demand = limits(route, body).demand(route, &price(), bound);
        let got = (demand.estimated_input_usd * 1e6, demand.wanted_tokens, demand.useful_tokens);
        assert!((got.0 - input).abs() < 1e-6 && (got.1, got.2) == (wanted, useful), "{body}: {got:?}");
        assert!((demand.largest_input_usd - 3.0 * demand.estimated_input_usd).abs() < 1e-9, "{demand:?}");
    }
    // Everything may be written to a cache.
    check(GatewayRoute::Messages, r#"{"max_tokens":100}"#, (1_250.0, 100, 100));
    check(GatewayRoute::Messages, r#"{"max_tokens":1000,"x":{"ttl":"1h"}}"#, (2_000.0, 1_000, 256));
    // The limit must be above the thinking budget.
    check(
        GatewayRoute::Messages,
        r#"{"max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":4000}}"#,
        (1_250.0, 9_000, 4_256),
    );
    // No answer is longer than the model can write.
    check(GatewayRoute::Chat, r#"{"max_tokens":999999999}"#, (1_000.0, 64_000, 256));
    check(GatewayRoute::Chat, r#"{}"#, (1_000.0, DEFAULT_OUTPUT_TOKENS, 256));
    check(GatewayRoute::Chat, r#"{"max_tokens":100,"n":8}"#, (1_000.0, 800, 800));
    check(GatewayRoute::Responses, r#"{"max_output_tokens":500,"n":8}"#, (1_000.0, 500, 256));
    check(GatewayRoute::GeminiStream, r#"{"maxOutputTokens":5}"#, (1_000.0, DEFAULT_OUTPUT_TOKENS, 256));
    let thinking = r#"{"generationConfig":{"maxOutputTokens":9000,"thinkingConfig":{"thinkingBudget":4000}}}"#;
    check(GatewayRoute::GeminiGenerate, thinking, (1_000.0, 9_000, 4_256));
    let dynamic = r#"{"generationConfig":{"maxOutputTokens":9000,"thinkingConfig":{"thinkingBudget":-1}}}"#;
    check(GatewayRoute::GeminiGenerate, dynamic, (1_000.0, 9_000, 256));
    // No field limits a compaction.
    for body in ["{}", r#"{"max_output_tokens":1}"#] {
        check(GatewayRoute::CompactResponses, body, (1_000.0, DEFAULT_OUTPUT_TOKENS, DEFAULT_OUTPUT_TOKENS));
    }
    check(GatewayRoute::Embeddings, r#"{"max_tokens":9}"#, (1_000.0, 0, 0));
}

#[test]
fn injected_limit_fits_into_the_context() {
    for (estimated, wanted) in [(100_000, DEFAULT_OUTPUT_TOKENS), (190_000, 10_000), (900_000, DEFAULT_OUTPUT_TOKENS)] {
        let bound = InputBound { estimated, largest: estimated };
        let demand = limits(GatewayRoute::Chat, "{}").demand(GatewayRoute::Chat, &price(), bound);
        assert_eq!(demand.wanted_tokens, wanted, "{estimated}");
    }
}

#[test]
fn no_input_is_larger_than_the_context() {
    let bound = InputBound { estimated: 900_000, largest: 9_000_000 };
    let demand = limits(GatewayRoute::Chat, "{}").demand(GatewayRoute::Chat, &price(), bound);
    assert_eq!(demand.estimated_input_usd, demand.largest_input_usd);
    assert!((demand.largest_input_usd - 0.2).abs() < 1e-9, "{demand:?}");
}

#[test]
fn input_is_estimated_by_the_measured_ratio_plus_ten_percent() {
    let mut ratio = InputRatio::default();
    assert_eq!(ratio.estimate(1001), 501, "two bytes are a token at first");
    ratio.add(4_000, 1_000);
    assert_eq!(ratio.estimate(1_000), 275);
    ratio.add(4_000, 3_000);
    assert_eq!(ratio.estimate(1_000), 550);
}

//! Adds what a call of a model took to what its session has taken. Pure.

use greenroom_protocol::observation::ModelUsage;

use crate::{gateway::MeteredUsage, store::UsageTotals};

/// Counts a call, and says how it is told. A total never becomes less, whatever a provider says that a call took; and what is
/// known to be spent is not forgotten over a call whose price is not.
pub(super) fn add_call(totals: &mut UsageTotals, call: MeteredUsage) -> ModelUsage {
    let input = call.input_tokens.saturating_add(call.cache_read_tokens).saturating_add(call.cache_write_tokens);
    let known = totals.known_cost() + call.cost_usd.unwrap_or_default();
    let is_all_known = totals.cost_usd.and(call.cost_usd).is_some();
    *totals = UsageTotals {
        input_tokens: totals.input_tokens.saturating_add(input),
        output_tokens: totals.output_tokens.saturating_add(call.output_tokens),
        cost_usd: is_all_known.then_some(known),
        known_cost_usd: (!is_all_known).then_some(known),
    };
    ModelUsage {
        model: call.model,
        input_tokens: call.input_tokens,
        output_tokens: call.output_tokens,
        cache_read_tokens: call.cache_read_tokens,
        cache_write_tokens: call.cache_write_tokens,
        cost_usd: call.cost_usd,
        total_input_tokens: totals.input_tokens,
        total_output_tokens: totals.output_tokens,
        total_cost_usd: totals.cost_usd,
        context_used: input.saturating_add(call.output_tokens),
        context_limit: call.context_limit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(totals: &mut UsageTotals, cost: Option<f64>, told: Option<f64>, known: f64) {
        let usage = add_call(totals, MeteredUsage { cost_usd: cost, ..MeteredUsage::default() });
        assert_eq!((usage.cost_usd, usage.total_cost_usd, totals.cost_usd), (cost, told, told));
        assert_eq!(totals.known_cost(), known);
    }

    #[test]
    fn what_is_known_to_be_spent_is_not_forgotten() {
        let mut totals = UsageTotals { cost_usd: Some(0.0), ..UsageTotals::default() };
        check(&mut totals, Some(0.5), Some(0.5), 0.5);
        assert_eq!(totals.known_cost_usd, None, "it is said once");
        check(&mut totals, None, None, 0.5);
        check(&mut totals, Some(0.25), None, 0.75);
        check(&mut totals, None, None, 0.75);
    }

    #[test]
    fn a_record_of_an_earlier_version_counts_from_now_on() {
        let mut totals = serde_json::from_str(r#"{"input_tokens":1,"output_tokens":2,"cost_usd":null}"#).expect("read");
        check(&mut totals, Some(0.25), None, 0.25);
        totals = serde_json::from_str(r#"{"input_tokens":1,"output_tokens":2,"cost_usd":0.5}"#).expect("read");
        check(&mut totals, Some(0.25), Some(0.75), 0.75);
    }

    #[test]
    fn absurd_counts_make_no_total_smaller() {
        let mut totals = UsageTotals::default();
        let absurd = || MeteredUsage {
            input_tokens: u64::MAX,
            output_tokens: u64::MAX,
            cache_read_tokens: 1,
            ..MeteredUsage::default()
        };
        for _ in 0..2 {
            let usage = add_call(&mut totals, absurd());
            let all = [usage.total_input_tokens, usage.total_output_tokens, usage.context_used, totals.input_tokens];
            assert_eq!(all, [u64::MAX; 4]);
        }
    }
}

//! Adds the usage of a model call to the totals of its session. Pure.

use greenroom_protocol::observation::ModelUsage;

use crate::{gateway::MeteredUsage, store::UsageTotals};

/// Adds a call to the totals and returns the usage that is reported.
///
/// Totals never decrease, whatever counts a provider reports. A call of unknown price keeps the
/// known cost.
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

    fn check(totals: &mut UsageTotals, cost: Option<f64>, total: Option<f64>, known: f64) {
        let usage = add_call(totals, MeteredUsage { cost_usd: cost, ..MeteredUsage::default() });
        assert_eq!((usage.cost_usd, usage.total_cost_usd, totals.cost_usd), (cost, total, total));
        assert_eq!(totals.known_cost(), known);
    }

    #[test]
    fn known_cost_is_kept_after_call_of_unknown_price() {
        let mut totals = UsageTotals { cost_usd: Some(0.0), ..UsageTotals::default() };
        check(&mut totals, Some(0.5), Some(0.5), 0.5);
        assert_eq!(totals.known_cost_usd, None, "a fully known cost is stored once");
        check(&mut totals, None, None, 0.5);
        check(&mut totals, Some(0.25), None, 0.75);
        check(&mut totals, None, None, 0.75);
    }

    #[test]
    fn record_of_earlier_version_counts_from_now_on() {
        let mut totals = serde_json::from_str(r#"{"input_tokens":1,"output_tokens":2,"cost_usd":null}"#)
            .expect("totals are readable");
        check(&mut totals, Some(0.25), None, 0.25);
        totals = serde_json::from_str(r#"{"input_tokens":1,"output_tokens":2,"cost_usd":0.5}"#)
            .expect("totals are readable");
        check(&mut totals, Some(0.25), Some(0.75), 0.75);
    }

    #[test]
    fn absurd_counts_do_not_reduce_totals() {
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

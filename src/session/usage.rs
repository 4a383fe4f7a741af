//! Adds the usage of a model call to the totals of its session. Pure.

use greenroom_protocol::{Observation, ObservationKind, observation::ModelUsage};

use crate::{
    gateway::MeteredUsage,
    store::{DaySpending, SessionRecord, UsageTotals},
};

/// Share of a budget from which the session reports that the budget is nearly spent.
const BUDGET_NOTICE_SHARE: f64 = 0.8;

/// Adds a call to the totals and returns the usage that is reported.
///
/// Totals never decrease, whatever counts a provider reports. A call of unknown price keeps the
/// known cost.
pub(super) fn add_call(totals: &mut UsageTotals, call: MeteredUsage) -> ModelUsage {
    let input = call.context_input_tokens();
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
        cache_write_tokens: call.cache_write_tokens.saturating_add(call.cache_write_1h_tokens),
        cost_usd: call.cost_usd,
        total_input_tokens: totals.input_tokens,
        total_output_tokens: totals.output_tokens,
        total_cost_usd: totals.cost_usd,
        context_used: input.saturating_add(call.output_tokens),
        context_limit: call.context_limit,
        estimated: call.estimated,
    }
}

/// Adds a cost to the cost of `today`. The cost of an earlier day is dropped.
pub(super) fn add_day_cost(spent_on: &mut Option<DaySpending>, today: String, usd: f64) {
    match spent_on {
        Some(spent) if spent.day == today => spent.usd += usd,
        other => *other = Some(DaySpending { day: today, usd }),
    }
}

/// Returns the notice that a budget is nearly spent. `None`: it is not, or the session has reported
/// this budget before.
pub(super) fn budget_notice(record: &mut SessionRecord) -> Option<Observation> {
    let (budget, spent) = (record.budget_usd?, record.usage.known_cost());
    if spent < BUDGET_NOTICE_SHARE * budget || record.reported_budget_usd == Some(budget) {
        return None;
    }
    record.reported_budget_usd = Some(budget);
    let detail = format!("{:.0} % of the budget of {budget} USD is spent", 100.0 * spent / budget);
    let kind = ObservationKind::Notice {
        code: "budget_low".to_owned(),
        detail: detail.clone(),
        attempts: None,
        waited_ms: None,
    };
    Some(Observation { kind, content: detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::record;

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
    fn budget_is_reported_once_at_eighty_percent() {
        let mut record = SessionRecord { budget_usd: Some(2.0), ..record("") };
        let mut notice = |spent: f64, budget: Option<f64>| {
            record.usage.cost_usd = Some(spent);
            record.budget_usd = budget;
            budget_notice(&mut record).map(|notice| notice.content)
        };
        assert_eq!(notice(1.59, Some(2.0)), None);
        assert_eq!(notice(1.6, Some(2.0)).as_deref(), Some("80 % of the budget of 2 USD is spent"));
        assert_eq!(notice(1.9, Some(2.0)), None, "reported before");
        assert_eq!(notice(1.9, Some(4.0)), None);
        assert_eq!(notice(3.6, Some(4.0)).as_deref(), Some("90 % of the budget of 4 USD is spent"));
        assert_eq!(notice(9.0, None), None);
    }

    #[test]
    fn day_cost_begins_anew_on_another_day() {
        let mut spent_on = None;
        for (day, usd, expected) in [("2026-01-31", 1.0, 1.0), ("2026-01-31", 0.5, 1.5), ("2026-02-01", 0.25, 0.25)] {
            add_day_cost(&mut spent_on, day.to_owned(), usd);
            assert_eq!(spent_on, Some(DaySpending { day: day.to_owned(), usd: expected }));
        }
    }

    #[test]
    fn one_hour_cache_writes_and_estimates_are_reported() {
        let call = MeteredUsage {
            input_tokens: 1,
            cache_write_tokens: 2,
            cache_write_1h_tokens: 4,
            estimated: true,
            ..MeteredUsage::default()
        };
        let usage = add_call(&mut UsageTotals::default(), call);
        assert_eq!((usage.cache_write_tokens, usage.context_used, usage.estimated), (6, 7, true));
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

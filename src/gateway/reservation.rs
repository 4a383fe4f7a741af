//! Reservation of a call's worst case, and its settlement with the usage. Pure, except for
//! [`CallReservation`], which settles a reservation exactly once.
//!
//! A call reserves what it costs at most, before its provider receives it. When it ends, the
//! reservation becomes the cost. A call that is alone may count its input by an estimate. A call
//! beside others counts an upper bound, or waits for them. So a limit is exceeded by at most the
//! error of one estimate, however many calls run.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    MeteredUsage, SessionAccount,
    catalog::ModelPrice,
    request_rewrite::{as_it_stands, range_of},
    route::GatewayRoute,
};

/// Smallest answer that is worth a call, in tokens.
const USEFUL_TOKENS: u64 = 256;

/// Largest answer of a client that names no limit, in tokens.
const DEFAULT_OUTPUT_TOKENS: u64 = 32_000;

/// The same for a model whose price row has no `output_limit`. A provider rejects a limit above its
/// model's own.
const CAUTIOUS_OUTPUT_TOKENS: u64 = 8_192;

/// Tokens that a provider adds to a request: instructions for tools, for one.
const PROVIDER_TOKENS: u64 = 1_000;

/// Worst case of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallDemand {
    /// Cost of the estimated input, in USD.
    pub estimated_input_usd: f64,
    /// Cost of the largest input that the request can be, in USD.
    pub largest_input_usd: f64,
    pub usd_per_output_token: f64,
    /// Largest answer that the client asks for, in tokens.
    pub wanted_tokens: u64,
    /// Smallest answer that is worth the call, in tokens.
    pub useful_tokens: u64,
}

/// Reservation as granted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CallGrant {
    /// Largest answer that the call may have, in tokens.
    pub output_tokens: u64,
    /// Reserved amount in USD.
    pub reserved_usd: f64,
}

/// Answer of a limit to a demand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LedgerAnswer {
    /// The call may have an answer of this many tokens.
    Grant(u64),
    /// Other calls hold the rest of the limit until they end.
    Wait,
    /// Too little is left for a useful answer.
    Spent,
}

/// Spending under one limit: settled amounts, and the reservations of running calls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpendingLedger {
    limit_usd: Option<f64>,
    spent_usd: f64,
    reserved_usd: f64,
    running_calls: usize,
}

impl SpendingLedger {
    pub fn new(limit_usd: Option<f64>, spent_usd: f64) -> SpendingLedger {
        SpendingLedger { limit_usd, spent_usd, ..SpendingLedger::default() }
    }

    pub fn limit(&self) -> Option<f64> {
        self.limit_usd
    }

    pub fn set_limit(&mut self, limit_usd: Option<f64>) {
        self.limit_usd = limit_usd;
    }

    pub fn spent(&self) -> f64 {
        self.spent_usd
    }

    /// Forgets what was spent, and keeps the reservations.
    pub fn begin_period(&mut self) {
        self.spent_usd = 0.0;
    }

    /// Returns the answer to a demand. Reserves nothing.
    pub fn answer(&self, demand: &CallDemand) -> LedgerAnswer {
        let Some(limit) = self.limit_usd else { return LedgerAnswer::Grant(demand.wanted_tokens) };
        if demand.is_free() {
            return LedgerAnswer::Grant(demand.wanted_tokens);
        }
        let alone = self.running_calls == 0;
        if !alone {
            let left = limit - self.spent_usd - self.reserved_usd;
            let fits = demand.reservation(demand.wanted_tokens) <= left;
            return if fits { LedgerAnswer::Grant(demand.wanted_tokens) } else { LedgerAnswer::Wait };
        }
        let left = limit - self.spent_usd - demand.estimated_input_usd;
        let tokens =
            if demand.usd_per_output_token > 0.0 { (left / demand.usd_per_output_token) as u64 } else { u64::MAX };
        match tokens.min(demand.wanted_tokens) {
            tokens if left > 0.0 && tokens >= demand.useful_tokens => LedgerAnswer::Grant(tokens),
            _ => LedgerAnswer::Spent,
        }
    }

    /// Reserves `usd` for a call that begins. A free call is not counted.
    pub fn reserve(&mut self, usd: f64) {
        self.reserved_usd += usd;
        self.running_calls += usize::from(usd > 0.0);
    }

    /// Replaces a reservation of `usd` by the cost of the call.
    pub fn settle(&mut self, usd: f64, cost_usd: f64) {
        self.running_calls = self.running_calls.saturating_sub(usize::from(usd > 0.0));
        // Exactly zero without calls, so rounding errors do not accumulate.
        self.reserved_usd = if self.running_calls == 0 { 0.0 } else { (self.reserved_usd - usd).max(0.0) };
        self.spent_usd += cost_usd;
    }
}

impl CallDemand {
    /// Returns the amount to reserve for an answer of `output_tokens`. The input counts as its
    /// upper bound, so calls beside this one cannot add to the error of an estimate.
    pub fn reservation(&self, output_tokens: u64) -> f64 {
        self.largest_input_usd + output_tokens as f64 * self.usd_per_output_token
    }

    fn is_free(&self) -> bool {
        self.reservation(self.wanted_tokens) <= 0.0
    }
}

/// Limits of the answer in a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OutputLimits {
    /// Values of the limit's fields, in the order of the body.
    fields: Vec<Range<usize>>,
    /// Smallest limit that the client names, in tokens.
    named: Option<u64>,
    /// Answers that the client asks for in one call.
    answers: u64,
    /// Tokens that the model may think. The limit must be above.
    thinking_tokens: u64,
    /// True if a part of the input is written to a cache of one hour, as far as can be seen.
    has_long_cache: bool,
    /// Value of Gemini's `generationConfig`, which holds the limit.
    generation_config: Option<Range<usize>>,
    is_gemini: bool,
}

#[derive(Deserialize)]
struct LimitFields<'a> {
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    n: Option<&'a RawValue>,
    #[serde(borrow, default)]
    thinking: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "generationConfig",
        alias = "generation_config",
        deserialize_with = "as_it_stands"
    )]
    generation_config: Option<&'a RawValue>,
}

/// Gemini's settings of an answer. Each name has two spellings.
#[derive(Default, Deserialize)]
struct GenerationSettings<'a> {
    #[serde(
        borrow,
        default,
        rename = "maxOutputTokens",
        alias = "max_output_tokens",
        deserialize_with = "as_it_stands"
    )]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "candidateCount", alias = "candidate_count")]
    candidate_count: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "thinkingConfig", alias = "thinking_config")]
    thinking: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ThinkingField {
    #[serde(alias = "thinkingBudget", alias = "thinking_budget")]
    budget_tokens: u64,
}

impl Default for OutputLimits {
    /// Limits of a body that names none.
    fn default() -> OutputLimits {
        OutputLimits {
            fields: Vec::new(),
            named: None,
            answers: 1,
            thinking_tokens: 0,
            has_long_cache: false,
            generation_config: None,
            is_gemini: false,
        }
    }
}

impl OutputLimits {
    /// Reads the limits of a body.
    ///
    /// # Errors
    /// Describes the invalid field, for the author of the client.
    pub(super) fn read(route: GatewayRoute, body: &[u8]) -> Result<OutputLimits, String> {
        let read: LimitFields = serde_json::from_slice(body).map_err(|e| format!("the body is invalid: {e}"))?;
        let number = |value: &RawValue| value.get().parse::<u64>().ok();
        let is_gemini = matches!(route, GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream);
        let config = read.generation_config.filter(|_| is_gemini);
        let settings = match config.filter(|config| config.get().starts_with('{')) {
            Some(config) => {
                serde_json::from_str(config.get()).map_err(|e| format!("`generationConfig` is invalid: {e}"))?
            }
            None => GenerationSettings::default(),
        };
        let (limits, answers, thinking) = match route {
            GatewayRoute::Messages => (vec![read.max_tokens], None, read.thinking),
            GatewayRoute::Chat => (vec![read.max_tokens, read.max_completion_tokens], read.n, None),
            GatewayRoute::Responses | GatewayRoute::CompactResponses => (vec![read.max_output_tokens], None, None),
            GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream => {
                (vec![settings.max_output_tokens], settings.candidate_count, settings.thinking)
            }
            GatewayRoute::Embeddings
            | GatewayRoute::CountTokens
            | GatewayRoute::GeminiCountTokens
            | GatewayRoute::AnthropicModels
            | GatewayRoute::OpenaiModels
            | GatewayRoute::GeminiModels => (Vec::new(), None, None),
        };
        let values: Vec<&RawValue> = limits.into_iter().flatten().collect();
        let mut fields: Vec<_> = values.iter().map(|value| range_of(body, value)).collect();
        fields.sort_by_key(|range| range.start);
        let thinking = thinking.and_then(|value| serde_json::from_str::<ThinkingField>(value.get()).ok());
        let answers = match answers.map(RawValue::get) {
            None | Some("null") => 1,
            Some(text) => text.parse().ok().filter(|answers| *answers > 0).ok_or_else(|| {
                format!("the number of answers (`n`, `candidateCount`) must be a positive integer, not `{text}`")
            })?,
        };
        Ok(OutputLimits {
            fields,
            // A value that is no number counts as absent, and is replaced. So does 0: some servers
            // read it as no limit.
            named: values.iter().filter_map(|value| number(value)).filter(|limit| *limit > 0).min(),
            answers,
            thinking_tokens: thinking.map_or(0, |thinking| thinking.budget_tokens),
            has_long_cache: body.windows(5).any(|text| text == br#""ttl""#),
            generation_config: config.map(|config| range_of(body, config)),
            is_gemini,
        })
    }

    /// Returns the worst case of a call with these limits.
    pub(super) fn demand(&self, route: GatewayRoute, price: &ModelPrice, input: InputBound) -> CallDemand {
        let InputBound { estimated, largest } = input;
        let price = &price.at(largest);
        let within_context = |tokens: u64| tokens.min(price.context_limit.unwrap_or(u64::MAX)) as f64;
        let input_usd = price.dearest_input(route, self.has_long_cache) / 1e6;
        let allowed = price.output_limit.unwrap_or(u64::MAX);
        let absent = price.output_limit.map_or(CAUTIOUS_OUTPUT_TOKENS, |limit| limit.min(DEFAULT_OUTPUT_TOKENS));
        // Some servers reject a limit that does not fit into the context beside the input.
        let room = price.context_limit.and_then(|limit| limit.checked_sub(estimated)).filter(|room| *room > 0);
        // A compaction cannot be limited, so it needs its worst case.
        let is_fixed = route == GatewayRoute::CompactResponses;
        let wanted = match self.named {
            _ if route == GatewayRoute::Embeddings => 0,
            Some(named) if !is_fixed => named.min(allowed),
            _ => absent.min(allowed).min(room.unwrap_or(absent)),
        };
        let useful = if is_fixed { wanted } else { self.thinking_tokens.saturating_add(USEFUL_TOKENS).min(wanted) };
        CallDemand {
            estimated_input_usd: within_context(estimated) * input_usd,
            largest_input_usd: within_context(largest.max(estimated).saturating_add(PROVIDER_TOKENS)) * input_usd,
            usd_per_output_token: price.output / 1e6,
            wanted_tokens: wanted.saturating_mul(self.answers),
            useful_tokens: useful.saturating_mul(self.answers),
        }
    }

    /// Limits the answer of `body` to the granted tokens. Returns the new body; `None` if the body
    /// may pass as it is.
    ///
    /// `absent_field` is the field that the provider understands, for a body without any. `None`:
    /// the provider understands none.
    pub(super) fn apply(&self, body: &[u8], granted: u64, absent_field: Option<&str>) -> Option<Bytes> {
        let each = granted / self.answers;
        if self.named.is_some_and(|named| named <= each) {
            // The smallest of two fields holds for a provider that reads both. One that reads only
            // the other must not exceed the grant either.
            return (self.fields.len() > 1).then(|| self.replaced(body, self.named.unwrap_or(each)));
        }
        if !self.fields.is_empty() {
            return Some(self.replaced(body, each));
        }
        let limit = format!(r#""{}":{each}"#, absent_field?);
        let brace = |object: &[u8]| object.iter().position(|byte| *byte == b'{').map(|brace| brace + 1);
        let (at, field) = match &self.generation_config {
            None if self.is_gemini => (brace(body)?..brace(body)?, format!(r#""generationConfig":{{{limit}}}"#)),
            None => (brace(body)?..brace(body)?, limit),
            Some(config) if body[config.start] == b'{' => (config.start + 1..config.start + 1, limit),
            Some(config) => return Some(spliced(body, config.clone(), &format!("{{{limit}}}"))),
        };
        let is_only = body[at.end..].trim_ascii_start().starts_with(b"}");
        Some(spliced(body, at, &if is_only { field } else { format!("{field},") }))
    }

    /// Returns `body` with `tokens` in each of the limit's fields.
    fn replaced(&self, body: &[u8], tokens: u64) -> Bytes {
        let tokens = tokens.to_string();
        let mut replaced = Vec::with_capacity(body.len() + 2 * tokens.len());
        let mut copied = 0;
        for field in &self.fields {
            replaced.extend_from_slice(&body[copied..field.start]);
            replaced.extend_from_slice(tokens.as_bytes());
            copied = field.end;
        }
        replaced.extend_from_slice(&body[copied..]);
        replaced.into()
    }
}

/// Returns `body` with `text` in place of the range `at`.
fn spliced(body: &[u8], at: Range<usize>, text: &str) -> Bytes {
    [&body[..at.start], text.as_bytes(), &body[at.end..]].concat().into()
}

/// Input of a request before its provider counts it, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InputBound {
    pub(super) estimated: u64,
    pub(super) largest: u64,
}

/// Input tokens of earlier calls of a session, beside the bytes of their bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InputRatio {
    bytes: u64,
    tokens: u64,
}

impl InputRatio {
    /// Adds a call whose provider reported its input.
    pub fn add(&mut self, bytes: u64, tokens: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.tokens = self.tokens.saturating_add(tokens);
    }

    /// Estimates the tokens of a body: by the measured ratio plus 10 %. Before the first
    /// measurement, two bytes count as one token.
    pub fn estimate(&self, bytes: u64) -> u64 {
        match self.bytes {
            0 => bytes.div_ceil(2),
            measured => (bytes as f64 * self.tokens as f64 / measured as f64 * 1.1).ceil() as u64,
        }
    }
}

/// End of a reserved call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CallSettlement {
    pub grant: CallGrant,
    /// Cost in USD. 0 if unknown.
    pub cost_usd: f64,
    /// Bytes of the body and input tokens, if the provider reported its usage.
    pub measured: Option<(u64, u64)>,
}

/// Reservation of a running call. Settled exactly once: with the usage, or with nothing when
/// dropped.
pub(super) struct CallReservation {
    account: Option<Arc<dyn SessionAccount>>,
    grant: CallGrant,
    /// Bytes of the body, if its tokens can be estimated by its size.
    body_bytes: Option<u64>,
}

impl CallReservation {
    pub(super) fn new(account: Arc<dyn SessionAccount>, grant: CallGrant, body_bytes: Option<u64>) -> CallReservation {
        CallReservation { account: Some(account), grant, body_bytes }
    }

    /// Returns the reservation of a call that costs nothing.
    pub(super) fn none() -> CallReservation {
        CallReservation { account: None, grant: CallGrant::default(), body_bytes: None }
    }

    /// Returns the largest answer that the call may have, in tokens.
    pub(super) fn granted_tokens(&self) -> u64 {
        self.grant.output_tokens
    }

    /// Settles the reservation with the call's usage.
    pub(super) fn settle(&mut self, usage: &MeteredUsage) {
        let measured = self.body_bytes.filter(|_| !usage.estimated).map(|bytes| (bytes, usage.context_input_tokens()));
        self.settle_once(usage.cost_usd.unwrap_or_default(), measured);
    }

    fn settle_once(&mut self, cost_usd: f64, measured: Option<(u64, u64)>) {
        if let Some(account) = self.account.take() {
            account.settle(CallSettlement { grant: self.grant, cost_usd, measured });
        }
    }
}

impl Drop for CallReservation {
    fn drop(&mut self) {
        self.settle_once(0.0, None);
    }
}

#[cfg(test)]
mod tests;

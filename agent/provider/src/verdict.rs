//! Verdict on the end of an answer, and the one table of its consequences.

/// End of an answer. Exactly one for each answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerVerdict {
    /// The model finished: it ended its turn, or made tool calls.
    Complete,
    /// The connection ended before the answer did.
    Cut,
    /// The answer reached its limit of output tokens.
    Limit,
    /// The model refused to answer.
    Refused,
    /// A content filter of the provider stopped the answer.
    Filtered,
    /// The provider paused a long turn, and continues it when asked again.
    Paused,
    /// The provider ended the answer properly, and the answer holds neither text nor a tool call.
    Empty,
    /// The conversation is too long for the model.
    TooLong,
    /// The provider reported an error. [`crate::AnswerReader::error`] holds the error.
    Failed,
}

/// Consequences of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerdictRule {
    /// Words for the user. Empty for a complete answer.
    pub words: &'static str,
    pub next: NextStep,
    pub charge: ChargeRule,
}

/// Next step of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The answer stands.
    Accept,
    /// The same request may succeed, if nothing irrevocable was sent on.
    Retry,
    /// A further request continues the answer. Bounded by the caller.
    Continue,
    /// A shorter conversation may succeed.
    Shorten,
    /// The turn ends, with the words.
    Stop,
}

/// Charge for an answer whose usage was not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeRule {
    /// The provider worked: input and output are estimated.
    Estimate,
    /// The provider did not begin. If it streamed before the error, it did: estimated as above.
    Nothing,
}

impl AnswerVerdict {
    /// Returns the consequences of this verdict.
    ///
    /// The class of an error decides about its next step: [`crate::AnswerReader::next_step`].
    pub fn rule(self) -> VerdictRule {
        use ChargeRule::{Estimate, Nothing};
        use NextStep::{Accept, Continue, Retry, Shorten, Stop};
        let (words, next, charge) = match self {
            AnswerVerdict::Complete => ("", Accept, Estimate),
            AnswerVerdict::Cut => ("the model's answer was cut", Retry, Estimate),
            AnswerVerdict::Limit => ("the model's answer reached its limit of output tokens", Continue, Estimate),
            AnswerVerdict::Refused => ("the model refused to answer", Stop, Estimate),
            AnswerVerdict::Filtered => ("a content filter of the provider stopped the answer", Stop, Estimate),
            AnswerVerdict::Paused => ("the provider paused the answer", Continue, Estimate),
            AnswerVerdict::Empty => ("the model's answer is empty", Retry, Estimate),
            AnswerVerdict::TooLong => ("the conversation is too long for the model", Shorten, Nothing),
            AnswerVerdict::Failed => ("the provider reported an error", Stop, Nothing),
        };
        VerdictRule { words, next, charge }
    }
}

/// End of an answer by the provider's own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndMark {
    Complete,
    Limit,
    /// The conversation with the answer fills the model's context.
    ContextFull,
    Refused,
    Filtered,
    Paused,
    /// The provider aborted the answer.
    Aborted,
    /// The provider failed, and may give its reason in another field.
    Failed,
}

impl EndMark {
    /// Reads a stop reason or finish reason of any format. Unknown reasons end the answer too.
    /// `None` if the text stands for no reason.
    pub(crate) fn of_reason(reason: &str) -> Option<EndMark> {
        Some(match reason.to_ascii_lowercase().as_str() {
            "" | "null" | "none" | "finish_reason_unspecified" => return None,
            "length" | "max_tokens" | "max_output_tokens" | "max_completion_tokens" | "token_limit" => EndMark::Limit,
            "model_context_window_exceeded" | "model_length" | "context_length_exceeded" => EndMark::ContextFull,
            "refusal" => EndMark::Refused,
            "content_filter"
            | "content_filtered"
            | "guardrail_intervened"
            | "sensitive"
            | "safety"
            | "recitation"
            | "language"
            | "blocklist"
            | "prohibited_content"
            | "spii"
            | "image_safety"
            | "image_recitation"
            | "image_prohibited_content" => EndMark::Filtered,
            "pause_turn" => EndMark::Paused,
            "abort" | "aborted" | "cancelled" | "canceled" => EndMark::Aborted,
            "error"
            | "failed"
            | "network_error"
            | "insufficient_system_resource"
            | "malformed_function_call"
            | "malformed_response"
            | "unexpected_tool_call"
            | "too_many_tool_calls" => EndMark::Failed,
            _ => EndMark::Complete,
        })
    }
}

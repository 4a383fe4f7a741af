//! Recovery from an answer that does not stand: one rule for each way to end. Pure.
//!
//! A rule does not depend on the place of an error within the answer. An error status is final,
//! because the gateway has retried such a call before.

use std::time::Duration;

use greenroom_provider::{
    AnswerVerdict, ProviderError,
    error::ErrorClass,
    verdict::{NextStep, VerdictRule},
};

use super::model::RequestFailure;

/// Retries after a cut or empty answer.
const RETRIES: u32 = 2;
/// Retries after a temporary error of the provider, such as a rate limit.
const TEMPORARY_RETRIES: u32 = 5;
/// Gateway's type for an error that an interrupt caused.
const INTERRUPTED: &str = "interrupted";
/// Gateway's type for a spent budget.
const BILLING_ERROR: &str = "billing_error";

/// Reason why a model step has no answer that stands.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepFailure {
    #[error("the user interrupted the turn")]
    Stopped,
    /// The request got no answer.
    #[error(transparent)]
    Request(#[from] RequestFailure),
    /// The answer ended, but not as an answer.
    #[error("the model's answer ended as {verdict:?}: {error:?} {reason:?}")]
    Ended { verdict: AnswerVerdict, error: Option<ProviderError>, reason: Option<String> },
}

/// Next step of the turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Ends the turn as stopped.
    Stop,
    /// Waits for the interrupt that the gateway has reported.
    AwaitStop { detail: String },
    /// Asks again, without counting: the gateway was away.
    Redial,
    /// Asks again, at most `limit` times, no sooner than the provider requests.
    Retry { limit: u32, wait: Option<Duration>, detail: String },
    /// Asks with a shorter conversation.
    Shorten { detail: String },
    /// Asks once with a shorter conversation, if this one is long.
    TryShorter { detail: String },
    /// Asks with a lower limit of output tokens, if one was sent.
    LowerOutput { detail: String },
    /// Ends the turn with an error.
    Fail { code: &'static str, detail: String },
}

/// Returns the recovery from a failure.
pub(super) fn recovery(failure: StepFailure) -> Recovery {
    match failure {
        StepFailure::Stopped => Recovery::Stop,
        StepFailure::Request(RequestFailure::Unreachable(_)) => Recovery::Redial,
        StepFailure::Request(ref rejected @ RequestFailure::Rejected(ref error)) => {
            match from_error(error, rejected.to_string()) {
                Recovery::Retry { detail, .. } => Recovery::Fail { code: "model_error", detail },
                other => other,
            }
        }
        StepFailure::Ended { error: Some(error), verdict: AnswerVerdict::Failed | AnswerVerdict::TooLong, .. } => {
            let detail = format!("the model broke off with an error: {}", error.message);
            from_error(&error, detail)
        }
        StepFailure::Ended { verdict, reason, error: _ } => from_verdict(verdict, reason),
    }
}

fn from_error(error: &ProviderError, detail: String) -> Recovery {
    if error.kind == INTERRUPTED {
        return Recovery::AwaitStop { detail: error.message.clone() };
    }
    if error.status == 402 || error.kind == BILLING_ERROR {
        return Recovery::Fail { code: "budget", detail: error.message.clone() };
    }
    match error.class {
        ErrorClass::TooLong => {
            Recovery::Shorten { detail: format!("the conversation is too long for the model: {}", error.message) }
        }
        ErrorClass::MaybeTooLong | ErrorClass::Permanent if names_output_limit(&error.message) => {
            Recovery::LowerOutput { detail }
        }
        ErrorClass::MaybeTooLong => Recovery::TryShorter { detail },
        ErrorClass::Temporary => Recovery::Retry { limit: TEMPORARY_RETRIES, wait: error.retry_after, detail },
        ErrorClass::Permanent => Recovery::Fail { code: "model_error", detail },
    }
}

fn from_verdict(verdict: AnswerVerdict, reason: Option<String>) -> Recovery {
    let VerdictRule { words, next, charge: _ } = verdict.rule();
    let detail = match reason {
        Some(reason) => format!("{words}: {reason}"),
        None => words.to_owned(),
    };
    match next {
        NextStep::Retry => Recovery::Retry { limit: RETRIES, wait: None, detail },
        NextStep::Shorten => Recovery::Shorten { detail },
        NextStep::Accept | NextStep::Continue | NextStep::Stop => Recovery::Fail { code: "model_error", detail },
    }
}

/// Returns true for words about the limit of output tokens, whatever a format calls it.
fn names_output_limit(message: &str) -> bool {
    ["max_tokens", "max_output_tokens", "max_completion_tokens"].iter().any(|name| message.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, kind: &str, message: &str, class: ErrorClass) -> ProviderError {
        ProviderError { status, kind: kind.into(), message: message.into(), retry_after: None, class }
    }

    fn rejected(error: ProviderError) -> Recovery {
        recovery(StepFailure::Request(RequestFailure::Rejected(error)))
    }

    fn in_stream(error: ProviderError) -> Recovery {
        recovery(StepFailure::Ended { verdict: AnswerVerdict::Failed, error: Some(error), reason: None })
    }

    fn ended(verdict: AnswerVerdict) -> Recovery {
        recovery(StepFailure::Ended { verdict, error: None, reason: Some("because".into()) })
    }

    #[test]
    fn error_has_one_recovery_wherever_it_stands() {
        for recovery_of in [rejected, in_stream] {
            let interrupted = recovery_of(error(403, "interrupted", "no", ErrorClass::Permanent));
            assert_eq!(interrupted, Recovery::AwaitStop { detail: "no".into() });
            let budget = recovery_of(error(402, "billing_error", "spent", ErrorClass::Permanent));
            assert_eq!(budget, Recovery::Fail { code: "budget", detail: "spent".into() });
            let long = recovery_of(error(400, "", "long", ErrorClass::TooLong));
            assert!(matches!(long, Recovery::Shorten { detail } if detail.ends_with(": long")));
            let maybe = recovery_of(error(422, "", "no", ErrorClass::MaybeTooLong));
            assert!(matches!(maybe, Recovery::TryShorter { .. }));
            let words = "max_tokens: 32000 > 8192, which is the maximum";
            assert!(matches!(
                recovery_of(error(400, "", words, ErrorClass::MaybeTooLong)),
                Recovery::LowerOutput { .. }
            ));
            let permanent = recovery_of(error(401, "", "no", ErrorClass::Permanent));
            assert!(matches!(permanent, Recovery::Fail { code: "model_error", .. }));
        }
    }

    #[test]
    fn temporary_error_is_retried_unless_gateway_has_retried() {
        let mut limit = error(429, "", "slow down", ErrorClass::Temporary);
        limit.retry_after = Some(Duration::from_secs(3));
        let Recovery::Retry { limit: TEMPORARY_RETRIES, wait, detail } = in_stream(limit.clone()) else {
            panic!("not retried")
        };
        assert_eq!(wait, limit.retry_after);
        assert_eq!(detail, "the model broke off with an error: slow down");
        let detail = "the model answered 429: slow down".into();
        assert_eq!(rejected(limit), Recovery::Fail { code: "model_error", detail });
    }

    #[test]
    fn verdict_without_error_follows_the_table() {
        for verdict in [AnswerVerdict::Refused, AnswerVerdict::Filtered] {
            let words = verdict.rule().words;
            assert!(!words.is_empty());
            assert_eq!(ended(verdict), Recovery::Fail { code: "model_error", detail: format!("{words}: because") });
        }
        assert!(matches!(ended(AnswerVerdict::Cut), Recovery::Retry { limit: RETRIES, wait: None, .. }));
        assert!(matches!(ended(AnswerVerdict::TooLong), Recovery::Shorten { .. }));
        assert!(matches!(ended(AnswerVerdict::Empty), Recovery::Retry { .. } | Recovery::Fail { .. }));
    }
}

//! Asks the model for the next step, and recovers from answers that do not stand.

use std::{path::PathBuf, time::Duration};

use greenroom_protocol::{
    Observation, ObservationKind,
    approval::ApprovalMode,
    link::{AgentSettings, ProviderApi, WorkOutcome},
};
use greenroom_provider::{
    AnswerPiece, AnswerVerdict,
    request::{ModelRequest, RequestMessage, UserPart},
};

use super::{
    TurnContext, cancelled, compaction,
    compaction::CompactionPlan,
    conversation::{AgentConversation, AssistantMessage},
    failed,
    model::{self, ModelClient},
    model_step::{self, IncompleteAnswer, StandingAnswer},
    recovery::{self, Recovery, StepFailure},
};
use crate::{agent_paths::AgentPaths, clock, gateway};

/// Waits before a retry: doubled from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LAST_WAIT: Duration = Duration::from_secs(8);
/// Last wait for a gateway that is away. Its server starts within seconds.
const LAST_REDIAL_WAIT: Duration = Duration::from_secs(2);
/// Longest wait that a provider may request.
const REQUESTED_WAIT_LIMIT: Duration = Duration::from_secs(60);
/// Limit for a stop to arrive after the gateway has reported the interrupt. The stop may wait
/// behind a long report or a dial.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of conversation for a model of unknown context: about 120,000 tokens of English or code.
const DEFAULT_BUDGET: usize = 480 * 1024;
/// Smallest conversation that is worth sending, in bytes.
const MIN_BUDGET: usize = 16 * 1024;
/// Size of the system prompt and the tools, rounded up, in bytes.
const OVERHEAD: usize = 16 * 1024;
/// Bytes of conversation for each token: fewer than in English, as in code.
const BYTES_PER_TOKEN: u64 = 3;
/// Smallest conversation that may be too long for a model, in bytes.
const LONG_CONVERSATION: usize = 32 * 1024;
/// Limits of output tokens, thinking included.
const MAX_TOKENS: u64 = 32_000;
const MIN_MAX_TOKENS: u64 = 2000;
/// Limit of a summary, in tokens.
const SUMMARY_TOKENS: u64 = 4000;

/// Asks one model at a time.
pub(super) struct ModelAsker {
    client: ModelClient,
    workspace: PathBuf,
    limits: ModelLimits,
}

/// Limits of the model in use. Lowered when the model rejects more; set anew for another model.
#[derive(Default)]
struct ModelLimits {
    /// API, name and context of the model.
    model: Option<(ProviderApi, String, Option<u64>)>,
    /// Bytes of conversation.
    budget: usize,
    max_tokens: u64,
}

impl ModelLimits {
    fn new(settings: &AgentSettings) -> ModelLimits {
        let max_tokens =
            settings.context_limit.map_or(MAX_TOKENS, |context| (context / 4).clamp(MIN_MAX_TOKENS, MAX_TOKENS));
        let budget = settings.context_limit.map_or(DEFAULT_BUDGET, |context| {
            let bytes = context.saturating_sub(max_tokens).saturating_mul(BYTES_PER_TOKEN);
            usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(OVERHEAD).max(MIN_BUDGET)
        });
        let model = Some((settings.api, settings.model.clone(), settings.context_limit));
        ModelLimits { model, budget, max_tokens }
    }

    /// Halves the budget, at least so that a conversation of `size` bytes exceeds it. Returns
    /// `false` if the conversation is too short already.
    fn lower_budget(&mut self, size: usize) -> bool {
        self.budget = (self.budget / 2).min(size.saturating_sub(1)).max(MIN_BUDGET);
        size > MIN_BUDGET
    }

    /// Returns `false` if the limit of output tokens is the lowest, or is not sent.
    fn lower_max_tokens(&mut self, api: ProviderApi) -> bool {
        let can_be_lower = match api {
            ProviderApi::Anthropic | ProviderApi::Gemini => self.max_tokens > MIN_MAX_TOKENS,
            ProviderApi::Openai => false,
        };
        self.max_tokens = (self.max_tokens / 2).max(MIN_MAX_TOKENS);
        can_be_lower
    }
}

/// Failures of one step so far.
struct StepAttempts {
    failures: u32,
    wait: Duration,
    /// Conversation and budget before the conversation was shortened on trial.
    before_trial: Option<(AgentConversation, usize)>,
}

impl ModelAsker {
    pub(super) fn new(paths: &AgentPaths) -> ModelAsker {
        ModelAsker {
            client: ModelClient::new(paths.gateway_socket.clone()),
            workspace: paths.workspace.clone(),
            limits: ModelLimits::default(),
        }
    }

    /// Requests one answer of the model, with recoveries.
    pub(super) async fn ask(
        &mut self,
        conversation: &mut AgentConversation,
        settings: &AgentSettings,
        context: &TurnContext,
    ) -> Result<StandingAnswer, WorkOutcome> {
        let mut attempts = StepAttempts { failures: 0, wait: FIRST_WAIT, before_trial: None };
        // Also holds the text of an earlier incomplete answer: if no more comes, the user has read
        // that text.
        let (mut text, mut partial) = (String::new(), false);
        loop {
            let incomplete = match self.ask_once(conversation, settings, context).await {
                Ok(answer) => return Ok(answer),
                Err(incomplete) => incomplete,
            };
            partial |= incomplete.partial;
            if !incomplete.text.is_empty() {
                text = incomplete.text;
            }
            tracing::warn!(failure = %incomplete.failure, "the model did not answer");
            let wait = match self.recover(incomplete.failure, &mut attempts, conversation, settings, context).await {
                Ok(wait) => wait,
                Err(outcome) => {
                    // No event ends these calls.
                    incomplete.calls.iter().for_each(|item| context.outgoing.forget(item));
                    return Err(outcome.unwrap_or_else(|| stopped(conversation, text, partial)));
                }
            };
            // The answer is requested again, so readers must not wait for these calls.
            model_step::fail_unfinished_calls(incomplete.calls, &context.outgoing).await;
            tokio::select! {
                biased;
                () = context.stop.cancelled() => return Err(stopped(conversation, text, partial)),
                () = clock::sleep(wait) => {}
            }
        }
    }

    /// Prepares the next attempt, and returns the wait before it. Returns the outcome if there is
    /// none: `None` if the user stopped the turn.
    async fn recover(
        &mut self,
        failure: StepFailure,
        attempts: &mut StepAttempts,
        conversation: &mut AgentConversation,
        settings: &AgentSettings,
        context: &TurnContext,
    ) -> Result<Duration, Option<WorkOutcome>> {
        let detail = match recovery::recovery(failure) {
            Recovery::Stop => return Err(None),
            Recovery::AwaitStop { detail } => {
                return Err(tokio::select! {
                    biased;
                    () = context.stop.cancelled() => None,
                    () = clock::sleep(STOP_TIMEOUT) => Some(failed("model_error", detail)),
                });
            }
            Recovery::Redial => return Ok(next_wait(&mut attempts.wait, LAST_REDIAL_WAIT)),
            Recovery::Retry { limit, wait: requested, detail } => {
                // A gateway that is gone ends its streams. Such a failure does not count against
                // the model.
                if gateway::is_reachable(self.client.socket()).await {
                    attempts.failures += 1;
                }
                if attempts.failures <= limit {
                    let wait = next_wait(&mut attempts.wait, LAST_WAIT);
                    return Ok(wait.max(requested.unwrap_or_default().min(REQUESTED_WAIT_LIMIT)));
                }
                detail
            }
            Recovery::Shorten { detail } => {
                if self.limits.lower_budget(conversation.size()) {
                    return Ok(Duration::ZERO);
                }
                detail
            }
            Recovery::TryShorter { detail } => {
                if attempts.before_trial.is_none() && conversation.size() >= LONG_CONVERSATION {
                    attempts.before_trial = Some((conversation.clone(), self.limits.budget));
                    self.limits.budget = conversation.size() / 2;
                    conversation.fit(self.limits.budget);
                    return Ok(Duration::ZERO);
                }
                detail
            }
            Recovery::LowerOutput { detail } => {
                if self.limits.lower_max_tokens(settings.api) {
                    return Ok(Duration::ZERO);
                }
                detail
            }
            Recovery::Fail { code, detail } if code != "model_error" => return Err(Some(failed(code, detail))),
            Recovery::Fail { code: _, detail } => detail,
        };
        // The trial did not help, so nothing was too long.
        if let Some((before, budget)) = attempts.before_trial.take() {
            (*conversation, self.limits.budget) = (before, budget);
        }
        Err(Some(failed("model_error", detail)))
    }

    async fn ask_once(
        &mut self,
        conversation: &mut AgentConversation,
        settings: &AgentSettings,
        context: &TurnContext,
    ) -> Result<StandingAnswer, IncompleteAnswer> {
        self.select_model(settings, conversation);
        conversation.read_pictures(&self.workspace, settings.takes_images, context).await;
        self.make_room(conversation, settings, context).await;
        let system = system_prompt(settings);
        let request = model::step_request(settings, &system, conversation.to_send(), self.limits.max_tokens);
        let answer = tokio::select! {
            biased;
            () = context.stop.cancelled() => Err(StepFailure::Stopped),
            answer = self.client.send(settings.api, &request) => answer.map_err(StepFailure::Request),
        };
        model_step::relay_answer(answer?, conversation, &context.outgoing, &context.stop).await
    }

    /// Sets the model of the next request. Another model may accept more than the one before, so
    /// the limits are set anew. It rejects thoughts that the one before signed.
    fn select_model(&mut self, settings: &AgentSettings, conversation: &mut AgentConversation) {
        let limits = ModelLimits::new(settings);
        if self.limits.model != limits.model {
            if self.limits.model.is_some() {
                conversation.drop_opaque_values();
            }
            self.limits = limits;
        }
    }

    /// Shrinks a conversation over the budget. A summary by the model comes before anything is
    /// dropped; if there is none, old results and messages are dropped.
    async fn make_room(
        &mut self,
        conversation: &mut AgentConversation,
        settings: &AgentSettings,
        context: &TurnContext,
    ) {
        let budget = self.limits.budget;
        if conversation.size() <= budget {
            return;
        }
        conversation.drop_pictures(budget / 4 * 3);
        if let Some(CompactionPlan { transcript, kept, bytes }) =
            Some(&*conversation).filter(|it| it.size() > budget).and_then(|it| it.plan_compaction(budget))
            && let Some(summary) = self.summarize(transcript, settings, context).await
        {
            let kind = ObservationKind::Compaction { dropped_bytes: bytes as u64, kept: kept as u64 };
            context.outgoing.event(None, Observation { kind, content: summary.clone() }).await;
            conversation.compact(&summary, kept);
        }
        // After an interrupt nothing is sent, so nothing has to be dropped.
        if !context.stop.is_cancelled() {
            conversation.fit(budget);
        }
    }

    /// Requests a summary. Returns `None` if the call fails or is interrupted.
    async fn summarize(
        &mut self,
        transcript: String,
        settings: &AgentSettings,
        context: &TurnContext,
    ) -> Option<String> {
        let request = ModelRequest {
            model: &settings.model,
            system: compaction::PROMPT,
            messages: vec![RequestMessage::User(vec![UserPart::Text(transcript)])],
            tools: Vec::new(),
            effort: None,
            max_tokens: SUMMARY_TOKENS.min(self.limits.max_tokens),
        };
        let work = async {
            let mut answer = self.client.send(settings.api, &request).await.ok()?;
            let mut summary = String::new();
            while let Some(pieces) = answer.next().await {
                summary.extend(pieces.into_iter().filter_map(|piece| match piece {
                    AnswerPiece::Text(text) => Some(text),
                    AnswerPiece::Thinking(_) | AnswerPiece::ToolCall(_) | AnswerPiece::Opaque(_) => None,
                }));
            }
            match answer.end().verdict {
                AnswerVerdict::Complete | AnswerVerdict::Limit => Some(compaction::limit_summary(&summary)),
                AnswerVerdict::Cut
                | AnswerVerdict::Refused
                | AnswerVerdict::Filtered
                | AnswerVerdict::Paused
                | AnswerVerdict::Empty
                | AnswerVerdict::TooLong
                | AnswerVerdict::Failed => None,
            }
        };
        tokio::select! {
            biased;
            () = context.stop.cancelled() => None,
            summary = work => summary.filter(|summary| !summary.is_empty()),
        }
    }
}

/// Returns the next wait, and doubles it for the one after.
fn next_wait(wait: &mut Duration, last: Duration) -> Duration {
    let next = *wait;
    *wait = (next * 2).min(last);
    next
}

/// Records the partial answer that the user stopped, and returns the outcome.
fn stopped(conversation: &mut AgentConversation, text: String, partial: bool) -> WorkOutcome {
    conversation.add_assistant_message(AssistantMessage { text, ..AssistantMessage::default() });
    cancelled("the model's answer", partial)
}

/// Returns the instructions for the model. In plan mode, they ask for a plan.
fn system_prompt(settings: &AgentSettings) -> String {
    let mut prompt = include_str!("prompt.md").replace("{directory}", &settings.directory);
    if settings.mode == Some(ApprovalMode::Plan) {
        prompt.push_str(include_str!("plan_mode.md"));
    }
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(model: &str, context_limit: Option<u64>) -> AgentSettings {
        AgentSettings {
            model: model.into(),
            api: ProviderApi::Anthropic,
            directory: "/".into(),
            run_timeout_s: 1,
            max_steps: 1,
            program: None,
            effort: None,
            takes_images: false,
            context_limit,
            orphan_after_s: None,
            plan_path: None,
            mode: None,
        }
    }

    #[test]
    fn context_of_model_sets_the_budget() {
        let budget = |context| ModelLimits::new(&settings("m", context)).budget;
        assert_eq!(budget(None), DEFAULT_BUDGET);
        assert_eq!(budget(Some(8192)), MIN_BUDGET);
        assert!((400 << 10..600 << 10).contains(&budget(Some(200_000))));
        assert!(budget(Some(1_000_000)) > 2 << 20);
        assert_eq!(ModelLimits::new(&settings("m", Some(16_000))).max_tokens, 4000);
    }

    #[test]
    fn other_model_resets_limits() {
        let paths = AgentPaths::from_env();
        let (mut asker, mut conversation) = (ModelAsker::new(&paths), AgentConversation::default());
        asker.select_model(&settings("small", None), &mut conversation);
        asker.limits.budget = MIN_BUDGET;
        asker.select_model(&settings("small", None), &mut conversation);
        assert_eq!(asker.limits.budget, MIN_BUDGET, "the model is the same");
        asker.select_model(&settings("large", None), &mut conversation);
        assert_eq!(asker.limits.budget, DEFAULT_BUDGET);
    }

    #[test]
    fn lowered_budget_shortens_the_conversation_down_to_a_minimum() {
        let mut limits = ModelLimits::new(&settings("m", None));
        let mut size = 100_000;
        for budget in [99_999, 49_999, 24_999, MIN_BUDGET] {
            assert!(limits.lower_budget(size));
            assert_eq!(limits.budget, budget);
            // A shortened conversation has three quarters of the budget.
            size = budget / 4 * 3;
        }
        assert!(!limits.lower_budget(size));
        assert!(limits.lower_max_tokens(ProviderApi::Anthropic) && limits.max_tokens == MAX_TOKENS / 2);
        assert!(!limits.lower_max_tokens(ProviderApi::Openai));
    }
}

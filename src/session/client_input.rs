//! Conversion of client requests to inputs of the rules.

use greenroom_protocol::{Action, action::EffortChoice, approval::ApprovalMode, client::ClientRequest};

use super::{
    actor::Session,
    request_error::RequestError,
    turn::{ApprovalReply, ModeChange, SessionInput},
};
use crate::store::SessionRecord;

/// Change of settings. Absent values stay unchanged.
#[derive(Debug, Default)]
pub(super) struct SettingsChange {
    pub(super) model: Option<String>,
    pub(super) effort: Option<EffortChoice>,
    pub(super) title: Option<String>,
    pub(super) analyzer: Option<String>,
    pub(super) mode: Option<ApprovalMode>,
}

impl Session {
    /// Returns the input that changes settings, or `None` if it would neither change the model, the
    /// effort nor the mode.
    ///
    /// # Errors
    /// Returns [`RequestError::BadArgs`] for an unknown model or analyzer.
    pub(super) fn change_settings(&self, change: SettingsChange) -> Result<Option<SessionInput>, RequestError> {
        if let Some(analyzer) = &change.analyzer {
            (self.deps.policy.analyzer)(analyzer).map_err(RequestError::BadArgs)?;
        }
        let mode = change.mode.filter(|mode| *mode != self.mode());
        match (&change.model, change.effort, mode) {
            (None, None, None) => Ok(None),
            (None, None, Some(mode)) => Ok(Some(self.set_mode(mode, None))),
            _ => self.change_model(change).map(Some),
        }
    }

    /// Returns the input that changes the model, with everything else that `change` names.
    fn change_model(&self, change: SettingsChange) -> Result<SessionInput, RequestError> {
        let SettingsChange { model, effort, title, analyzer, mode } = change;
        let mode = mode.filter(|mode| *mode != self.mode());
        let mut record = SessionRecord::clone(&self.record);
        if let Some(model) = model {
            record.model = non_empty("model", model)?;
            (self.deps.check_model)(&record.model).map_err(|e| RequestError::BadArgs(e.to_string()))?;
        }
        record.effort = effort.map_or(record.effort, EffortChoice::effort);
        record.mode = mode.or(record.mode);
        let settings = (self.deps.settings_for)(&record);
        Ok(SessionInput::SetModel { settings, title, analyzer, mode: mode.map(|mode| self.mode_change(mode)) })
    }

    fn set_mode(&self, mode: ApprovalMode, message: Option<String>) -> SessionInput {
        let record = SessionRecord { mode: Some(mode), ..SessionRecord::clone(&self.record) };
        let settings = (self.deps.settings_for)(&record);
        SessionInput::SetMode { settings, change: self.mode_change(mode), message }
    }

    fn mode_change(&self, mode: ApprovalMode) -> ModeChange {
        ModeChange { mode, answers: self.answers_of_policy(mode) }
    }

    /// Converts a client request to an input of the rules.
    ///
    /// # Errors
    /// Returns [`RequestError::BadArgs`] for an invalid argument, and for `ping`.
    pub(super) fn to_input(
        &self,
        request: ClientRequest,
        requested_by: Option<String>,
    ) -> Result<SessionInput, RequestError> {
        Ok(match request {
            ClientRequest::Start { task } => SessionInput::Start { task: non_empty("task", task)? },
            ClientRequest::Message { content, mode, attachments } => {
                SessionInput::Message { content: non_empty("content", content)?, mode, attachments }
            }
            ClientRequest::Run { command } => {
                SessionInput::UserAction(Action::Run { command: non_empty("command", command)? })
            }
            ClientRequest::Read { path } => SessionInput::UserAction(Action::Read { path: non_empty("path", path)? }),
            ClientRequest::Write { path, content } => {
                SessionInput::UserAction(Action::Write { path: non_empty("path", path)?, content })
            }
            ClientRequest::Browse { url } => SessionInput::UserAction(Action::Browse { url: non_empty("url", url)? }),
            ClientRequest::Interrupt {} => SessionInput::Interrupt,
            ClientRequest::Pause {} => SessionInput::Pause,
            ClientRequest::Resume {} => SessionInput::Resume,
            ClientRequest::Stop {} => SessionInput::Stop { reason: None },
            ClientRequest::End {} => SessionInput::End,
            ClientRequest::Confirm { request, decision, reason, choice, input } => {
                if let Some(input) = &input {
                    self.check_changed_call(&request, input)?;
                }
                SessionInput::Confirm(ApprovalReply { request, decision, reason, choice, input, who: requested_by })
            }
            ClientRequest::SetMode { mode, message } => {
                let message = message.map(|message| non_empty("message", message)).transpose()?;
                if mode == self.mode() {
                    return Err(RequestError::AlreadyInState(in_mode(mode)));
                }
                self.set_mode(mode, message)
            }
            ClientRequest::EditQueue { item, content, remove } => {
                let content = content.map(|content| non_empty("content", content)).transpose()?;
                SessionInput::EditQueue { item, content, remove }
            }
            ClientRequest::SetModel { model } => {
                self.change_model(SettingsChange { model: Some(model), ..SettingsChange::default() })?
            }
            ClientRequest::SetBudget { usd } => SessionInput::SetBudget { usd },
            ClientRequest::KillProcess { pid } => SessionInput::KillProcess { pid },
            ClientRequest::Initialize {
                model,
                title,
                image,
                directory,
                agent_cls,
                effort,
                mode,
                analyzer,
                repo,
                reference,
            } => {
                if image.or(directory).or(agent_cls).or(repo).or(reference).is_some() {
                    return Err(RequestError::BadArgs(
                        "`image`, `directory`, `agent_cls`, `repo` and `ref` are fixed when a session is created; create a new session with them"
                            .to_owned(),
                    ));
                }
                if let Some(analyzer) = &analyzer {
                    (self.deps.policy.analyzer)(analyzer).map_err(RequestError::BadArgs)?;
                }
                self.change_model(SettingsChange { model, effort, title, analyzer, mode })?
            }
            ClientRequest::Ping {} => {
                return Err(RequestError::BadArgs(
                    "`ping` is answered by the connection, not by the session".to_owned(),
                ));
            }
        })
    }
}

/// Returns true if an input's events may be large. Other inputs have twice the in-flight limit.
pub(super) fn has_contents(input: &SessionInput) -> bool {
    matches!(
        input,
        SessionInput::Start { .. }
            | SessionInput::Message { .. }
            | SessionInput::UserAction(_)
            | SessionInput::EditQueue { .. }
            | SessionInput::SetModel { .. }
            | SessionInput::PlanSaved { .. }
            | SessionInput::SetMode { message: Some(_), .. }
            | SessionInput::Confirm(ApprovalReply { input: Some(_), .. })
    )
}

/// Checks that the text of argument `name` is not blank.
fn non_empty(name: &str, text: String) -> Result<String, RequestError> {
    if text.trim().is_empty() { Err(RequestError::BadArgs(format!("`{name}` is empty"))) } else { Ok(text) }
}

/// Names the mode for an error.
fn in_mode(mode: ApprovalMode) -> &'static str {
    match mode {
        ApprovalMode::Plan => "in mode `plan`",
        ApprovalMode::Ask => "in mode `ask`",
        ApprovalMode::Edits => "in mode `edits`",
        ApprovalMode::Auto => "in mode `auto`",
    }
}

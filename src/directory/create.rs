//! Creates sessions, exactly once per idempotency key.

use actix::{fut::LocalBoxActorFuture, prelude::*};
use greenroom_protocol::{action::EffortChoice, observation::AgentState};
use tokio::sync::oneshot;

use super::{Create, CreatedSession, Directory, NewSession, SessionSlot, request_error, shutting_down};
use crate::{
    clock,
    session::{
        RequestError, Session, check_directory, check_name, check_title, initial_state,
        messages::{GetView, StartTask},
    },
    store::{CreateOutcome, JournalUsage, OpaqueState, SessionId, SessionRecord, SessionRepository, UsageTotals},
};

/// Name of the only agent.
pub const AGENT: &str = "greenroom";

impl Handler<Create> for Directory {
    type Result = ResponseActFuture<Directory, Result<CreatedSession, RequestError>>;

    fn handle(
        &mut self,
        Create { new, key, dedup_key, preferred_thread }: Create,
        ctx: &mut Context<Directory>,
    ) -> Self::Result {
        self.entry.record_handled();
        let existing = match key.as_ref().map_or(Ok(None), |key| self.keys.get(key)) {
            Ok(existing) => existing,
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        if let Some(id) = existing {
            let (opened, directory_addr) = (self.open(id, ctx).into_actor(self), ctx.address());
            return Box::pin(opened.then(move |opened, directory, _| match opened {
                // The session was purged while the keys of the last run were read. The key is free
                // again.
                Err(RequestError::NoSession(_)) => {
                    directory.keys.forget(id);
                    let retried = async move {
                        directory_addr
                            .send(Create { new, key, dedup_key, preferred_thread })
                            .await
                            .unwrap_or_else(|_| Err(shutting_down()))
                    };
                    retried.into_actor(directory).boxed_local()
                }
                opened => async move { created(opened?, new.task, false).await }.into_actor(directory).boxed_local(),
            }));
        }
        if self.closing {
            return Box::pin(fut::ready(Err(shutting_down())));
        }
        if key.is_some() && !self.keys.is_loaded() {
            let (loaded, directory_addr) = (self.keys.wait_until_loaded(), ctx.address());
            let retried = async move {
                loaded.await;
                directory_addr
                    .send(Create { new, key, dedup_key, preferred_thread })
                    .await
                    .unwrap_or_else(|_| Err(shutting_down()))
            };
            return Box::pin(retried.into_actor(self));
        }
        if let Err(error) = self.start_limiter.admit(self.creating + 1) {
            return Box::pin(fut::ready(Err(error)));
        }
        let id = self.threads.generate_key(preferred_thread, SessionId::generate);
        let record = match self.record(id, &new, key.clone()) {
            Ok(record) => SessionRecord { actor_state: initial_state(dedup_key), ..record },
            Err(error) => return Box::pin(fut::ready(Err(error))),
        };
        self.keys.insert(key, id);
        // Requests for this session wait from now on for the actor that starts here.
        self.slots.insert(id, SessionSlot::Opening(Vec::new()));
        self.creating += 1;
        let store = self.store.clone();
        let stored = async move { store.create(record).await }.into_actor(self);
        Box::pin(stored.then(move |stored, directory, ctx| match stored {
            Ok(CreateOutcome::Created(_)) => {
                let (reply_to, opened) = oneshot::channel();
                if let Some(SessionSlot::Opening(waiting)) = directory.slots.get_mut(&id) {
                    waiting.push(reply_to);
                }
                directory.start_session(id, ctx);
                async move { created(opened.await.unwrap_or_else(|_| Err(shutting_down()))?, new.task, true).await }
                    .into_actor(directory)
                    .map(|created, directory: &mut Directory, _| {
                        directory.creating -= 1;
                        created
                    })
                    .boxed_local()
            }
            Ok(CreateOutcome::Exists(_)) => {
                let text = format!("session `{id}` exists already; try again, for another id");
                directory.not_created(id, RequestError::Unavailable(text), ctx)
            }
            Err(e) => directory.not_created(id, request_error(&e), ctx),
        }))
    }
}

/// Sends the task, if any, and returns the session.
pub(super) async fn created(
    session: Addr<Session>,
    task: Option<String>,
    is_new: bool,
) -> Result<CreatedSession, RequestError> {
    let stopped = |_| RequestError::Unavailable("the session stopped right after it was created; try again".to_owned());
    if let Some(task) = task {
        session.send(StartTask { task }).await.map_err(stopped)??;
    }
    let view = session.send(GetView).await.map_err(stopped)?;
    Ok(CreatedSession { session, view, is_new })
}

impl Directory {
    fn not_created(
        &mut self,
        id: SessionId,
        error: RequestError,
        ctx: &mut Context<Directory>,
    ) -> LocalBoxActorFuture<Directory, Result<CreatedSession, RequestError>> {
        self.keys.forget(id);
        self.creating -= 1;
        self.opened(id, Err(error.clone()), ctx);
        fut::ready(Err(error)).boxed_local()
    }

    fn record(&self, id: SessionId, new: &NewSession, key: Option<String>) -> Result<SessionRecord, RequestError> {
        check_title(new.title.as_deref())?;
        for (what, name) in [("agent", &new.agent), ("model", &new.model), ("image", &new.image)] {
            check_name(what, name.as_deref().unwrap_or_default())?;
        }
        new.directory.as_deref().map_or(Ok(()), check_directory)?;
        let model = new.model.clone().filter(|model| !model.is_empty()).unwrap_or_else(|| self.gateway.default_model());
        self.gateway.ready(&model).map_err(|e| RequestError::BadArgs(e.to_string()))?;
        let agent = new.agent.clone().unwrap_or_else(|| AGENT.to_owned());
        if agent != AGENT {
            return Err(RequestError::BadArgs(format!("no agent `{agent}`; the known agents are `{AGENT}`")));
        }
        let analyzer = self.approvals.choose_analyzer(new.analyzer.as_deref())?;
        if new.task.as_ref().is_some_and(|task| task.trim().is_empty()) {
            return Err(RequestError::BadArgs("`task` is empty; leave it out, or state the task".to_owned()));
        }
        if new.budget_usd.is_some_and(|budget| !budget.is_finite() || budget <= 0.0) {
            return Err(RequestError::BadArgs("`budget_usd` must be a number above 0".to_owned()));
        }
        let repository = self.repository(new)?;
        let further_models = self.sessions.spending.further_models(&model);
        let now = clock::now();
        Ok(SessionRecord {
            id,
            title: new.title.clone().unwrap_or_default(),
            state: AgentState::Starting,
            reason: None,
            agent,
            model,
            effort: new.effort.map_or_else(|| self.gateway.default_effort(), EffortChoice::effort),
            mode: Some(new.mode.unwrap_or(self.approvals.mode)),
            analyzer: Some(analyzer),
            image: new.image.clone(),
            sandbox: self.sandbox.name().to_owned(),
            sandbox_uid: None,
            directory: new.directory.clone(),
            created_at: now.clone(),
            updated_at: now,
            usage: UsageTotals { cost_usd: Some(0.0), ..UsageTotals::default() },
            budget_usd: new.budget_usd.or(self.sessions.spending.default_budget()),
            spent_on: None,
            reported_budget_usd: None,
            journal_usage: JournalUsage::default(),
            latest: None,
            parent: None,
            repository,
            further_models,
            archived: false,
            idempotency_key: key,
            actor_state: OpaqueState::default(),
        })
    }
    /// Checks the repository of a new session.
    fn repository(&self, new: &NewSession) -> Result<Option<SessionRepository>, RequestError> {
        let Some(repo) = &new.repo else {
            return match new.reference {
                Some(_) => Err(RequestError::BadArgs("`ref` needs a repository; name it in `repo`".to_owned())),
                None => Ok(None),
            };
        };
        let checked = self.repositories.check(repo, new.reference.as_deref());
        checked.map(Some).map_err(|e| RequestError::BadArgs(e.to_string()))
    }
}

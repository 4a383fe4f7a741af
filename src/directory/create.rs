//! How a session comes to be, once for each key.

use actix::prelude::*;
use greenroom_protocol::observation::AgentState;
use tokio::sync::oneshot;

use super::{Create, CreatedSession, Directory, NewSession, SessionSlot, request_error, shutting_down};
use crate::{
    clock,
    session::{
        RequestError, Session, check_name, check_title, initial_state,
        messages::{GetView, StartTask},
    },
    store::{OpaqueState, SessionId, SessionRecord, UsageTotals},
};

/// The agent that every session has, until others can be configured.
pub const AGENT: &str = "greenroom";

impl Handler<Create> for Directory {
    type Result = ResponseActFuture<Directory, Result<CreatedSession, RequestError>>;

    fn handle(
        &mut self,
        Create { new, key, dedup_key: named, preferred_thread: near }: Create,
        ctx: &mut Context<Directory>,
    ) -> Self::Result {
        self.entry.record_handled();
        let known = match key.as_ref().map_or(Ok(None), |key| self.keys.get(key)) {
            Ok(known) => known,
            Err(refusal) => return Box::pin(fut::ready(Err(refusal))),
        };
        if let Some(id) = known {
            let (opened, here) = (self.open(id, ctx).into_actor(self), ctx.address());
            return Box::pin(opened.then(move |opened, directory, _| match opened {
                // As where it was purged while the keys of the last run were read: now the key stands for nothing.
                Err(RequestError::NoSession(_)) => {
                    directory.keys.forget(id);
                    let asked_again = async move {
                        here.send(Create { new, key, dedup_key: named, preferred_thread: near })
                            .await
                            .unwrap_or_else(|_| Err(shutting_down()))
                    };
                    asked_again.into_actor(directory).boxed_local()
                }
                opened => async move { created(opened?, new.task, false).await }.into_actor(directory).boxed_local(),
            }));
        }
        if self.closing {
            return Box::pin(fut::ready(Err(shutting_down())));
        }
        if key.is_some() && !self.keys.is_loaded() {
            let (known, here) = (self.keys.wait_until_loaded(), ctx.address());
            let asked_again = async move {
                known.await;
                here.send(Create { new, key, dedup_key: named, preferred_thread: near })
                    .await
                    .unwrap_or_else(|_| Err(shutting_down()))
            };
            return Box::pin(asked_again.into_actor(self));
        }
        if let Err(refusal) = self.start_limiter.admit(self.creating + 1) {
            return Box::pin(fut::ready(Err(refusal)));
        }
        let id = self.threads.new_session_id(near);
        let record = match self.record(id, &new, key.clone()) {
            Ok(record) => SessionRecord { actor_state: initial_state(named), ..record },
            Err(refusal) => return Box::pin(fut::ready(Err(refusal))),
        };
        self.keys.insert(key, id);
        // Whoever asks for it in the meantime waits with the one who asked first.
        self.slots.insert(id, SessionSlot::Opening(Vec::new()));
        self.creating += 1;
        let store = self.store.clone();
        let made = async move { store.create(record).await }.into_actor(self);
        Box::pin(made.then(move |made, directory, ctx| match made {
            Ok(_) => {
                let (asker, opened) = oneshot::channel();
                if let Some(SessionSlot::Opening(waiting)) = directory.slots.get_mut(&id) {
                    waiting.push(asker);
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
            Err(e) => {
                directory.keys.forget(id);
                directory.creating -= 1;
                let refusal = request_error(&e);
                directory.opened(id, Err(refusal.clone()), ctx);
                fut::ready(Err(refusal)).boxed_local()
            }
        }))
    }
}

async fn created(session: Addr<Session>, task: Option<String>, fresh: bool) -> Result<CreatedSession, RequestError> {
    let gone = |_| RequestError::Unavailable("the session stopped as soon as it was made".to_owned());
    if let Some(task) = task {
        session.send(StartTask { task }).await.map_err(gone)??;
    }
    let view = session.send(GetView).await.map_err(gone)?;
    Ok(CreatedSession { session, view, is_new: fresh })
}

impl Directory {
    fn record(&self, id: SessionId, new: &NewSession, key: Option<String>) -> Result<SessionRecord, RequestError> {
        check_title(new.title.as_deref())?;
        for (what, name) in
            [("agent", &new.agent), ("model", &new.model), ("image", &new.image), ("directory", &new.directory)]
        {
            check_name(what, name.as_deref().unwrap_or_default())?;
        }
        let model = new.model.clone().filter(|model| !model.is_empty()).unwrap_or_else(|| self.gateway.default_model());
        self.gateway.ready(&model).map_err(|e| RequestError::BadArgs(e.to_string()))?;
        let agent = new.agent.clone().unwrap_or_else(|| AGENT.to_owned());
        if agent != AGENT {
            return Err(RequestError::BadArgs(format!("there is no agent `{agent}` (known agents: `{AGENT}`)")));
        }
        check_directory(new.directory.as_deref())?;
        if new.task.as_ref().is_some_and(|task| task.trim().is_empty()) {
            return Err(RequestError::BadArgs("`task` is empty; leave it out, or say what is to be done".to_owned()));
        }
        if new.budget_usd.is_some_and(|budget| !budget.is_finite() || budget <= 0.0) {
            return Err(RequestError::BadArgs("`budget_usd` is a number above 0".to_owned()));
        }
        let now = clock::now();
        Ok(SessionRecord {
            id,
            title: new.title.clone().unwrap_or_default(),
            state: AgentState::Starting,
            reason: None,
            agent,
            model,
            image: new.image.clone(),
            sandbox: self.sandbox.name().to_owned(),
            directory: new.directory.clone(),
            created_at: now.clone(),
            updated_at: now,
            usage: UsageTotals { cost_usd: Some(0.0), ..UsageTotals::default() },
            budget_usd: new.budget_usd,
            archived: false,
            idempotency_key: key,
            actor_state: OpaqueState::default(),
        })
    }
}

/// A directory is shown to people and written down for every command, so it is one plain path.
fn check_directory(directory: Option<&str>) -> Result<(), RequestError> {
    let Some(directory) = directory else { return Ok(()) };
    let why = if directory.chars().any(char::is_control) {
        // Not shown: whoever reads it may be a terminal.
        "`directory` has a control character, such as a line's end; leave it out of the path".to_owned()
    } else if !directory.starts_with('/') {
        format!("`directory` is an absolute path inside the sandbox, not `{directory}`")
    } else if directory.split('/').any(|part| part == "..") {
        format!("`directory` has no `..` in it, as `{directory}` has; give the path that it leads to")
    } else {
        return Ok(());
    };
    Err(RequestError::BadArgs(why))
}

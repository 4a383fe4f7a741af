//! Sessions over REST: make, list, look, change, end; and what a person can wish of one.

use actix::Addr;
use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web::{Data, Json},
};
use greenroom_protocol::{action::Mode, client::Wish, observation::State};
use serde::{Deserialize, Serialize};

use super::{
    Parts,
    error::{Answer, ErrorAnswer, Failure},
    request::{Key, Named, Params},
};
use crate::{
    directory::{self, NewSession},
    frontend,
    session::{
        self, Session, View, Wanted, fits, fits_title,
        messages::{self, Accepted, Relay},
    },
    store::{self, Seq, SessionId, Snapshot},
};

/// Which sessions to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Part of the title or the id.
    q: Option<String>,
    #[param(value_type = Option<String>, example = "idle")]
    state: Option<State>,
    archived: Option<bool>,
    /// At most 500; 50 if not given.
    #[serde(default)]
    limit: usize,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A page of sessions, newest activity first.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Page {
    items: Vec<View>,
    /// `null` on the last page.
    next_cursor: Option<String>,
    /// How many match in all.
    total: usize,
}

/// What a person may change. What is left out stays as it is.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    title: Option<String>,
    archived: Option<bool>,
    model: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Ending {
    /// Remove every trace: sandbox, workspace, journal.
    #[serde(default)]
    purge: bool,
}

/// A message for the agent.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    content: String,
    /// `queue` (default), `steer` or `interrupt`: when it reaches an agent that works.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "queue")]
    mode: Mode,
    /// Paths of uploaded files.
    #[serde(default)]
    attachments: Vec<String>,
}

/// A wish was carried out, and is in the journal.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Receipt {
    /// The first event that it led to.
    seq: Option<Seq>,
    /// The state after it.
    #[schema(value_type = String, example = "running")]
    state: State,
}

/// Make a session; with a `task` it begins to work at once.
#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key with the same wish again answers with the same session")),
    responses((status = 201, body = View), (status = 200, body = View, description = "this key had made it before"),
        (status = 409, body = ErrorAnswer, description = "this key made a session for another wish"),
        (status = 429, body = ErrorAnswer, description = "too many sandboxes wait for their start; `Retry-After` says when to ask again")))]
pub(super) async fn create(parts: Data<Parts>, new: Json<NewSession>, key: Key) -> Answer {
    let new = new.into_inner();
    let key = key.0.map(|key| directory::key_of(&key, &new));
    if key.is_none() {
        // Only the Directory knows a key. For all others this is known here, too: a crowd that is turned away does not stand before
        // those who want something else of the Directory.
        parts.starts.let_in(1)?;
    }
    let created = parts.directory.send(directory::Create { new, key, named: None, near: None }).await??;
    let status = if created.fresh { StatusCode::CREATED } else { StatusCode::OK };
    let address = format!("/api/sessions/{}", created.view.id);
    Ok(HttpResponse::build(status).insert_header((header::LOCATION, address)).json(created.view))
}

/// List sessions, newest activity first.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(Which), responses((status = 200, body = Page)))]
pub(super) async fn list(parts: Data<Parts>, Params(which): Params<Which>) -> Answer {
    let Which { q, state, archived, limit, cursor } = which;
    let limit = limit.min(500);
    let listing = parts.store.list(store::Query { text: q, state, archived, limit, cursor }).await?;
    let items = listing.items.iter().map(|snapshot| parts.view(snapshot)).collect();
    Ok(HttpResponse::Ok().json(Page { items, next_cursor: listing.next_cursor, total: listing.total }))
}

/// Look at a session.
#[utoipa::path(get, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = View), (status = 404, body = ErrorAnswer)))]
pub(super) async fn look(parts: Data<Parts>, id: Named) -> Answer {
    let snapshot = parts.snapshot(id.0).await?;
    Ok(HttpResponse::Ok().json(parts.view(&snapshot)))
}

/// Rename, archive, or change the model.
#[utoipa::path(patch, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    request_body = Change, responses((status = 200, body = View)))]
pub(super) async fn change(parts: Data<Parts>, id: Named, change: Json<Change>) -> Answer {
    let Change { title, archived, model } = change.into_inner();
    fits_title(title.as_deref())?;
    fits("model", model.as_deref().unwrap_or_default())?;
    parts.ask(id.0, messages::Amend { title, archived, model }).await??;
    look(parts, id).await
}

/// End a session for good; it stays readable. With `purge` nothing of it stays.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path), Ending),
    responses((status = 200, body = Receipt), (status = 204, description = "purged")))]
pub(super) async fn end(parts: Data<Parts>, id: Named, Params(ending): Params<Ending>, key: Key) -> Answer {
    if !ending.purge {
        return parts.wish(id.0, messages::End { key: key.0 }).await;
    }
    parts.snapshot(id.0).await?;
    parts.directory.send(directory::Purge { id: id.0 }).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Say something to the agent.
#[utoipa::path(post, path = "/api/sessions/{id}/messages", tag = "sessions", request_body = NewMessage,
    params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "the same message with the same key again acts once")),
    responses((status = 202, body = Receipt),
        (status = 409, body = ErrorAnswer, description = "the session has ended, or the key was given to another wish")))]
pub(super) async fn message(parts: Data<Parts>, id: Named, message: Json<NewMessage>, key: Key) -> Answer {
    let NewMessage { content, mode, attachments } = message.into_inner();
    if content.trim().is_empty() {
        return Err(Failure::invalid("`content` is empty"));
    }
    let wish = Wish::Message { content, mode, attachments };
    let accepted = parts.ask(id.0, Relay { wish, key: key.0 }).await??;
    Ok(HttpResponse::Accepted().json(Receipt::from(accepted)))
}

/// Stop whatever runs. A second time takes the agent away.
#[utoipa::path(post, path = "/api/sessions/{id}/interrupt", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn interrupt(parts: Data<Parts>, id: Named, key: Key) -> Answer {
    parts.wish(id.0, messages::Interrupt { key: key.0 }).await
}

/// Freeze the sandbox where it stands.
#[utoipa::path(post, path = "/api/sessions/{id}/pause", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn pause(parts: Data<Parts>, id: Named, key: Key) -> Answer {
    parts.wish(id.0, messages::Pause { key: key.0 }).await
}

/// Go on after a pause, or start a stopped sandbox again.
#[utoipa::path(post, path = "/api/sessions/{id}/resume", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn resume(parts: Data<Parts>, id: Named, key: Key) -> Answer {
    parts.wish(id.0, messages::Resume { key: key.0 }).await
}

/// Stop the sandbox, which frees its memory; any message brings it back.
#[utoipa::path(post, path = "/api/sessions/{id}/stop", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn stop(parts: Data<Parts>, id: Named, key: Key) -> Answer {
    parts.wish(id.0, messages::Stop { key: key.0, reason: None }).await
}

impl Parts {
    pub(super) async fn session(&self, id: SessionId) -> Result<Addr<Session>, Failure> {
        Ok(self.directory.send(directory::Open { id }).await??)
    }

    /// A session as the journal has it. Its actor is not woken for that.
    pub(super) async fn snapshot(&self, id: SessionId) -> Result<Snapshot, Failure> {
        self.store.get(id).await?.ok_or_else(|| crate::store::StoreError::NoSession(id).into())
    }

    pub(super) fn view(&self, snapshot: &Snapshot) -> View {
        View::new(snapshot, frontend::attached(&self.census, snapshot.record.id))
    }

    async fn ask<M: Wanted>(&self, id: SessionId, message: M) -> Result<M::Result, Failure> {
        session::ask_or_next(async || self.session(id).await, message).await
    }

    async fn wish(&self, id: SessionId, wish: impl Wanted<Result = messages::Answer>) -> Answer {
        let accepted = self.ask(id, wish).await??;
        Ok(HttpResponse::Ok().json(Receipt::from(accepted)))
    }
}

impl From<Accepted> for Receipt {
    fn from(accepted: Accepted) -> Receipt {
        Receipt { seq: accepted.seq, state: accepted.state }
    }
}

//! Forks sessions: copies the conversation up to an event, and the files of that moment.
//!
//! The new session's record is marked as an unfinished fork until its last append. A fork that a
//! dead server left is removed at the next start. See docs/internals/fork.md.

use std::{collections::HashSet, path::PathBuf, sync::Arc, time::Duration};

use actix::{fut::LocalBoxActorFuture, prelude::*};
use greenroom_protocol::{observation::AgentState, repository::ForkOrigin};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};
use tracing::warn;

use super::{
    CreatedSession, Directory, SessionSlot, create::created, fork_point::ForkPointReader, purge, request_error,
    shutting_down,
};
use crate::{
    api_schema::FilledTextSchema,
    checkpoints::{CheckpointError, Checkpoints},
    clock,
    session::{RequestError, ServerSpending, TitleSchema, begin_fork, check_title, is_capturing, latest_of},
    store::{
        AppendBatch, CreateOutcome, ForkParent, JournalEvent, JournalUsage, LatestActivity, ReadLimit, Seq, SessionId,
        SessionRecord, Store, StoreError, UsageTotals,
        damage::read_past_damage,
        journal_copy::{CopyTarget, content_address, referenced_content},
    },
};

/// Part of the source's journal in memory at a time: 512 events or 1 MiB.
const READ_CHUNK: ReadLimit = ReadLimit { events: 512, bytes: 1 << 20 };

/// Longest wait for the capture of the turn that has just ended.
const CAPTURE_LIMIT: Duration = Duration::from_secs(30);
const CAPTURE_POLL: Duration = Duration::from_millis(50);

/// Checkpoint name of the present files.
const NOW: &str = "now";

/// Settings of a fork. Each field has a default.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// Newest event of the new session, outside of a turn. Default: the end of the newest ended
    /// turn.
    pub at: Option<Seq>,
    /// First message of the new session, which starts to work at once.
    #[schema(value_type = Option<FilledTextSchema>)]
    pub message: Option<String>,
    /// Title. Default: that of the other session.
    #[schema(value_type = Option<TitleSchema>)]
    pub title: Option<String>,
    /// Files that the workspace begins with. Default: `checkpoint`, or `none` without checkpoints.
    pub files: Option<ForkFiles>,
}

/// Files that the workspace of a fork begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ForkFiles {
    /// Files of the newest checkpoint at or before the event.
    Checkpoint,
    /// Present files of the other session.
    Now,
    /// No files.
    None,
}

/// Forks a session. With a `key` ([`super::idempotency_key`]) that was used before, returns the
/// session that the key created.
#[derive(Debug, Message)]
#[rtype(result = "Result<CreatedSession, ForkError>")]
pub struct Fork {
    pub from: SessionId,
    pub request: ForkRequest,
    pub key: Option<String>,
}

/// Reason for a failed fork. No trace of the new session is left.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("the files cannot be taken over: {0}; set `files` to `now` or `none`")]
    NoCheckpoint(#[source] CheckpointError),
    #[error("the files cannot be taken over: {0}")]
    Files(#[source] CheckpointError),
}

impl From<StoreError> for ForkError {
    fn from(error: StoreError) -> ForkError {
        request_error(&error).into()
    }
}

impl From<CheckpointError> for ForkError {
    fn from(error: CheckpointError) -> ForkError {
        match error {
            CheckpointError::NoCheckpoint(_) | CheckpointError::Damaged(_) => ForkError::NoCheckpoint(error),
            CheckpointError::NotOffered(reason) => {
                let text = format!("checkpoints are off: {reason}; set `files` to `none`");
                RequestError::BadArgs(text).into()
            }
            error => ForkError::Files(error),
        }
    }
}

impl ForkError {
    /// Returns the answer for requests that waited for the new session.
    fn to_request_error(&self) -> RequestError {
        match self {
            ForkError::Request(error) => error.clone(),
            ForkError::NoCheckpoint(_) | ForkError::Files(_) => RequestError::Unavailable(self.to_string()),
        }
    }
}

type ForkFuture = ResponseActFuture<Directory, Result<CreatedSession, ForkError>>;

impl Handler<Fork> for Directory {
    type Result = ForkFuture;

    fn handle(&mut self, fork: Fork, ctx: &mut Context<Directory>) -> Self::Result {
        self.entry.record_handled();
        match fork.key.as_ref().map_or(Ok(None), |key| self.keys.get(key)) {
            Err(error) => Box::pin(fut::ready(Err(error.into()))),
            Ok(Some(id)) => self.forked_before(id, fork, ctx),
            Ok(None) if self.closing => Box::pin(fut::ready(Err(shutting_down().into()))),
            Ok(None) if fork.key.is_some() && !self.keys.is_loaded() => {
                let (loaded, directory_addr) = (self.keys.wait_until_loaded(), ctx.address());
                let retried = async move {
                    loaded.await;
                    directory_addr.send(fork).await.unwrap_or_else(|_| Err(shutting_down().into()))
                };
                Box::pin(retried.into_actor(self))
            }
            Ok(None) => match check_fork(&fork.request).and_then(|()| self.start_limiter.admit(self.creating + 1)) {
                Err(error) => Box::pin(fut::ready(Err(error.into()))),
                Ok(()) => self.begin_fork(fork),
            },
        }
    }
}

fn check_fork(request: &ForkRequest) -> Result<(), RequestError> {
    check_title(request.title.as_deref())?;
    match &request.message {
        Some(message) if message.trim().is_empty() => {
            Err(RequestError::BadArgs("`message` is empty; leave it out, or write the message".to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

impl Directory {
    /// Returns the session that an earlier request with the key created.
    fn forked_before(&mut self, id: SessionId, fork: Fork, ctx: &mut Context<Directory>) -> ForkFuture {
        let (opened, directory_addr) = (self.open(id, ctx).into_actor(self), ctx.address());
        Box::pin(opened.then(move |opened, directory, _| match opened {
            // The session was purged while the keys of the last run were read. The key is free
            // again.
            Err(RequestError::NoSession(_)) => {
                directory.keys.forget(id);
                let retried =
                    async move { directory_addr.send(fork).await.unwrap_or_else(|_| Err(shutting_down().into())) };
                retried.into_actor(directory).boxed_local()
            }
            opened => async move { Ok(created(opened?, None, false).await?) }.into_actor(directory).boxed_local(),
        }))
    }

    fn begin_fork(&mut self, Fork { from, request, key }: Fork) -> ForkFuture {
        let id = self.threads.generate_key(None, SessionId::generate);
        self.keys.insert(key.clone(), id);
        // Requests for this session wait from now on for the actor that starts after the copy.
        self.slots.insert(id, SessionSlot::Opening(Vec::new()));
        self.creating += 1;
        let work = ForkWork {
            store: self.store.clone(),
            checkpoints: self.checkpoints.clone(),
            spending: self.sessions.spending.clone(),
            session_dirs: self.session_dirs.clone(),
            sandbox: self.sandbox.name(),
            from,
            id,
            request,
            key,
        };
        let (reply_to, copied) = oneshot::channel();
        let start = move || {
            actix::spawn(async move { drop(reply_to.send(work.run().await)) });
        };
        self.threads.run(self.threads.thread_of(&id), start);
        let copied = async move { copied.await.unwrap_or_else(|_| Err(shutting_down().into())) };
        Box::pin(copied.into_actor(self).then(move |copied, directory, ctx| directory.copied(id, copied, ctx)))
    }

    /// Starts the actor of a fork that is complete, or drops what a failed fork has left here.
    fn copied(
        &mut self,
        id: SessionId,
        copied: Result<(), ForkError>,
        ctx: &mut Context<Directory>,
    ) -> LocalBoxActorFuture<Directory, Result<CreatedSession, ForkError>> {
        self.creating -= 1;
        if let Err(error) = copied {
            self.keys.forget(id);
            self.opened(id, Err(error.to_request_error()), ctx);
            return fut::ready(Err(error)).boxed_local();
        }
        let (reply_to, opened) = oneshot::channel();
        if let Some(SessionSlot::Opening(waiting)) = self.slots.get_mut(&id) {
            waiting.push(reply_to);
        }
        self.start_session(id, ctx);
        async move { Ok(created(opened.await.unwrap_or_else(|_| Err(shutting_down()))?, None, true).await?) }
            .into_actor(self)
            .boxed_local()
    }

    /// Removes a fork that an earlier server did not complete.
    pub(super) fn remove_unfinished_fork(&self, id: SessionId) {
        let discarded = discard(
            self.store.clone(),
            self.checkpoints.clone(),
            self.sessions.spending.clone(),
            self.session_dirs.clone(),
            id,
        );
        actix::spawn(discarded);
    }
}

/// Removes all traces of an unfinished fork. A failure leaves them for the next start.
async fn discard(
    store: Arc<dyn Store>,
    checkpoints: Arc<Checkpoints>,
    spending: Arc<ServerSpending>,
    session_dirs: [PathBuf; 3],
    id: SessionId,
) {
    let removed = async {
        purge::remove_session_dirs(id, session_dirs).await?;
        checkpoints.purge(id).await
    };
    // The record is the last to go: it shows the next server that something may be left.
    let forgotten = match removed.await {
        Ok(()) => purge::claim_and_forget(store.as_ref(), spending, id).await,
        Err(e) => Err(StoreError::from(e)),
    };
    if let Err(e) = forgotten {
        warn!(session = %id, "could not remove an unfinished fork; the next start tries again: {e}");
    }
}

/// Copy of a session, outside of all actors.
struct ForkWork {
    store: Arc<dyn Store>,
    checkpoints: Arc<Checkpoints>,
    spending: Arc<ServerSpending>,
    session_dirs: [PathBuf; 3],
    sandbox: &'static str,
    from: SessionId,
    id: SessionId,
    request: ForkRequest,
    key: Option<String>,
}

/// Files that a fork begins with.
struct FilesOrigin {
    session: SessionId,
    checkpoint: String,
}

impl ForkWork {
    async fn run(self) -> Result<(), ForkError> {
        if !self.store.has_room_for_content() {
            let text = "the journal cannot be written: No space left on device: free space there";
            return Err(RequestError::Journal(text.to_owned()).into());
        }
        let source = self.store.get(self.from).await?.ok_or(StoreError::NoSession(self.from))?;
        let mut reader = ForkPointReader::new(self.request.at);
        let mut after = 0;
        'pages: while after < source.tail {
            let page = read_past_damage(&*self.store, self.from, after, READ_CHUNK).await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (seq, event) in page.iter().filter(|(seq, _)| *seq <= source.tail) {
                if reader.read(*seq, event) {
                    break 'pages;
                }
            }
        }
        let point = reader.finish()?;
        let files = self.files_origin(&source.record, point.at, point.checkpoint).await?;
        let checkpoint = files.as_ref().map(|files| files.checkpoint.clone());
        let origin = ForkOrigin { from: self.from.to_string(), at: point.at, checkpoint };
        let beginning = begin_fork(&source.record, origin, point.has_queue, self.request.message.clone())?;
        let record = self.record(&beginning.record, point.at);
        let unfinished = SessionRecord { state: AgentState::Starting, reason: None, ..record.clone() };
        match self.store.create(unfinished.into_unfinished_fork()).await? {
            CreateOutcome::Created(_) => {}
            CreateOutcome::Exists(_) => {
                let text = format!("session `{}` exists already; try again, for another id", self.id);
                return Err(RequestError::Unavailable(text).into());
            }
        }
        let copied = self.copy(point.at, files, beginning.events, record).await;
        if copied.is_err() {
            discard(self.store, self.checkpoints, self.spending, self.session_dirs, self.id).await;
        }
        copied
    }

    /// Returns the source of the files. `None`: the workspace begins empty.
    async fn files_origin(
        &self,
        source: &SessionRecord,
        at: Seq,
        checkpoint: String,
    ) -> Result<Option<FilesOrigin>, ForkError> {
        let offered = self.checkpoints.check_offered();
        let files = self.request.files.unwrap_or(match offered {
            Ok(()) => ForkFiles::Checkpoint,
            Err(_) => ForkFiles::None,
        });
        match files {
            ForkFiles::None => Ok(None),
            ForkFiles::Now => {
                offered?;
                Ok(Some(FilesOrigin { session: self.from, checkpoint: NOW.to_owned() }))
            }
            ForkFiles::Checkpoint => {
                offered?;
                // The checkpoints before a fork are those of its own source.
                let (mut session, mut parent) = (self.from, source.parent.clone());
                while let Some(ForkParent { id, .. }) = parent.filter(|parent| at <= parent.seq) {
                    session = id;
                    parent = self.store.get(id).await?.and_then(|snapshot| snapshot.record.parent);
                }
                self.until_captured(session, &checkpoint).await?;
                Ok(Some(FilesOrigin { session, checkpoint }))
            }
        }
    }

    /// Waits for a capture that has begun. The turn before it may have ended just now.
    async fn until_captured(&self, session: SessionId, checkpoint: &str) -> Result<(), ForkError> {
        let until = Instant::now() + CAPTURE_LIMIT;
        while let Some(snapshot) = self.store.get(session).await?
            && is_capturing(&snapshot.record, checkpoint)
            && Instant::now() < until
        {
            // The record may still name a capture that found no change.
            let listed = self.checkpoints.list(session).await;
            if listed.is_ok_and(|list| list.items.iter().any(|item| item.checkpoint == checkpoint)) {
                break;
            }
            sleep(CAPTURE_POLL).await;
        }
        Ok(())
    }

    /// Returns the record of the new session, without the parts that the copy determines.
    fn record(&self, source: &SessionRecord, at: Seq) -> SessionRecord {
        let now = clock::now();
        SessionRecord {
            id: self.id,
            title: self.request.title.clone().unwrap_or_else(|| source.title.clone()),
            sandbox: self.sandbox.to_owned(),
            sandbox_uid: None,
            created_at: now.clone(),
            updated_at: now,
            usage: UsageTotals { cost_usd: Some(0.0), ..UsageTotals::default() },
            budget_usd: self.spending.default_budget(),
            spent_on: None,
            reported_budget_usd: None,
            journal_usage: JournalUsage::default(),
            further_models: self.spending.further_models(&source.model),
            parent: Some(ForkParent { id: self.from, seq: at }),
            // Checkpoints leave `.git` out, so the workspace of a fork is no clone.
            repository: None,
            archived: false,
            latest: None,
            idempotency_key: self.key.clone(),
            ..source.clone()
        }
    }

    /// Writes files, events and contents, and last the record that completes the fork.
    async fn copy(
        &self,
        at: Seq,
        files: Option<FilesOrigin>,
        events: Vec<JournalEvent>,
        record: SessionRecord,
    ) -> Result<(), ForkError> {
        let (epoch, _) = self.store.claim(self.id).await?;
        let target = CopyTarget { store: &*self.store, session: self.id, epoch };
        if let Some(FilesOrigin { session, checkpoint }) = files {
            self.checkpoints.fork(session, &checkpoint, self.id).await?;
        }
        let (bytes, latest) = self.copy_events(target, at).await?;
        let journal_usage = JournalUsage { bytes, ..JournalUsage::default() };
        let record = SessionRecord { journal_usage, latest, ..record };
        let batch = AppendBatch { events, mark: None, record: Some(Arc::new(record)) };
        // One append, so that no reader finds a part of the beginning.
        let completed = self.store.append(self.id, epoch, at, batch).await;
        completed.map_err(|e| RequestError::Journal(e.to_string()))?;
        Ok(())
    }

    /// Copies the events up to `at` with their large contents. Returns the size of both in bytes.
    async fn copy_events(&self, target: CopyTarget<'_>, at: Seq) -> Result<(u64, Option<LatestActivity>), ForkError> {
        let contents = |session: SessionId| format!("/api/sessions/{session}/contents/");
        let (old, new) = (contents(self.from), contents(self.id));
        let (mut after, mut bytes, mut latest, mut copied) = (0, 0, None, HashSet::new());
        while after < at {
            let wanted = usize::try_from(at - after).unwrap_or(usize::MAX);
            let limit = ReadLimit { events: READ_CHUNK.events.min(wanted), ..READ_CHUNK };
            let page = read_past_damage(&*self.store, self.from, after, limit).await?;
            if page.is_empty() {
                return Err(StoreError::NoSession(self.from).into());
            }
            latest = latest_of(&page).or(latest);
            let mut events = Vec::with_capacity(page.len());
            for (_, event) in page {
                let address = content_address(&event.json).filter(|address| address.starts_with(&old));
                if address.is_some()
                    && let Some(name) = referenced_content(&event.json)
                    && copied.insert(name)
                {
                    bytes += target.copy_content(self.from, &name.to_string()).await?;
                }
                let event = address.map_or_else(|| event.clone(), |address| readdressed(&event, &address, &old, &new));
                bytes += event.json.len() as u64;
                events.push(event);
            }
            let batch = AppendBatch { events, ..AppendBatch::default() };
            let appended = target.append(after, batch).await;
            after = appended.map_err(|e| RequestError::Journal(e.to_string()))?;
        }
        Ok((bytes, latest))
    }
}

/// Returns the event with the address of its large content in the new session. All other bytes
/// stay.
fn readdressed(event: &JournalEvent, address: &str, old: &str, new: &str) -> JournalEvent {
    let moved = address.replacen(old, new, 1);
    let (from, to) = (format!("\"href\":\"{address}\""), format!("\"href\":\"{moved}\""));
    // The journal holds JSON, which is UTF-8.
    let json = String::from_utf8_lossy(&event.json).replace(&from, &to);
    JournalEvent { kind: event.kind.clone(), json: json.into() }
}

//! The Session actor: one live session. It hears wishes and reports, lets the rules of [`turn`] decide, writes down, tells.
//!
//! It knows no JSON of a client, no HTTP, no Docker and no socket. It waits for its store and for nothing else.

mod allowance;
mod asking;
mod audience;
mod commit;
mod decision;
mod handlers;
pub mod messages;
mod render;
mod reports;
#[cfg(test)]
mod stage;
mod turn;
mod usage;
mod view;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use actix::prelude::*;
use greenroom_protocol::{Body, Event, Seen as Saw, Source, link::Settings};
use tracing::{error, warn};

pub use self::{
    allowance::Allowance,
    asking::{Unanswered, Wanted, ask, ask_or_next},
    audience::{Listening, Look, Piece, Seen, Shared},
    reports::goes_with_others,
    turn::{Named, Refusal, digest_of},
    view::View,
};
use self::{
    commit::{OnTheWay, Pending, Reply},
    decision::{Decision, Draft, Ladder, Moment},
    messages::{Ending, Fell, LinkPort, Vanished, orders},
    turn::{Core, Input},
};
use crate::{
    census::{Census, Entry, Kind},
    clock,
    gateway::GatewayError,
    sandbox::Isolation,
    store::{Epoch, Limit, Mark, Memory, Record, Seq, SessionId, Snapshot, Store, damage::read_on},
};

/// How many characters of a task become a session's title.
const TITLE: usize = 80;

/// How long a title that somebody gives may be, in characters, and any other name, in bytes: each of them is in every list, and
/// in memory as long as its session is known.
const LONGEST_TITLE: usize = 200;
const LONGEST_NAME: usize = 1024;

/// Makes the link of a session, on the thread that the session runs on.
pub type MakeLink = dyn Fn(Addr<Session>, SessionId, Arc<Allowance>) -> LinkPort + Send + Sync;

/// Whether a session may work with the model of this name.
pub type MayUse = dyn Fn(&str) -> Result<(), GatewayError> + Send + Sync;

/// What every session of this process shares.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub census: Census,
    pub link: Box<MakeLink>,
    /// What an agent works with, for a session of this record.
    pub settings: Box<dyn Fn(&Record) -> Settings + Send + Sync>,
    pub may_use: Box<MayUse>,
    /// Told when a session's actor is gone.
    pub fell: Recipient<Fell>,
}

/// One live session.
pub struct Session {
    id: SessionId,
    parts: Arc<Parts>,
    entry: Entry,
    /// Guards every append: another owner makes it stale.
    epoch: Epoch,
    /// As decided; the journal has it, this very one, once all that is pending is on disk.
    record: Arc<Record>,
    core: Core,
    /// The core may not be as the record has it.
    core_changed: bool,
    /// Something else of the record changed since it was written.
    record_changed: bool,
    /// The newest event that is decided.
    tail: Seq,
    /// The newest report of the agent that is decided.
    mark: Option<Mark>,
    /// The newest report of the agent that is on disk.
    durable_mark: Option<Mark>,
    /// Decisions on their way to disk, oldest first. Bounded by what the link and the clients may have under way.
    pending: VecDeque<Pending>,
    on_the_way: OnTheWay,
    shared: Arc<Shared>,
    /// Actions whose result has not come: item → seq.
    causes: HashMap<String, Seq>,
    /// Whether the model may be called; the gateway asks it.
    allowance: Arc<Allowance>,
    /// Orders go here. Made when the first sandbox is wanted.
    link: Option<LinkPort>,
    /// Orders to take the sandbox away that the link has not carried out yet.
    kills: orders::UnderWay,
    ladder: Option<SpawnHandle>,
    /// What the provider said last, to explain a turn that failed.
    provider_said: Option<String>,
    /// When somebody last asked for something, or the agent last did something. It does not jump when the wall clock does.
    active: Instant,
    /// How it ended, for whoever keeps its address.
    ending: Ending,
}

impl Session {
    /// Starts the actor of a session that this process has claimed, on the current thread.
    ///
    /// `after` says how the last actor of it ended, where this one takes its place.
    ///
    /// # Errors
    /// [`Refusal::Unreadable`]: what it remembers cannot be read.
    pub fn start_from(
        parts: Arc<Parts>,
        epoch: Epoch,
        snapshot: Snapshot,
        after: Option<Ending>,
    ) -> Result<Addr<Session>, Refusal> {
        let Snapshot { record, tail, mark, .. } = snapshot;
        let core: Option<Core> = serde_json::from_str(record.core.as_str()).map_err(|e| {
            let id = record.id;
            // Where nobody is to go on with it, as amid an import, it remembers why.
            let why: Result<String, _> = serde_json::from_str(record.core.as_str());
            let why = why.unwrap_or_else(|_| {
                format!("another version of Greenroom wrote it ({e}); start that one, or a newer one, on this journal")
            });
            Refusal::Unreadable(format!("session `{id}` cannot go on: {why}"))
        })?;
        let core = core.unwrap_or_default();
        let entry = parts.census.register(Kind::Session, Some(record.id.to_string()));
        let shared = Arc::new(Shared::default());
        shared.publish(tail, &[]);
        let session = Session {
            id: record.id,
            parts,
            entry,
            epoch,
            core_changed: false,
            record_changed: false,
            core,
            tail,
            durable_mark: mark.clone(),
            mark,
            pending: VecDeque::new(),
            on_the_way: OnTheWay::default(),
            shared,
            causes: HashMap::new(),
            allowance: Arc::new(Allowance::new(record.budget_usd)),
            link: None,
            kills: orders::UnderWay::default(),
            ladder: None,
            provider_said: None,
            active: Instant::now(),
            ending: Ending::Panicked,
            record: Arc::new(record),
        };
        Ok(Session::create(|ctx| {
            ctx.set_mailbox_capacity(256);
            session.take_up(after, ctx);
            session
        }))
    }

    /// Goes on where the journal ends.
    fn take_up(&self, after: Option<Ending>, ctx: &mut Context<Session>) {
        let (store, id, began) = (self.parts.store.clone(), self.id, self.core.turn_began());
        let mut causes: HashMap<_, _> = self.core.causes_of_acts().collect();
        let unfinished = async move {
            let Some(began) = began else { return causes };
            let mut after = began - 1;
            loop {
                let page = match read_on(&*store, id, after, Limit { events: 512, bytes: 1 << 20 }).await {
                    Ok(page) => page,
                    Err(e) => {
                        warn!(session = %id, "the running turn's events cannot be read: {e}");
                        return causes;
                    }
                };
                let Some((last, _)) = page.last() else { return causes };
                after = *last;
                for event in page.iter().filter_map(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok()) {
                    render::follow(&mut causes, event.seq, event.item.as_deref(), &event.body);
                }
            }
        };
        ctx.wait(unfinished.into_actor(self).map(move |causes, session, ctx| {
            session.causes = causes;
            session.begin(after, ctx);
        }));
    }

    fn begin(&mut self, after: Option<Ending>, ctx: &mut Context<Session>) {
        self.say_how_it_is();
        let new = self.tail == 0;
        if after == Some(Ending::Panicked) {
            self.note(
                Saw::Error {
                    code: "session_restarted".to_owned(),
                    detail: "the session met an internal error and was brought back from its journal".to_owned(),
                },
                Vec::new(),
                ctx,
            );
        }
        if new {
            self.take(Input::Born, ctx);
            return;
        }
        if let Some(ladder) = self.core.ladder() {
            self.set_ladder(ladder, ctx);
        }
        if self.core.wants_sandbox() {
            let raise = orders::Raise { image: self.record.image.clone(), was: self.core.sandbox_was() };
            self.link(ctx).raise.do_send(raise);
        }
    }

    /// Lets the rules decide about what befell the session; nobody waits for the outcome.
    fn take(&mut self, input: Input, ctx: &mut Context<Session>) {
        if let Err(refusal) = self.decide(input).map(|decision| self.commit(decision, None, Vec::new(), ctx)) {
            // Only wishes can be refused, and those have somebody who waits.
            error!(session = %self.id, "an event was refused: {refusal}");
        }
    }

    fn decide(&mut self, input: Input) -> Result<Decision, Refusal> {
        if let Input::SetModel { settings, title } = &input {
            fits("model", &settings.model)?;
            fits_title(title.as_deref())?;
        }
        let open = self.shared.open();
        let now_ms = clock::now_ms();
        let record = self.record_after(&input);
        self.core_changed = true;
        let decision = self.core.decide(input, Moment { tail: self.tail, now_ms, open: &open })?;
        if let Some(record) = record {
            self.record = Arc::new(record);
            self.record_changed = true;
        }
        Ok(decision)
    }

    /// The record as it is once the rules have taken `input`, where that changes more of it than its core.
    fn record_after(&self, input: &Input) -> Option<Record> {
        match input {
            Input::SetModel { settings, title } => {
                let mut record = Record { model: settings.model.clone(), ..Record::clone(&self.record) };
                record.title = title.clone().unwrap_or(record.title);
                Some(record)
            }
            Input::Start { task: text } | Input::Message { content: text, .. } if self.record.title.is_empty() => {
                let title = text.trim().lines().next().unwrap_or_default().chars().take(TITLE).collect();
                Some(Record { title, ..Record::clone(&self.record) })
            }
            Input::Phased { isolation: Some(Isolation { driver, .. }), .. } if self.record.sandbox != *driver => {
                Some(Record { sandbox: (*driver).to_owned(), ..Record::clone(&self.record) })
            }
            _ => None,
        }
    }

    /// Writes down something that the rules need not know of.
    fn note(&mut self, seen: Saw, replies: Vec<Reply>, ctx: &mut Context<Session>) {
        let body: Body = greenroom_protocol::Observation { seen, content: String::new() }.into();
        self.note_draft(Draft { source: Source::Server, cause: None, item: None, body }, None, replies, ctx);
    }

    fn set_ladder(&mut self, ladder: Ladder, ctx: &mut Context<Session>) {
        if let Some(armed) = self.ladder.take() {
            ctx.cancel_future(armed);
        }
        if let Ladder::Arm(ms) = ladder {
            let due = |session: &mut Session, ctx: &mut Context<Session>| {
                session.ladder = None;
                session.take(Input::LadderDue, ctx);
            };
            self.ladder = Some(ctx.run_later(std::time::Duration::from_millis(ms), due));
        }
    }

    fn link(&mut self, ctx: &mut Context<Session>) -> &LinkPort {
        let (parts, id, allowance) = (&self.parts, self.id, &self.allowance);
        self.link.get_or_insert_with(|| (parts.link)(ctx.address(), id, allowance.clone()))
    }

    /// The record is as it is decided; the journal has it a moment later.
    fn view(&self) -> View {
        let tail = self.shared.tail();
        let snapshot = Snapshot { record: Record::clone(&self.record), revision: 0, tail, mark: None };
        View::new(&snapshot, self.shared.listeners())
    }

    fn say_how_it_is(&self) {
        self.entry.state(self.core.state().name());
        self.allowance.follow(self.core.state(), &self.record.usage);
    }
}

/// What a new session remembers from the start: the wish that made it, where a client gave that a name.
pub fn memory_of(named: Option<Named>) -> Memory {
    named.map_or_else(Memory::default, |named| {
        let mut core = Core::default();
        core.remember(named, None);
        core.to_memory()
    })
}

/// Where the turn began that a session of this record is in; `None` where it is in none, or another version wrote the record.
pub fn turn_began(record: &Record) -> Option<Seq> {
    serde_json::from_str::<Option<Core>>(record.core.as_str()).ok()??.turn_began()
}

/// Whether a title is short enough.
pub fn fits_title(title: Option<&str>) -> Result<(), Refusal> {
    match title.map_or(0, |title| title.chars().count()) {
        0..=LONGEST_TITLE => Ok(()),
        count => Err(Refusal::BadArgs(format!("`title` has {count} characters; it may have {LONGEST_TITLE}"))),
    }
}

/// Whether the name that is given for `what` is short enough.
pub fn fits(what: &str, name: &str) -> Result<(), Refusal> {
    match name.len() {
        0..=LONGEST_NAME => Ok(()),
        bytes => Err(Refusal::BadArgs(format!("`{what}` has {bytes} bytes; it may have {LONGEST_NAME}"))),
    }
}

impl Actor for Session {
    type Context = Context<Session>;
}

impl Handler<Vanished> for Session {
    type Result = ();

    fn handle(&mut self, _: Vanished, ctx: &mut Context<Session>) {
        self.ending = Ending::AtRest;
        ctx.stop();
    }
}

impl Drop for Session {
    /// Whatever it died of: listeners look for the session again, and the Directory learns that the address is stale.
    fn drop(&mut self) {
        self.shared.close();
        self.parts.fell.do_send(Fell { id: self.id, how: self.ending });
    }
}

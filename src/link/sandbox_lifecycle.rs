//! Bringing a sandbox up, and staying with it until it is gone.

use std::{
    future::poll_fn,
    io,
    path::Path,
    rc::Rc,
    sync::{Arc, PoisonError},
    task::Poll,
    time::Duration,
};

use actix::WeakAddr;
use futures::FutureExt;
use greenroom_protocol::observation::Phase;
use tokio::{
    net::UnixStream,
    sync::{Mutex, mpsc},
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::{debug, warn};

use super::{
    Egress, Frozen, Parts,
    conversation::{Broken, Progress, converse},
};
use crate::{
    census::Entry,
    sandbox::{Exit, Isolation, Presence, RunDir, Sandbox, SandboxError, Spec, own_dir},
    session::{
        Session,
        messages::{
            Phased,
            orders::{Deliver, Was},
        },
    },
    store::SessionId,
    wakeups::WhenWoken,
};

/// How long an agent has from the start of its sandbox until it answers. Time in which it stands frozen does not count.
const ANSWER: Duration = Duration::from_secs(30);
/// How exactly that is counted.
const ANSWER_STEP: Duration = Duration::from_millis(500);
/// How often a sandbox is started again whose agent ends before it has ever answered.
const TRIES: u32 = 4;
/// The first wait between two such starts; it grows fourfold.
const BACKOFF: Duration = Duration::from_millis(200);
/// How often the socket is tried at first while the agent comes up, and how soon one is dialled again that was cut.
const DIAL_EVERY: Duration = Duration::from_millis(4);
/// How long it takes until another dial at most, where nobody listens, or where connections come to nothing: each wait for such is
/// twice the one before.
const DIAL_AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// How long it takes at most until a driver is asked again that did not answer.
const DRIVER_AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// How often pull progress is shown.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Everything that is needed to stay with one sandbox.
pub(super) struct Attendance {
    pub(super) id: SessionId,
    pub(super) session: WeakAddr<Session>,
    pub(super) parts: Arc<Parts>,
    pub(super) run: RunDir,
    pub(super) egress: Arc<Egress>,
    pub(super) image: String,
    pub(super) frozen: Arc<Frozen>,
    /// Where the link's state is shown.
    pub(super) entry: Arc<Entry>,
    /// Held for as long as the driver starts the sandbox, also when nobody attends any more.
    pub(super) starting: Arc<Mutex<()>>,
}

/// How it ended.
pub(super) enum Gone {
    /// It ran, and died.
    Died(Exit),
    /// It did not come up, or nobody in it could be spoken with.
    NeverCame { why: String, stderr_tail: Option<String> },
    /// The session's actor is not there any more. The sandbox goes on without it.
    SessionLeft,
}

/// What ends the attempts to speak with an agent.
enum End {
    Died(Result<Exit, SandboxError>),
    /// It has not introduced itself within [`ANSWER`].
    Silent,
}

/// How far one start came.
enum Came {
    Up(Exit),
    /// The agent ended before it had ever answered.
    Crashed(Exit),
    Never(Gone),
}

/// Whose start it is that a sandbox runs by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Started {
    Now,
    /// It was up, as the journal says. By now it may have ended, which is then heard at once.
    Before,
}

/// Why a sandbox was not started.
enum NotStarted {
    /// Whether it runs already was not told.
    Unknown(SandboxError),
    Failed(SandboxError),
}

impl From<SandboxError> for NotStarted {
    fn from(error: SandboxError) -> NotStarted {
        NotStarted::Failed(error)
    }
}

fn unprepared(source: io::Error) -> NotStarted {
    NotStarted::Failed(SandboxError::Io { what: "prepare its directories", source: Arc::new(source) })
}

fn failed(detail: String) -> NotStarted {
    NotStarted::Failed(SandboxError::Failed { what: "start", detail })
}

impl Attendance {
    /// Starts the sandbox, dials its agent, speaks with it over as many connections as it takes, and returns when there is
    /// nobody left to speak with. (Boxed: a future keeps what it is given twice, and there is one for each session that lives.)
    pub(super) async fn attend(self: Box<Self>, mut was: Was, mut commands: mpsc::UnboundedReceiver<Deliver>) -> Gone {
        let mut wait = BACKOFF;
        for attempt in 1.. {
            match self.once(was, &mut commands).await {
                Came::Up(exit) => return Gone::Died(exit),
                Came::Never(gone) => return gone,
                Came::Crashed(exit) if attempt == TRIES => return crashed(exit),
                Came::Crashed(exit) => {
                    debug!(session = %self.id, attempt, ?exit, "the agent ended before it answered; starting it again");
                    sleep(wait).await;
                    (was, wait) = (Was::Down, wait * 4);
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn once(&self, was: Was, commands: &mut mpsc::UnboundedReceiver<Deliver>) -> Came {
        self.entry.state("starting the sandbox");
        let started = match self.start_patiently(was).await {
            Ok(started) => started,
            Err(e) => return Came::Never(Gone::NeverCame { why: e.to_string(), stderr_tail: None }),
        };
        let sandbox = self.parts.sandbox.clone();
        let mut death = sandbox.wait(self.id);
        let progress = Rc::new(Progress::default());
        // Not in this future, and let go of with the first word: there is one of those for each session that lives.
        let mut patience = Some(actix::spawn(patience(self.frozen.clone(), progress.clone())));
        let mut silence = poll_fn(|cx| {
            if progress.answered.get() {
                patience = None;
            }
            patience.as_mut().map_or(Poll::Pending, |patience| patience.poll_unpin(cx).map(|_over| ()))
        });
        let mut watch = WhenWoken::default();
        let mut end = poll_fn(|cx| {
            watch.poll(cx, |cx| match death.poll_unpin(cx) {
                Poll::Ready(exit) => Poll::Ready(End::Died(exit)),
                Poll::Pending => silence.poll_unpin(cx).map(|()| End::Silent),
            })
        });
        let mut wait = Duration::ZERO;
        loop {
            self.entry.state("dialling");
            let stream = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                stream = self.dial(wait) => stream,
            };
            self.entry.state("connected");
            let since = Instant::now();
            let broken = tokio::select! {
                end = &mut end => return self.ended(end, started, &progress).await,
                broken = converse(
                    self.id, stream, &self.session, &self.parts.store, commands, &progress, &self.frozen,
                ) => broken,
            };
            match broken {
                Broken::Cut(why) => debug!(session = %self.id, "the link was cut: {why}"),
                Broken::SessionLeft => return Came::Never(Gone::SessionLeft),
                Broken::Silent => {
                    let why = "the agent stood still: it said nothing for a minute, not even when it was asked";
                    return Came::Never(self.said_nothing(why).await);
                }
                Broken::Nonsense(why) => {
                    warn!(session = %self.id, "the agent does not speak the link: {why}");
                    let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
                    let why = format!("the agent does not speak the link's protocol: {why}");
                    return Came::Never(Gone::NeverCame { why, stderr_tail: None });
                }
            }
            let came_to_something = progress.came_to_something.get() || since.elapsed() >= DIAL_AT_LEAST_EVERY;
            wait = if came_to_something { DIAL_EVERY } else { (wait * 2).clamp(DIAL_EVERY, DIAL_AT_LEAST_EVERY) };
        }
    }

    /// What is up, as the journal says, may work on while its driver does not say how it stands: then that is waited for. To call
    /// it failed would be to end it.
    async fn start_patiently(&self, was: Was) -> Result<Started, SandboxError> {
        let mut wait = BACKOFF;
        loop {
            match self.start(was).await {
                Err(NotStarted::Unknown(e)) if was != Was::Down && e.tells_nothing() => {
                    self.entry.state("waiting for the driver");
                    if wait == BACKOFF {
                        say(&self.session, Phase::Connecting, &e.to_string(), None);
                    }
                    sleep(wait).await;
                    wait = (wait * 4).min(DRIVER_AT_LEAST_EVERY);
                }
                Err(NotStarted::Unknown(e) | NotStarted::Failed(e)) => return Err(e),
                Ok(started) => return Ok(started),
            }
        }
    }

    /// Puts the sandbox on its feet. What is fetched for that takes long: meanwhile no place is taken, no removal waits, and
    /// whoever stops attending breaks it off.
    async fn start(&self, was: Was) -> Result<Started, NotStarted> {
        match self.start_here(was).await {
            Err(NotStarted::Failed(SandboxError::NoImage { .. })) => {}
            other => return other,
        }
        self.entry.state("fetching the image");
        let Parts { sandbox, starting, .. } = &*self.parts;
        // A registry is asked once for what many sessions want.
        let turn = starting.turn_of_image(&self.image);
        let one_at_a_time = match turn.try_lock() {
            Ok(free) => free,
            Err(_) => {
                let free = starting.beside(turn.lock()).await;
                match self.start_here(was).await {
                    // Whoever had it before came to nothing.
                    Err(NotStarted::Failed(SandboxError::NoImage { .. })) => free,
                    other => return other,
                }
            }
        };
        starting.beside(sandbox.fetch(&self.image, &self.told())).await?;
        drop(one_at_a_time);
        self.entry.state("starting the sandbox");
        self.start_here(was).await
    }

    /// The start itself is a task of its own: whoever stops attending in the middle of it does not leave half a sandbox.
    async fn start_here(&self, was: Was) -> Result<Started, NotStarted> {
        let under_way = self.starting.clone().lock_owned().await;
        let Parts { sandbox, starting, .. } = &*self.parts;
        let mut place = None;
        let mut is_there = false;
        if was != Was::Down {
            // It works on while others start, which may take long: its model's way out is not to wait in their queue, and neither
            // are its clients. What it needs is there already, so this takes no time.
            self.prepare()().map_err(unprepared)?;
            place = starting.look().await;
            is_there = sandbox.presence(self.id).await.map_err(NotStarted::Unknown)?.is_some();
        }
        if !is_there {
            place = starting.place().await;
            if was == Was::Down {
                starting.until_quiet().await;
            }
        }
        if place.is_none() {
            return Err(failed("the server is shutting down".to_owned()));
        }
        let (prepare, progress) = (self.prepare(), self.told());
        let (sandbox, frozen, id) = (sandbox.clone(), self.frozen.clone(), self.id);
        let started = tokio::spawn(async move {
            let _until_it_is_over = (place, under_way);
            if !is_there {
                // The disk may take its time, or hang: nobody else who lives on this thread is to wait for that.
                let spec = spawn_blocking(prepare).await.unwrap_or_else(|e| Err(io::Error::other(e)));
                let spec = spec.map_err(unprepared)?;
                if was == Was::Down
                    && let Some(Presence::Running | Presence::Frozen) =
                        sandbox.presence(id).await.map_err(NotStarted::Unknown)?
                {
                    // It was to be taken away, and whoever was to do that came to nothing. Its agent may still be at what the
                    // journal says is over.
                    sandbox.stop(id).await?;
                }
                sandbox.start(&spec, &progress).await?;
            }
            as_wanted(&*sandbox, id, &frozen).await;
            Ok(if is_there { Started::Before } else { Started::Now })
        });
        started.await.unwrap_or_else(|e| Err(failed(e.to_string())))
    }

    /// Tells the session of each step that a person is to see.
    fn told(&self) -> impl Fn(Phase, &str) + Send + Sync + 'static {
        let (sandbox, session) = (self.parts.sandbox.clone(), self.session.clone());
        let last = std::sync::Mutex::new(None::<Instant>);
        move |phase, detail| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            match phase {
                // Of one that runs already nothing is said: it is not started.
                Phase::Starting => {
                    let isolation = Isolation { driver: sandbox.name(), words: sandbox.isolation() };
                    say(&session, phase, detail, Some(isolation));
                }
                Phase::Pulling if last.is_none_or(|last| last.elapsed() >= PROGRESS_EVERY) => {
                    *last = Some(Instant::now());
                    say(&session, phase, detail, None);
                }
                _ => {}
            }
        }
    }

    /// Makes what has to be there before the sandbox is, and what was there already stays.
    fn prepare(&self) -> impl FnOnce() -> io::Result<Spec> + Send + 'static {
        let (id, parts, egress) = (self.id, self.parts.clone(), self.egress.clone());
        let (run, image) = (self.run.clone(), self.image.clone());
        move || {
            let Parts { gateway, places, volumes, uid, gid, limits, network, .. } = &*parts;
            let at = |path: &Path| {
                let path = path.display().to_string();
                move |e: io::Error| io::Error::new(e.kind(), format!("`{path}`: {e}"))
            };
            run.prepare(*uid, *gid).map_err(at(run.root()))?;
            egress.open(gateway, || run.bind_gateway()).map_err(at(run.root()))?;
            Ok(Spec {
                session: id,
                image,
                agent: places.agent.clone(),
                workspace: places.workspaces.of(id).map_err(at(&places.workspaces.below))?,
                home: own_dir(&places.homes, id, *uid, *gid).map_err(at(&places.homes))?,
                volumes: volumes.clone(),
                uid: *uid,
                gid: *gid,
                limits: *limits,
                network: network.clone(),
                run,
            })
        }
    }

    /// A connection to the agent, not before so long, and however long it takes.
    async fn dial(&self, wait: Duration) -> UnixStream {
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let mut waited = Duration::ZERO;
        loop {
            self.frozen.until_thawed().await;
            match self.run.dial_agent().await {
                Ok(stream) => return stream,
                Err(_) => {
                    let step = until_dialled_again(waited);
                    sleep(step).await;
                    waited += step;
                }
            }
        }
    }

    async fn ended(&self, end: End, started: Started, progress: &Progress) -> Came {
        match end {
            End::Died(exit) => died(exit, started, progress),
            End::Silent => {
                let why = format!("the agent did not answer within {} s", ANSWER.as_secs());
                Came::Never(self.said_nothing(&why).await)
            }
        }
    }

    async fn said_nothing(&self, why: &str) -> Gone {
        warn!(session = %self.id, "{why}");
        let logs = self.parts.sandbox.logs(self.id, 4096).await.ok();
        let _the_session_fails_anyway = self.parts.sandbox.stop(self.id).await;
        Gone::NeverCame { why: why.to_owned(), stderr_tail: logs }
    }
}

/// A sixteenth of what it has waited already: who comes up is found at once, and who does not listen costs next to nothing.
pub(super) fn until_dialled_again(waited: Duration) -> Duration {
    (waited / 16).clamp(DIAL_EVERY, DIAL_AT_LEAST_EVERY)
}

fn died(exit: Result<Exit, SandboxError>, started: Started, progress: &Progress) -> Came {
    let exit = exit.unwrap_or_else(|e| Exit { code: None, out_of_memory: false, stderr_tail: e.to_string() });
    match started {
        Started::Now if !progress.answered.get() => Came::Crashed(exit),
        Started::Now | Started::Before => Came::Up(exit),
    }
}

/// Ends when an agent has let its time pass without a word, be it that nobody listens or that it takes the connection and says
/// nothing; or when it has introduced itself, after which only its death ends the trying.
async fn patience(frozen: Arc<Frozen>, progress: Rc<Progress>) {
    let mut left = ANSWER;
    while !left.is_zero() && !progress.answered.get() {
        frozen.until_thawed().await;
        sleep(ANSWER_STEP).await;
        left = left.saturating_sub(ANSWER_STEP);
    }
}

/// Freezes or thaws a sandbox, which may have stood there already: a server that was killed between writing an order down and
/// giving it left it as it was before. Whoever is ordered to meanwhile has the last word.
async fn as_wanted(sandbox: &dyn Sandbox, id: SessionId, frozen: &Frozen) {
    loop {
        let wanted = frozen.is();
        let done = if wanted { sandbox.freeze(id).await } else { sandbox.thaw(id).await };
        if let Err(e) = done {
            // It may have ended by now, which is noticed elsewhere.
            debug!(session = %id, "the sandbox is not as it should be: {e}");
        }
        if frozen.is() == wanted {
            return;
        }
    }
}

fn say(session: &WeakAddr<Session>, phase: Phase, detail: &str, isolation: Option<Isolation>) {
    if let Some(session) = session.upgrade() {
        session.do_send(Phased { phase, detail: detail.to_owned(), isolation });
    }
}

fn crashed(exit: Exit) -> Gone {
    let code = exit.code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
    let memory = if exit.out_of_memory { ", out of memory" } else { "" };
    let why = format!("the agent ended at once, {TRIES} times in a row ({code}{memory})");
    Gone::NeverCame { why, stderr_tail: Some(exit.stderr_tail) }
}

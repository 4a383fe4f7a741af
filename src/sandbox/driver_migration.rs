//! Two drivers as one, for a server that is started with another than the one before it.
//!
//! What runs goes on where it runs; what is started is started by the chosen driver, once the former has nothing left of that
//! session. So no session is ever in two sandboxes, and none loses its work because somebody chose anew.
//!
//! Where a session was last is written down before it is there: as a file `<traces>/<place>/<session>` without content, which
//! goes with the sandbox. The journal will not do, because a driver is asked about what no session owns, too.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tracing::{info, warn};

use super::{Exit, Found, Presence, Progress, Sandbox, SandboxError, Spec, Stats};
use crate::store::SessionId;

#[cfg(test)]
mod tests;

/// How long a former driver that could not be reached is not tried again, from the beginning of the attempt. Many sessions ask
/// at once, and each attempt may take seconds.
const TRIED_AGAIN: Duration = Duration::from_secs(10);

type Reached = Result<Arc<dyn Sandbox>, SandboxError>;

/// Finds the former driver, whose engine may not be there.
pub type Reach = Box<dyn Fn() -> BoxFuture<'static, Reached> + Send + Sync>;

/// See the [module](self).
pub struct Succession {
    chosen: Arc<dyn Sandbox>,
    /// The [place](Sandbox::place) of the chosen one.
    here: String,
    former: Former,
    traces: Traces,
    /// The sessions that were last somewhere else, and where.
    elsewhere: Mutex<HashMap<SessionId, Arc<str>>>,
}

/// The other driver. Not reached before a session asks for it: most servers never need a second one.
struct Former {
    reach: Reach,
    last: Mutex<Option<Attempt>>,
}

/// One for all who ask meanwhile.
struct Attempt {
    began: Instant,
    reached: Shared<BoxFuture<'static, Reached>>,
}

impl Former {
    fn reach(&self) -> Shared<BoxFuture<'static, Reached>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |last: &&Attempt| match last.reached.peek() {
            Some(Err(_)) => last.began.elapsed() < TRIED_AGAIN,
            Some(Ok(_)) | None => true,
        };
        if let Some(attempt) = last.as_ref().filter(counts) {
            return attempt.reached.clone();
        }
        let reached = (self.reach)().shared();
        *last = Some(Attempt { began: Instant::now(), reached: reached.clone() });
        reached
    }
}

impl Succession {
    /// `former` reaches the other driver.
    pub fn new(chosen: Arc<dyn Sandbox>, former: Reach, traces: Traces) -> Result<Succession, SandboxError> {
        let here = chosen.place();
        let mut elsewhere = HashMap::new();
        for place in traces.places().map_err(failed)? {
            if *place == here {
                continue;
            }
            let there = traces.of(&place).map_err(failed)?;
            if !there.is_empty() {
                info!(
                    "{} sessions were last at `{place}`: what runs goes on there, what starts, starts at `{here}`",
                    there.len()
                );
            }
            elsewhere.extend(there.into_iter().map(|session| (session, place.clone())));
        }
        let former = Former { reach: former, last: Mutex::default() };
        Ok(Succession { chosen, here, former, traces, elsewhere: Mutex::new(elsewhere) })
    }

    /// Where a session is, if it is not here.
    fn elsewhere(&self, session: SessionId) -> Option<Arc<str>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// The driver that has the sandbox of a session, or will have it.
    async fn of(&self, session: SessionId) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let Some(place) = self.elsewhere(session) else { return Ok(self.chosen.clone()) };
        match self.former.reach().await {
            Ok(former) if former.place() == *place => Ok(former),
            Ok(former) => {
                let why = format!("what can be asked is `{}` and `{}`", self.here, former.place());
                Err(self.unknown(session, &place, why))
            }
            Err(SandboxError::NoEngine { address, detail }) => {
                Err(self.unknown(session, &place, format!("no engine answers at {address}: {detail}")))
            }
            Err(other) => Err(self.unknown(session, &place, other.to_string())),
        }
    }

    fn unknown(&self, session: SessionId, place: &str, why: String) -> SandboxError {
        let trace = self.traces.path(place, session);
        SandboxError::Elsewhere { session, place: place.to_owned(), why, trace }
    }

    /// Makes a session's place this one, if it has nothing elsewhere that runs. Whether it has not.
    async fn take_over(&self, session: SessionId) -> Result<bool, SandboxError> {
        let before = self.elsewhere(session);
        if before.is_some() {
            let former = self.of(session).await?;
            if let Some(Presence::Running | Presence::Frozen) = former.presence(session).await? {
                return Ok(false);
            }
            former.remove(session).await?;
        }
        self.traces.hand_over(session, before.as_deref(), &self.here).map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(true)
    }

    async fn list_former(&self) -> Result<Vec<Found>, SandboxError> {
        let former = self.former.reach().await?;
        let (place, mut found) = (former.place(), former.list().await?);
        found.retain(|found| self.elsewhere(found.session).is_some_and(|there| *there == place));
        Ok(found)
    }
}

#[async_trait]
impl Sandbox for Succession {
    fn name(&self) -> &'static str {
        self.chosen.name()
    }

    fn place(&self) -> String {
        self.here.clone()
    }

    fn isolation(&self) -> String {
        self.chosen.isolation()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.chosen.check().await
    }

    async fn start(&self, spec: &Spec, progress: Progress<'_>) -> Result<(), SandboxError> {
        match self.take_over(spec.session).await? {
            true => self.chosen.start(spec, progress).await,
            false => Ok(()),
        }
    }

    async fn fetch(&self, image: &str, progress: Progress<'_>) -> Result<(), SandboxError> {
        self.chosen.fetch(image, progress).await
    }

    async fn freeze(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of(session).await?.freeze(session).await
    }

    async fn thaw(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of(session).await?.thaw(session).await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of(session).await?.stop(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        self.of(session).await?.remove(session).await?;
        let before = self.elsewhere(session);
        self.traces.forget(session, [before.as_deref().unwrap_or(&self.here), &self.here]).map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(())
    }

    async fn presence(&self, session: SessionId) -> Result<Option<Presence>, SandboxError> {
        let presence = self.of(session).await?.presence(session).await?;
        if presence.is_some() && self.elsewhere(session).is_none() {
            // It may have been started before there were traces. That it is there is known all the same.
            if let Err(why) = self.traces.hand_over(session, None, &self.here) {
                warn!(%session, "it cannot be noted where the sandbox runs: {why}");
            }
        }
        Ok(presence)
    }

    async fn wait(&self, session: SessionId) -> Result<Exit, SandboxError> {
        self.of(session).await?.wait(session).await
    }

    /// What is elsewhere is missing while it cannot be reached: what is here is looked after all the same.
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        let mut found = self.chosen.list().await?;
        let count = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).len();
        if count > 0 {
            match self.list_former().await {
                Ok(former) => found.extend(former),
                Err(e) => warn!("the sandboxes of {count} sessions that were last elsewhere cannot be seen: {e}"),
            }
        }
        Ok(found)
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        self.of(session).await?.logs(session, bytes).await
    }

    async fn stats(&self, session: SessionId) -> Result<Stats, SandboxError> {
        self.of(session).await?.stats(session).await
    }
}

/// Where each session was last.
#[derive(Debug, Clone)]
pub struct Traces(PathBuf);

impl Traces {
    /// In a directory of this node's own.
    pub fn below(dir: PathBuf) -> Traces {
        Traces(dir)
    }

    /// Every [place](Sandbox::place) that was ever used.
    pub fn places(&self) -> io::Result<Vec<Arc<str>>> {
        let names = names(&self.0)?.into_iter();
        Ok(names.map(Arc::from).collect())
    }

    /// The sessions that were last in a place.
    pub fn of(&self, place: &str) -> io::Result<Vec<SessionId>> {
        let names = names(&self.0.join(place))?.into_iter();
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    fn path(&self, place: &str, session: SessionId) -> PathBuf {
        self.0.join(place).join(session.to_string())
    }

    /// At no time is it in both.
    fn hand_over(&self, session: SessionId, from: Option<&str>, to: &str) -> io::Result<()> {
        let (dir, path) = (self.0.join(to), self.path(to, session));
        fs::create_dir_all(&dir).map_err(|e| at(&dir, e))?;
        let moved = from.map(|from| fs::rename(self.path(from, session), &path));
        let made = match moved {
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(e),
            Some(Ok(())) => Ok(()),
            Some(Err(_)) | None => File::create(&path).map(drop),
        };
        made.map_err(|e| at(&path, e))
    }

    fn forget(&self, session: SessionId, places: [&str; 2]) -> io::Result<()> {
        places.into_iter().map(|place| self.path(place, session)).try_for_each(|path| match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&path, e)),
            Ok(()) | Err(_) => Ok(()),
        })
    }
}

/// The names in a directory; none where there is no such directory.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| at(dir, e))?,
    };
    let name = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().into_string().ok());
    entries.map(name).filter_map(Result::transpose).collect::<io::Result<_>>().map_err(|e| at(dir, e))
}

fn at(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("`{}`: {e}; remove it", path.display()))
}

fn failed(source: io::Error) -> SandboxError {
    SandboxError::Io { what: "note where it is", source: Arc::new(source) }
}

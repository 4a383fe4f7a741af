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

use super::{
    FoundSandbox, ProgressCallback, SandboxDriver, SandboxError, SandboxExit, SandboxPresence, SandboxSpec,
    SandboxStats,
};
use crate::store::SessionId;

#[cfg(test)]
mod tests;

/// How long a former driver that could not be reached is not tried again, from the beginning of the attempt. Many sessions ask
/// at once, and each attempt may take seconds.
const RETRY_AFTER: Duration = Duration::from_secs(10);

type ConnectResult = Result<Arc<dyn SandboxDriver>, SandboxError>;

/// Finds the former driver, whose engine may not be there.
pub type ConnectPrevious = Box<dyn Fn() -> BoxFuture<'static, ConnectResult> + Send + Sync>;

/// See the [module](self).
pub struct DriverMigration {
    current: Arc<dyn SandboxDriver>,
    /// The [place](Sandbox::place) of the chosen one.
    current_location: String,
    previous: PreviousDriver,
    locations: SandboxLocations,
    /// The sessions that were last somewhere else, and where.
    elsewhere: Mutex<HashMap<SessionId, Arc<str>>>,
}

/// The other driver. Not reached before a session asks for it: most servers never need a second one.
struct PreviousDriver {
    connect: ConnectPrevious,
    last: Mutex<Option<ConnectAttempt>>,
}

/// One for all who ask meanwhile.
struct ConnectAttempt {
    started_at: Instant,
    result: Shared<BoxFuture<'static, ConnectResult>>,
}

impl PreviousDriver {
    fn connect(&self) -> Shared<BoxFuture<'static, ConnectResult>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |last: &&ConnectAttempt| match last.result.peek() {
            Some(Err(_)) => last.started_at.elapsed() < RETRY_AFTER,
            Some(Ok(_)) | None => true,
        };
        if let Some(attempt) = last.as_ref().filter(counts) {
            return attempt.result.clone();
        }
        let reached = (self.connect)().shared();
        *last = Some(ConnectAttempt { started_at: Instant::now(), result: reached.clone() });
        reached
    }
}

impl DriverMigration {
    /// `former` reaches the other driver.
    pub fn new(
        chosen: Arc<dyn SandboxDriver>,
        former: ConnectPrevious,
        traces: SandboxLocations,
    ) -> Result<DriverMigration, SandboxError> {
        let here = chosen.location();
        let mut elsewhere = HashMap::new();
        for place in traces.location_names().map_err(failed)? {
            if *place == here {
                continue;
            }
            let there = traces.sessions_at(&place).map_err(failed)?;
            if !there.is_empty() {
                info!(
                    "{} sessions were last at `{place}`: what runs goes on there, what starts, starts at `{here}`",
                    there.len()
                );
            }
            elsewhere.extend(there.into_iter().map(|session| (session, place.clone())));
        }
        let former = PreviousDriver { connect: former, last: Mutex::default() };
        Ok(DriverMigration {
            current: chosen,
            current_location: here,
            previous: former,
            locations: traces,
            elsewhere: Mutex::new(elsewhere),
        })
    }

    /// Where a session is, if it is not here.
    fn elsewhere(&self, session: SessionId) -> Option<Arc<str>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// The driver that has the sandbox of a session, or will have it.
    async fn driver_of(&self, session: SessionId) -> Result<Arc<dyn SandboxDriver>, SandboxError> {
        let Some(place) = self.elsewhere(session) else { return Ok(self.current.clone()) };
        match self.previous.connect().await {
            Ok(former) if former.location() == *place => Ok(former),
            Ok(former) => {
                let why = format!("what can be asked is `{}` and `{}`", self.current_location, former.location());
                Err(self.unreachable_error(session, &place, why))
            }
            Err(SandboxError::NoEngine { address, detail }) => {
                Err(self.unreachable_error(session, &place, format!("no engine answers at {address}: {detail}")))
            }
            Err(other) => Err(self.unreachable_error(session, &place, other.to_string())),
        }
    }

    fn unreachable_error(&self, session: SessionId, place: &str, why: String) -> SandboxError {
        let trace = self.locations.path(place, session);
        SandboxError::PreviousUnreachable { session, place: place.to_owned(), why, trace }
    }

    /// Makes a session's place this one, if it has nothing elsewhere that runs. Whether it has not.
    async fn take_over(&self, session: SessionId) -> Result<bool, SandboxError> {
        let before = self.elsewhere(session);
        if before.is_some() {
            let former = self.driver_of(session).await?;
            if let Some(SandboxPresence::Running | SandboxPresence::Paused) = former.presence(session).await? {
                return Ok(false);
            }
            former.remove(session).await?;
        }
        self.locations.move_session(session, before.as_deref(), &self.current_location).map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(true)
    }

    async fn list_previous(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let former = self.previous.connect().await?;
        let (place, mut found) = (former.location(), former.list().await?);
        found.retain(|found| self.elsewhere(found.session).is_some_and(|there| *there == place));
        Ok(found)
    }
}

#[async_trait]
impl SandboxDriver for DriverMigration {
    fn name(&self) -> &'static str {
        self.current.name()
    }

    fn location(&self) -> String {
        self.current_location.clone()
    }

    fn isolation(&self) -> String {
        self.current.isolation()
    }

    async fn check(&self) -> Result<(), SandboxError> {
        self.current.check().await
    }

    async fn start(&self, spec: &SandboxSpec, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        match self.take_over(spec.session).await? {
            true => self.current.start(spec, progress).await,
            false => Ok(()),
        }
    }

    async fn fetch(&self, image: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        self.current.fetch(image, progress).await
    }

    async fn pause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.driver_of(session).await?.pause(session).await
    }

    async fn unpause(&self, session: SessionId) -> Result<(), SandboxError> {
        self.driver_of(session).await?.unpause(session).await
    }

    async fn stop(&self, session: SessionId) -> Result<(), SandboxError> {
        self.driver_of(session).await?.stop(session).await
    }

    async fn remove(&self, session: SessionId) -> Result<(), SandboxError> {
        self.driver_of(session).await?.remove(session).await?;
        let before = self.elsewhere(session);
        self.locations
            .forget(session, [before.as_deref().unwrap_or(&self.current_location), &self.current_location])
            .map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(())
    }

    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        let presence = self.driver_of(session).await?.presence(session).await?;
        if presence.is_some() && self.elsewhere(session).is_none() {
            // It may have been started before there were traces. That it is there is known all the same.
            if let Err(why) = self.locations.move_session(session, None, &self.current_location) {
                warn!(%session, "it cannot be noted where the sandbox runs: {why}");
            }
        }
        Ok(presence)
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        self.driver_of(session).await?.wait(session).await
    }

    /// What is elsewhere is missing while it cannot be reached: what is here is looked after all the same.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let mut found = self.current.list().await?;
        let count = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).len();
        if count > 0 {
            match self.list_previous().await {
                Ok(former) => found.extend(former),
                Err(e) => warn!("the sandboxes of {count} sessions that were last elsewhere cannot be seen: {e}"),
            }
        }
        Ok(found)
    }

    async fn logs(&self, session: SessionId, bytes: usize) -> Result<String, SandboxError> {
        self.driver_of(session).await?.logs(session, bytes).await
    }

    async fn stats(&self, session: SessionId) -> Result<SandboxStats, SandboxError> {
        self.driver_of(session).await?.stats(session).await
    }
}

/// Where each session was last.
#[derive(Debug, Clone)]
pub struct SandboxLocations(PathBuf);

impl SandboxLocations {
    /// In a directory of this node's own.
    pub fn below(dir: PathBuf) -> SandboxLocations {
        SandboxLocations(dir)
    }

    /// Every [place](Sandbox::place) that was ever used.
    pub fn location_names(&self) -> io::Result<Vec<Arc<str>>> {
        let names = names(&self.0)?.into_iter();
        Ok(names.map(Arc::from).collect())
    }

    /// The sessions that were last in a place.
    pub fn sessions_at(&self, place: &str) -> io::Result<Vec<SessionId>> {
        let names = names(&self.0.join(place))?.into_iter();
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    fn path(&self, place: &str, session: SessionId) -> PathBuf {
        self.0.join(place).join(session.to_string())
    }

    /// At no time is it in both.
    fn move_session(&self, session: SessionId, from: Option<&str>, to: &str) -> io::Result<()> {
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

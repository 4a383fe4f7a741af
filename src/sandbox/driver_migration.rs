//! Driver that combines several, for a server that starts with another driver than the one before.
//!
//! - A running sandbox stays with the driver that runs it.
//! - A new start uses the current driver, after the session's last driver has removed what it had
//!   of the session.
//!
//! So no session is ever in two sandboxes, and no session loses its work to a change of driver.
//!
//! The location of a session is noted before its sandbox exists, as an empty file
//! `<locations>/<location>/<session>`. The file is removed with the sandbox. The journal cannot
//! serve for this: drivers also serve sandboxes that no session owns. A location begins with the
//! name of its driver, so a session needs only its own driver.
//!
//! See `docs/internals/sandbox.md`.

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
    drivers::{OpenedDriver, is_location_of},
};
use crate::store::SessionId;

#[cfg(test)]
mod tests;

/// Time without a new attempt after a failed connection to another driver.
///
/// Measured from the start of the attempt. Many sessions call at once, and each attempt may take
/// seconds.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Connects to a driver. Fails if its engine does not answer.
pub type ConnectDriver = Box<dyn Fn() -> BoxFuture<'static, OpenedDriver> + Send + Sync>;

/// Sandbox driver that also reaches the sandboxes of other drivers. See the [module](self).
pub struct DriverMigration {
    current: Arc<dyn SandboxDriver>,
    /// [Location](SandboxDriver::location) of the current driver.
    current_location: String,
    others: Vec<OtherDriver>,
    locations: SandboxLocations,
    /// Sessions whose last location is another one, with that location.
    elsewhere: Mutex<HashMap<SessionId, Arc<str>>>,
}

/// Driver beside the current one, connected when a session first needs it. Most servers never need
/// it.
pub struct OtherDriver {
    /// [Name](SandboxDriver::name) of the driver.
    name: &'static str,
    connect: ConnectDriver,
    last: Mutex<Option<ConnectAttempt>>,
}

/// Connection attempt that all concurrent callers share.
struct ConnectAttempt {
    started_at: Instant,
    result: Shared<BoxFuture<'static, OpenedDriver>>,
}

impl OtherDriver {
    pub fn new(name: &'static str, connect: ConnectDriver) -> OtherDriver {
        OtherDriver { name, connect, last: Mutex::default() }
    }

    fn connect(&self) -> Shared<BoxFuture<'static, OpenedDriver>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |last: &&ConnectAttempt| match last.result.peek() {
            Some(Err(_)) => last.started_at.elapsed() < RETRY_AFTER,
            Some(Ok(_)) | None => true,
        };
        if let Some(attempt) = last.as_ref().filter(is_current) {
            return attempt.result.clone();
        }
        let result = (self.connect)().shared();
        *last = Some(ConnectAttempt { started_at: Instant::now(), result: result.clone() });
        result
    }
}

impl DriverMigration {
    /// Reads the noted locations. `others` are the drivers beside `current`.
    ///
    /// # Errors
    /// Fails if the location files cannot be read.
    pub fn new(
        current: Arc<dyn SandboxDriver>,
        others: Vec<OtherDriver>,
        locations: SandboxLocations,
    ) -> Result<DriverMigration, SandboxError> {
        let current_location = current.location();
        let mut elsewhere = HashMap::new();
        for location in locations.location_names().map_err(failed)? {
            if *location == current_location {
                continue;
            }
            let sessions = locations.sessions_at(&location).map_err(failed)?;
            if !sessions.is_empty() {
                info!(
                    "{} sessions were last at `{location}`: running sandboxes stay there, new starts use \
                     `{current_location}`",
                    sessions.len()
                );
            }
            elsewhere.extend(sessions.into_iter().map(|session| (session, location.clone())));
        }
        Ok(DriverMigration { current, current_location, others, locations, elsewhere: Mutex::new(elsewhere) })
    }

    /// Returns the location of a session if it is not the current one.
    fn elsewhere(&self, session: SessionId) -> Option<Arc<str>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).get(&session).cloned()
    }

    /// Returns the driver that holds the sandbox of a session, or that will start it.
    async fn driver_of(&self, session: SessionId) -> Result<Arc<dyn SandboxDriver>, SandboxError> {
        let Some(location) = self.elsewhere(session) else { return Ok(self.current.clone()) };
        let current = &self.current_location;
        let reason = match self.others.iter().find(|other| is_location_of(other.name, &location)) {
            None => format!("only `{current}` is reachable"),
            Some(other) => match other.connect().await {
                Ok(driver) if driver.location() == *location => return Ok(driver),
                Ok(driver) => format!("only `{current}` and `{}` are reachable", driver.location()),
                Err(SandboxError::NoEngine { address, detail }) => {
                    format!("no engine answers at `{address}`: {detail}")
                }
                Err(error) => error.to_string(),
            },
        };
        let location_file = self.locations.path(&location, session);
        Err(SandboxError::PreviousUnreachable { session, location: location.to_string(), reason, location_file })
    }

    /// Moves a session to the current location, unless its sandbox runs or is paused elsewhere.
    ///
    /// Returns true if the session is now at the current location.
    async fn take_over(&self, session: SessionId) -> Result<bool, SandboxError> {
        let previous_location = self.elsewhere(session);
        if previous_location.is_some() {
            let previous = self.driver_of(session).await?;
            if let Some(SandboxPresence::Running | SandboxPresence::Paused) = previous.presence(session).await? {
                return Ok(false);
            }
            previous.remove(session).await?;
        }
        self.locations.move_session(session, previous_location.as_deref(), &self.current_location).map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(true)
    }

    /// Returns the number of sessions that another driver may still hold.
    fn count_at(&self, other: &OtherDriver) -> usize {
        let elsewhere = self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner);
        elsewhere.values().filter(|location| is_location_of(other.name, location)).count()
    }

    async fn list_other(&self, other: &OtherDriver) -> Result<Vec<FoundSandbox>, SandboxError> {
        let driver = other.connect().await?;
        let (location, mut found) = (driver.location(), driver.list().await?);
        found.retain(|found| self.elsewhere(found.session).is_some_and(|noted| *noted == location));
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

    async fn has_image(&self, image: &str) -> Result<bool, SandboxError> {
        self.current.has_image(image).await
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
        let previous_location = self.elsewhere(session);
        self.locations
            .forget(session, [previous_location.as_deref().unwrap_or(&self.current_location), &self.current_location])
            .map_err(failed)?;
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(())
    }

    async fn presence(&self, session: SessionId) -> Result<Option<SandboxPresence>, SandboxError> {
        let presence = self.driver_of(session).await?.presence(session).await?;
        if presence.is_some() && self.elsewhere(session).is_none() {
            // The sandbox may be older than the location files. Its presence is known even if the
            // note fails.
            if let Err(e) = self.locations.move_session(session, None, &self.current_location) {
                warn!(%session, "the location of the sandbox cannot be noted: {e}");
            }
        }
        Ok(presence)
    }

    async fn wait(&self, session: SessionId) -> Result<SandboxExit, SandboxError> {
        self.driver_of(session).await?.wait(session).await
    }

    /// Lists the sandboxes of all drivers. Those of an unreachable other driver are left out.
    async fn list(&self) -> Result<Vec<FoundSandbox>, SandboxError> {
        let mut found = self.current.list().await?;
        for other in &self.others {
            let count = self.count_at(other);
            if count > 0 {
                match self.list_other(other).await {
                    Ok(others) => found.extend(others),
                    Err(e) => warn!("the sandboxes of {count} sessions at other locations cannot be listed: {e}"),
                }
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

/// Noted locations: a directory with one empty file per session at each location.
#[derive(Debug, Clone)]
pub struct SandboxLocations(PathBuf);

impl SandboxLocations {
    /// Uses `dir`, a directory of this node.
    pub fn below(dir: PathBuf) -> SandboxLocations {
        SandboxLocations(dir)
    }

    /// Returns every [location](SandboxDriver::location) that was ever used.
    pub fn location_names(&self) -> io::Result<Vec<Arc<str>>> {
        let names = names(&self.0)?.into_iter();
        Ok(names.map(Arc::from).collect())
    }

    /// Returns the sessions that were last at a location.
    pub fn sessions_at(&self, location: &str) -> io::Result<Vec<SessionId>> {
        let names = names(&self.0.join(location))?.into_iter();
        Ok(names.filter_map(|name| name.parse().ok()).collect())
    }

    fn path(&self, location: &str, session: SessionId) -> PathBuf {
        self.0.join(location).join(session.to_string())
    }

    /// Moves the note of a session in one step. It is never at both locations.
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

    fn forget(&self, session: SessionId, locations: [&str; 2]) -> io::Result<()> {
        locations.into_iter().map(|location| self.path(location, session)).try_for_each(|path| {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at(&path, e)),
                Ok(()) | Err(_) => Ok(()),
            }
        })
    }
}

/// Returns the names in a directory, or none if the directory is missing.
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
    SandboxError::Io { what: "note its location", source: Arc::new(source) }
}

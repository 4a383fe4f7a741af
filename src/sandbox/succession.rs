//! Two drivers as one, for a server that is started with another than the one before it.
//!
//! What runs goes on where it runs; what is started is started by the chosen driver, once the former has nothing left of that
//! session. So no session is ever in two sandboxes, and none loses its work because somebody chose anew.
//!
//! Which driver a session was last given to is written down before it is: as a file `<traces>/<driver>/<session>` without
//! content, which goes with the sandbox. The journal will not do, because a driver is asked about what no session owns, too.

use std::{
    collections::HashSet,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::OnceCell;
use tracing::{info, warn};

use super::{Exit, Found, Presence, Progress, Sandbox, SandboxError, Spec, Stats};
use crate::store::SessionId;

#[cfg(test)]
mod tests;

/// Finds the former driver, whose engine may not be there.
pub type Reach = Box<dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Sandbox>, SandboxError>> + Send + Sync>;

/// See the [module](self).
pub struct Succession {
    chosen: Arc<dyn Sandbox>,
    former: &'static str,
    /// Not before a session asks for it: most servers never need a second driver.
    reach: Reach,
    reached: OnceCell<Arc<dyn Sandbox>>,
    traces: Traces,
    with_former: Mutex<HashSet<SessionId>>,
}

impl Succession {
    /// `former` is the other driver's [name](Sandbox::name).
    pub fn new(
        chosen: Arc<dyn Sandbox>,
        former: &'static str,
        reach: Reach,
        traces: Traces,
    ) -> Result<Succession, SandboxError> {
        let with_former: HashSet<_> = traces.of(former).map_err(failed)?;
        if !with_former.is_empty() {
            let (count, chosen) = (with_former.len(), chosen.name());
            info!(
                "{count} sessions were last in sandboxes of the driver `{former}`; they stay there until they end, and start again with `{chosen}`"
            );
        }
        Ok(Succession { chosen, former, reach, reached: OnceCell::new(), traces, with_former: Mutex::new(with_former) })
    }

    fn is_with_former(&self, session: SessionId) -> bool {
        self.with_former.lock().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }

    /// The driver that has the sandbox of a session, or will have it.
    async fn of(&self, session: SessionId) -> Result<&dyn Sandbox, SandboxError> {
        match self.is_with_former(session) {
            true => self.former().await.map_err(|e| self.unknown(session, e)),
            false => Ok(&*self.chosen),
        }
    }

    async fn former(&self) -> Result<&dyn Sandbox, SandboxError> {
        Ok(&**self.reached.get_or_try_init(|| (self.reach)()).await?)
    }

    fn unknown(&self, session: SessionId, error: SandboxError) -> SandboxError {
        let why = match error {
            SandboxError::NoEngine { address, detail } => format!("no engine answers at {address}: {detail}"),
            other => other.to_string(),
        };
        SandboxError::Elsewhere { session, driver: self.former, why, trace: self.traces.path(self.former, session) }
    }

    /// Takes a session over from the former driver, if that has nothing of it that runs. Whether it has not.
    async fn take_over(&self, session: SessionId) -> Result<bool, SandboxError> {
        if self.is_with_former(session) {
            if let Some(Presence::Running | Presence::Frozen) = self.presence(session).await? {
                return Ok(false);
            }
            self.of(session).await?.remove(session).await?;
        }
        self.traces.hand_over(session, self.former, self.chosen.name()).map_err(failed)?;
        self.with_former.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(true)
    }

    async fn list_former(&self) -> Result<Vec<Found>, SandboxError> {
        let mut found = self.former().await?.list().await?;
        found.retain(|found| self.is_with_former(found.session));
        Ok(found)
    }
}

#[async_trait]
impl Sandbox for Succession {
    fn name(&self) -> &'static str {
        self.chosen.name()
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
        self.traces.forget(session, [self.former, self.chosen.name()]).map_err(failed)?;
        self.with_former.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        Ok(())
    }

    async fn presence(&self, session: SessionId) -> Result<Option<Presence>, SandboxError> {
        let presence = self.of(session).await?.presence(session).await;
        presence.map_err(|e| if self.is_with_former(session) { self.unknown(session, e) } else { e })
    }

    async fn wait(&self, session: SessionId) -> Result<Exit, SandboxError> {
        self.of(session).await?.wait(session).await
    }

    /// What the former driver has is missing while it cannot be reached: the chosen one's are looked after all the same.
    async fn list(&self) -> Result<Vec<Found>, SandboxError> {
        let mut found = self.chosen.list().await?;
        if !self.with_former.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            match self.list_former().await {
                Ok(former) => found.extend(former),
                Err(e) => warn!("the sandboxes of the driver `{}` cannot be seen: {e}", self.former),
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

/// Which driver each session was last given to.
#[derive(Debug, Clone)]
pub struct Traces(PathBuf);

impl Traces {
    /// In a directory of this node's own.
    pub fn below(dir: PathBuf) -> Traces {
        Traces(dir)
    }

    /// The sessions that were last given to a driver.
    pub fn of(&self, driver: &str) -> io::Result<HashSet<SessionId>> {
        let entries = match std::fs::read_dir(self.0.join(driver)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(HashSet::new()),
            other => other?,
        };
        entries
            .map(|entry| Ok(entry?.file_name().to_str().and_then(|name| name.parse().ok())))
            .filter_map(Result::transpose)
            .collect()
    }

    fn path(&self, driver: &str, session: SessionId) -> PathBuf {
        self.0.join(driver).join(session.to_string())
    }

    /// At no time does it belong to both.
    fn hand_over(&self, session: SessionId, from: &str, to: &str) -> io::Result<()> {
        let path = self.path(to, session);
        std::fs::create_dir_all(self.0.join(to))?;
        match std::fs::rename(self.path(from, session), &path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => File::create(path).map(drop),
            other => other,
        }
    }

    fn forget(&self, session: SessionId, drivers: [&str; 2]) -> io::Result<()> {
        drivers.into_iter().try_for_each(|driver| remove_file(&self.path(driver, session)))
    }
}

fn remove_file(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn failed(source: io::Error) -> SandboxError {
    SandboxError::Io { what: "note which driver it belongs to", source: Arc::new(source) }
}

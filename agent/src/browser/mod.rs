//! Headless Chromium of the session, which the tools drive. Reading order:
//!
//! | module | content |
//! |---|---|
//! | `chromium` | program and arguments |
//! | `cdp` | commands and events over two pipes |
//! | `tab_state` | a tab, as the events report it: pure |
//! | `page` | loads a page and reads it |
//!
//! The first page starts the browser. An interrupt ends a call and not the browser. After
//! [`IDLE_LIMIT`] without a page, the browser is closed to free its memory.

use std::{
    fs, io,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};
use ulid::Ulid;

use crate::{
    clock,
    processes::{BrowserProcess, ChildProcesses, ProcessOwner},
    threads::off_thread,
};

mod cdp;
mod chromium;
mod page;
mod tab_state;

pub use page::PageSnapshot;

use cdp::{CdpConnection, CdpError};
use page::ChromiumTab;

/// Idle time after which the browser is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(10 * 60);
/// Time limit of a start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Reason why a page was not read.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// The sandbox has no browser, or it does not start. A plain fetch may still work.
    #[error("{0}")]
    Unavailable(String),
    #[error("it is a download; fetch it with `run` and curl, if there is one")]
    Download,
    /// Error of the network, by the browser's name for it.
    #[error("{0}")]
    Unreachable(String),
    #[error("did not answer within {} s", .0.as_secs())]
    NoAnswer(Duration),
    #[error("its scripts do not let go of the browser; it was closed")]
    Unresponsive,
    #[error("the page crashed the browser, which was closed; the page may need too much memory")]
    Crashed,
    #[error("{0}")]
    Failed(String),
}

impl From<CdpError> for BrowserError {
    fn from(error: CdpError) -> BrowserError {
        BrowserError::Failed(error.to_string())
    }
}

/// Handle of the session's browser. The browser runs only while pages are read.
#[derive(Clone)]
pub struct PageBrowser(Arc<PageBrowserShared>);

struct PageBrowserShared {
    processes: ChildProcesses,
    running: Mutex<Option<RunningBrowser>>,
}

struct RunningBrowser {
    process: BrowserProcess,
    cdp: CdpConnection,
    /// Directory of the browser's files.
    profile: PathBuf,
    is_ready: bool,
    /// Tab of the agent and tab of the user.
    tabs: [Option<ChromiumTab>; 2],
    last_used: Instant,
}

impl PageBrowser {
    pub fn new(processes: ChildProcesses) -> PageBrowser {
        PageBrowser(Arc::new(PageBrowserShared { processes, running: Mutex::default() }))
    }

    /// Loads `url` into the owner's tab and reads the page, complete or not, after `limit` at the
    /// latest. Starts the browser if it does not run. Calls run one after the other.
    ///
    /// # Errors
    /// [`BrowserError::Unavailable`] if there is no browser. Any other error is about the page.
    pub async fn open(&self, owner: ProcessOwner, url: &str, limit: Duration) -> Result<PageSnapshot, BrowserError> {
        let mut slot = self.0.running.lock().await;
        let browser = self.started(&mut slot).await?;
        let result = match browser.tab(owner).await {
            Ok(tab) => tab.load(&browser.cdp, url, limit).await,
            Err(error) => Err(error.into()),
        };
        browser.last_used = Instant::now();
        if let Err(BrowserError::NoAnswer(_)) = result {
            browser.drop_tab(owner);
        }
        let is_stuck = matches!(result, Err(BrowserError::Unresponsive | BrowserError::Crashed));
        let is_broken = is_stuck || browser.cdp.is_closed();
        if is_broken {
            self.0.close(&mut slot).await;
        }
        result
    }

    /// Closes the browser and removes its files.
    pub async fn close(&self) {
        let mut slot = self.0.running.lock().await;
        self.0.close(&mut slot).await;
    }

    /// Returns the running browser. Starts it if there is none, or if it has crashed.
    async fn started<'a>(
        &self,
        slot: &'a mut MutexGuard<'_, Option<RunningBrowser>>,
    ) -> Result<&'a mut RunningBrowser, BrowserError> {
        if slot.as_ref().is_some_and(|browser| browser.cdp.is_closed()) {
            self.0.close(slot).await;
        }
        if slot.is_none() {
            let program = chromium::find_program();
            let program =
                program.ok_or_else(|| BrowserError::Unavailable("this sandbox has no Chromium".to_owned()))?;
            let spawned = self.0.spawn(program.clone()).await.map_err(|error| {
                BrowserError::Unavailable(format!("`{}` cannot be started: {error}", program.display()))
            })?;
            // Kept before it answers: an interrupt of its start must not lose its process.
            **slot = Some(spawned);
            tokio::spawn(close_when_idle(Arc::downgrade(&self.0)));
        }
        if slot.as_ref().is_some_and(|browser| !browser.is_ready) && !self.0.is_answering(slot).await {
            self.0.close(slot).await;
            return Err(BrowserError::Unavailable("the Chromium of this sandbox does not start".to_owned()));
        }
        slot.as_mut().ok_or_else(|| CdpError::Closed.into())
    }
}

impl RunningBrowser {
    /// Returns the tab of an owner. The agent's pages and the user's do not disturb each other.
    async fn tab(&mut self, owner: ProcessOwner) -> Result<ChromiumTab, CdpError> {
        let index = tab_index(owner);
        if let Some(tab) = &self.tabs[index] {
            return Ok(tab.clone());
        }
        let tab = ChromiumTab::open(&self.cdp).await?;
        self.tabs[index] = Some(tab.clone());
        Ok(tab)
    }

    /// Closes the tab of an owner. A script of its last page may keep it from loading another.
    fn drop_tab(&mut self, owner: ProcessOwner) {
        if let Some(tab) = self.tabs[tab_index(owner)].take() {
            tab.close(&self.cdp);
        }
    }
}

fn tab_index(owner: ProcessOwner) -> usize {
    match owner {
        ProcessOwner::Agent => 0,
        ProcessOwner::User => 1,
    }
}

impl PageBrowserShared {
    /// Starts a browser with a fresh profile.
    async fn spawn(&self, program: PathBuf) -> io::Result<RunningBrowser> {
        let profile = std::env::temp_dir().join(format!("greenroom-browser-{}", Ulid::generate()));
        let directory = profile.clone();
        off_thread(move || fs::create_dir(directory)).await?;
        let arguments = chromium::arguments(&profile, self.processes.gateway_port());
        let mut process = self.processes.spawn_browser(&program, &arguments, &profile)?;
        // Both are piped, and taken once.
        let (Some(stdin), Some(stdout)) = (process.child.stdin.take(), process.child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        let cdp = CdpConnection::open(stdin, stdout);
        let (is_ready, tabs, last_used) = (false, [None, None], Instant::now());
        Ok(RunningBrowser { process, cdp, profile, is_ready, tabs, last_used })
    }

    /// Returns true when the browser answers. Downloads are denied from then on.
    async fn is_answering(&self, slot: &mut Option<RunningBrowser>) -> bool {
        let Some(browser) = slot else { return false };
        let deny = json!({ "behavior": "deny" });
        browser.is_ready = tokio::select! {
            answer = browser.cdp.call(None, "Browser.setDownloadBehavior", deny) => answer.is_ok(),
            () = clock::sleep(START_LIMIT) => false,
        };
        browser.is_ready
    }

    async fn close(&self, slot: &mut Option<RunningBrowser>) {
        let Some(RunningBrowser { process, cdp, profile, .. }) = slot.take() else { return };
        drop(cdp);
        self.processes.kill_browser(process).await;
        // Files that are left take space and do no harm: the next profile has another name.
        let _ = off_thread(move || fs::remove_dir_all(profile)).await;
    }
}

/// Closes the browser when it has been idle for [`IDLE_LIMIT`]. Ends with the browser.
async fn close_when_idle(shared: Weak<PageBrowserShared>) {
    let mut wait = IDLE_LIMIT;
    loop {
        tokio::time::sleep(wait).await;
        let Some(shared) = shared.upgrade() else { return };
        let mut slot = shared.running.lock().await;
        let Some(browser) = &*slot else { return };
        wait = IDLE_LIMIT.saturating_sub(browser.last_used.elapsed());
        if wait.is_zero() {
            shared.close(&mut slot).await;
            return;
        }
    }
}

//! Chrome DevTools Protocol over two pipes: JSON messages that end with a NUL byte.
//!
//! A pipe has no port, so no page and no other program of the sandbox can drive the browser.
//! Messages: <https://chromedevtools.github.io/devtools-protocol/>.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::{Notify, mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use super::tab_state::TabState;

/// Largest message of the browser, in bytes. Larger than any page or picture that the tools ask
/// for.
const MESSAGE_LIMIT: u64 = 64 * 1024 * 1024;

/// Bound: 64 commands. When full: a call waits, and an answer to a dialog is dropped.
const COMMAND_QUEUE: usize = 64;

/// Failed command of the browser.
#[derive(Debug, thiserror::Error)]
pub(super) enum CdpError {
    #[error("the browser ended unexpectedly; browse again to start it anew")]
    Closed,
    #[error("the browser rejected `{method}`: {message}")]
    Rejected { method: &'static str, message: String },
}

/// Connection to a running browser.
pub(super) struct CdpConnection {
    next_id: AtomicU64,
    commands: mpsc::Sender<Vec<u8>>,
    shared: Arc<CdpShared>,
}

type CdpReply = Result<Value, String>;

struct CdpShared {
    /// Calls without an answer, by the id of their command.
    pending: Mutex<HashMap<u64, oneshot::Sender<CdpReply>>>,
    /// State of each tab, by its session id.
    tabs: Mutex<HashMap<String, TabState>>,
    /// Notified after each event of a tab.
    changed: Notify,
    closed: CancellationToken,
}

#[derive(Deserialize)]
struct CdpMessage {
    id: Option<u64>,
    #[serde(default)]
    result: Value,
    error: Option<CdpFailure>,
    method: Option<String>,
    #[serde(default)]
    params: Value,
    #[serde(rename = "sessionId")]
    session: Option<String>,
}

#[derive(Deserialize)]
struct CdpFailure {
    message: String,
}

impl CdpConnection {
    /// Speaks over the pipes of a browser until it ends, or until the connection is dropped.
    pub(super) fn open(mut to_browser: ChildStdin, from_browser: ChildStdout) -> CdpConnection {
        let (commands, mut queue) = mpsc::channel::<Vec<u8>>(COMMAND_QUEUE);
        let shared = Arc::new(CdpShared {
            pending: Mutex::default(),
            tabs: Mutex::default(),
            changed: Notify::new(),
            closed: CancellationToken::new(),
        });
        let closed = shared.closed.clone();
        tokio::spawn(async move {
            // Ends with the connection, and closes the pipe: the browser ends then.
            while let Some(command) = queue.recv().await {
                if to_browser.write_all(&command).await.is_err() {
                    break;
                }
            }
            closed.cancel();
        });
        tokio::spawn(read_messages(from_browser, shared.clone(), commands.downgrade()));
        CdpConnection { next_id: AtomicU64::new(1), commands, shared }
    }

    /// Returns true if the browser has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }

    /// Sends a command to a tab, or to the browser itself, and returns the answer.
    pub(super) async fn call(
        &self,
        session: Option<&str>,
        method: &'static str,
        params: Value,
    ) -> Result<Value, CdpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.shared.pending().insert(id, sender);
        let answer = async {
            self.commands.send(command(id, session, method, params)).await.map_err(|_| CdpError::Closed)?;
            receiver.await.map_err(|_| CdpError::Closed)
        };
        tokio::select! {
            biased;
            reply = answer => reply?.map_err(|message| CdpError::Rejected { method, message }),
            () = self.shared.closed.cancelled() => Err(CdpError::Closed),
        }
    }

    /// Sends a command whose answer does not matter.
    pub(super) fn send(&self, session: &str, method: &'static str, params: Value) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        // A full queue belongs to a browser that answers nothing. The next call fails then.
        let _ = self.commands.try_send(command(id, Some(session), method, params));
    }

    /// Registers the tab of a session.
    pub(super) fn add_tab(&self, session: &str, state: TabState) {
        self.shared.tabs().insert(session.to_owned(), state);
    }

    /// Reads or changes the state of a tab.
    pub(super) fn with_tab<T>(&self, session: &str, read: impl FnOnce(&mut TabState) -> T) -> Result<T, CdpError> {
        self.shared.tabs().get_mut(session).map(read).ok_or(CdpError::Closed)
    }

    /// Returns when the tab fulfils a condition.
    pub(super) async fn until(&self, session: &str, done: impl Fn(&TabState) -> bool) -> Result<(), CdpError> {
        loop {
            let changed = self.shared.changed.notified();
            if self.with_tab(session, |tab| done(tab))? {
                return Ok(());
            }
            tokio::select! {
                () = changed => {}
                () = self.shared.closed.cancelled() => return Err(CdpError::Closed),
            }
        }
    }
}

impl CdpShared {
    fn pending(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<CdpReply>>> {
        self.pending.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn tabs(&self) -> MutexGuard<'_, HashMap<String, TabState>> {
        self.tabs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn process(&self, message: CdpMessage, commands: &mpsc::WeakSender<Vec<u8>>) {
        match message {
            CdpMessage { id: Some(id), result, error, .. } => {
                if let Some(sender) = self.pending().remove(&id) {
                    // The caller may have been interrupted.
                    let _ = sender.send(error.map_or(Ok(result), |failure| Err(failure.message)));
                }
            }
            CdpMessage { method: Some(method), params, session: Some(session), .. } => {
                let reply = self.tabs().get_mut(&session).and_then(|tab| tab.event(&method, &params));
                if let (Some((method, params)), Some(commands)) = (reply, commands.upgrade()) {
                    // Id 0 belongs to no call. A dropped answer leaves the page at its dialog, and
                    // the time limit ends the call.
                    let _ = commands.try_send(command(0, Some(&session), method, params));
                }
                self.changed.notify_one();
            }
            // Events of the browser itself are not subscribed to.
            CdpMessage { .. } => {}
        }
    }
}

/// Reads messages until the browser ends. No event waits in a queue: it changes its tab at once.
async fn read_messages(from_browser: ChildStdout, shared: Arc<CdpShared>, commands: mpsc::WeakSender<Vec<u8>>) {
    let mut reader = BufReader::new(from_browser);
    loop {
        let mut message = Vec::new();
        let read = (&mut reader).take(MESSAGE_LIMIT).read_until(0, &mut message).await;
        if read.is_err() || message.pop() != Some(0) {
            break;
        }
        if let Ok(message) = serde_json::from_slice(&message) {
            shared.process(message, &commands);
        }
    }
    shared.closed.cancel();
    shared.pending().clear();
}

fn command(id: u64, session: Option<&str>, method: &str, params: Value) -> Vec<u8> {
    let mut message = json!({ "id": id, "method": method, "params": params });
    if let Some(session) = session {
        message["sessionId"] = session.into();
    }
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    bytes
}

//! Agent's binary, and a bare connection to it.

use std::{
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use futures::{SinkExt, StreamExt};
use greenroom_agent::tools::TOOLS;
use greenroom_protocol::{
    LINK_FRAME_LIMIT,
    link::{AgentSettings, FRAGMENT, FromAgent, ProviderApi, ToAgent},
};
use tokio::net::UnixStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::gateway::{ScriptedAnswer, ScriptedGateway};

/// Limit that only a missing message reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct AgentProcess {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) process: Child,
    pub(crate) gateway: ScriptedGateway,
    pub(crate) settings: AgentSettings,
    chromium: &'static str,
}

/// Spawns the agent with this program as its browser; empty for none.
fn spawn_agent(dir: &tempfile::TempDir, chromium: &str) -> Child {
    let at = |name: &str| dir.path().join(name);
    Command::new(env!("CARGO_BIN_EXE_greenroom-agent"))
        .env("GREENROOM_AGENT_SOCKET", at("agent.sock"))
        .env("GREENROOM_GATEWAY_SOCKET", at("gateway.sock"))
        .env("GREENROOM_WORKSPACE", at("work"))
        .env("GREENROOM_ACTS", at("acts"))
        // Shells of terminals read the files of a home directory.
        .env("HOME", dir.path())
        .env("GREENROOM_CHROMIUM", chromium)
        .env("TMPDIR", dir.path())
        .spawn()
        .expect("the binary starts")
}

impl AgentProcess {
    /// Starts an agent without a browser.
    pub(crate) fn start(answers: Vec<ScriptedAnswer>) -> AgentProcess {
        AgentProcess::with_browser(answers, "")
    }

    /// Starts an agent with `chromium` as its browser.
    pub(crate) fn with_browser(answers: Vec<ScriptedAnswer>, chromium: &'static str) -> AgentProcess {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("work")).expect("a directory");
        let process = spawn_agent(&dir, chromium);
        let settings = AgentSettings {
            model: "claude-test".into(),
            api: ProviderApi::Anthropic,
            directory: at("work").display().to_string(),
            run_timeout_s: 600,
            max_steps: 20,
            program: None,
            effort: None,
            takes_images: false,
            context_limit: None,
            orphan_after_s: None,
            plan_path: None,
            mode: None,
        };
        let gateway = ScriptedGateway::start(&at("gateway.sock"), answers);
        AgentProcess { dir, process, gateway, settings, chromium }
    }

    /// Kills the agent and starts it anew in the same sandbox. Only the sandbox's files survive.
    pub(crate) fn restart(&mut self) {
        self.process.kill().expect("the agent runs");
        self.process.wait().expect("the agent is a child");
        self.process = spawn_agent(&self.dir, self.chromium);
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    pub(crate) async fn dial(&self) -> AgentTestLink {
        let socket = self.dir.path().join("agent.sock");
        let stream = loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => break stream,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        // A message may be long, but none of its frames is longer than a fragment.
        let config = WebSocketConfig::default().max_frame_size(Some(FRAGMENT));
        let handshake = client_async_with_config("ws://agent/", stream, Some(config)).await;
        let (socket, _) = handshake.expect("the agent speaks WebSocket");
        AgentTestLink { socket }
    }
}

/// Returns the names of the tools, as the agent lists them.
pub(crate) fn tool_list() -> String {
    let names: Vec<String> = TOOLS.iter().map(|tool| format!("`{}`", tool.name)).collect();
    names.join(", ")
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // The agent may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) struct AgentTestLink {
    socket: WebSocketStream<UnixStream>,
}

impl AgentTestLink {
    pub(crate) async fn send(&mut self, frame: &ToAgent) {
        self.send_text(&serde_json::to_string(frame).expect("a frame serializes")).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        // The peer may have closed; the next receive shows that.
        let _ = self.socket.send(Message::text(text)).await;
    }

    /// Sends all frames in one write, so that the agent reads one right after the other.
    pub(crate) async fn send_together(&mut self, frames: &[ToAgent]) {
        for frame in frames {
            let text = serde_json::to_string(frame).expect("a frame serializes");
            self.socket.feed(Message::text(text)).await.expect("the link stands");
        }
        self.socket.flush().await.expect("the link stands");
    }

    /// Closes the connection.
    pub(crate) async fn close(&mut self) {
        self.socket.close(None).await.expect("the link stands");
    }

    /// Sends a ping and waits for its pong.
    pub(crate) async fn ping(&mut self) {
        self.socket.send(Message::Ping("?".into())).await.expect("the link stands");
        while !matches!(self.message().await.expect("the link stands"), Message::Pong(_)) {}
    }

    /// Returns the next message, or `None` if the connection is over.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        let next = tokio::time::timeout(TIMEOUT, self.socket.next()).await.expect("a message within the timeout");
        next.and_then(Result::ok)
    }

    pub(crate) async fn receive(&mut self) -> FromAgent {
        match self.message().await {
            Some(Message::Text(text)) => {
                assert!(text.len() <= LINK_FRAME_LIMIT, "a frame of {} bytes exceeds the limit", text.len());
                serde_json::from_str(text.as_str()).expect("a frame")
            }
            other => panic!("not a frame: {other:?}"),
        }
    }
}

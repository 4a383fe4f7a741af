//! Scripted agent: takes over a sandbox's agent socket and sends what a test passes, as fast as the
//! server reads.

use std::{collections::VecDeque, fs};

use futures::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use greenroom_protocol::link::{AgentCommand, AgentHello, AgentReport, FromAgent, LINK_VERSION, ToAgent};
use serde_json::Value;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config, client_async,
    tungstenite::{
        Error, Message,
        protocol::{
            WebSocketConfig,
            frame::{
                Frame,
                coding::{Data, OpCode},
            },
        },
    },
};

use super::{server::TestServer, within};

/// Agent's side of the link.
///
/// A task reads the link all the time, so the server's pings are answered while the test does
/// something else.
pub struct PuppetAgent {
    link: SplitSink<WebSocketStream<UnixStream>, Message>,
    /// Frames that the reading task has received.
    frames: mpsc::UnboundedReceiver<Result<ToAgent, Error>>,
    reader: JoinHandle<()>,
    sent: u64,
    acked: u64,
    /// Frames other than acknowledgements, not yet returned to the test.
    received: VecDeque<ToAgent>,
}

impl Drop for PuppetAgent {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl PuppetAgent {
    /// Creates a session and takes over from its agent. Returns the session's id, too.
    pub async fn in_a_new_session(server: &TestServer, session: Value) -> (String, PuppetAgent) {
        let session_id = server.rest.create(session).await;
        server.rest.until_state(&session_id, "idle").await;
        let puppet = PuppetAgent::take_over(server, &session_id).await;
        (session_id, puppet)
    }

    /// Takes over from the agent of a session whose sandbox runs.
    pub async fn take_over(server: &TestServer, session_id: &str) -> PuppetAgent {
        let dir = server.data().join("run").join(session_id).join("agent");
        let (path, aside) = (dir.join("agent.sock"), dir.join("aside.sock"));
        fs::rename(&path, &aside).expect("the agent listens");
        let listener = UnixListener::bind(&path).expect("the path is free");
        // The newest connection wins: the agent drops the server's connection, and the server
        // dials again.
        let stream = UnixStream::connect(&aside).await.expect("the agent still listens");
        let (newest, _) = client_async("ws://agent/", stream).await.expect("the agent accepts a WebSocket");
        let (stream, _) = within("the server to dial again", listener.accept()).await.expect("a connection");
        drop(newest);
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let link = accept_async_with_config(stream, Some(config)).await.expect("the server opens a WebSocket");
        let (link, incoming) = link.split();
        let (into_frames, frames) = mpsc::unbounded_channel();
        let reader = tokio::spawn(read_link(incoming, into_frames));
        let mut puppet = PuppetAgent { link, frames, reader, sent: 0, acked: 0, received: VecDeque::new() };
        puppet.introduce().await;
        puppet
    }

    async fn introduce(&mut self) {
        let boot = format!("puppet-{}", fastrand::u64(..));
        let agent_version = "puppet".to_owned();
        let hello = AgentHello {
            link_version: LINK_VERSION,
            boot,
            agent_version,
            last_n: 0,
            turn: None,
            reads_cancel_hints: false,
        };
        self.send(&FromAgent::Hello(hello)).await.expect("the server reads");
        loop {
            match within("the welcome", self.receive()).await.expect("the link holds") {
                ToAgent::Welcome(welcome) if !welcome.restore => return,
                ToAgent::History { complete: true, .. } => return,
                _ => {}
            }
        }
    }

    /// Sends a delta. Blocks while the server is behind.
    pub async fn grow(&mut self, delta: greenroom_protocol::Delta) -> Result<(), Error> {
        self.send(&FromAgent::Delta(delta)).await
    }

    /// Sends a numbered report. Blocks while the server is behind.
    pub async fn report(&mut self, report: AgentReport) -> Result<(), Error> {
        self.sent += 1;
        let frame = FromAgent::Report { n: self.sent, report };
        self.send(&frame).await
    }

    /// Skips report numbers: the next report does not follow the last one.
    pub fn leave_out(&mut self, reports: u64) {
        self.sent += reports;
    }

    /// Sends these bytes as a text frame, valid or not. The server may close the link before it has
    /// read them.
    pub async fn say(&mut self, text: Vec<u8>) {
        let frame = Frame::message(text, OpCode::Data(Data::Text), true);
        let _may_fail = within("the frame to be sent", self.link.send(Message::Frame(frame))).await;
    }

    async fn send(&mut self, frame: &FromAgent) -> Result<(), Error> {
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        self.link.send(Message::text(text)).await?;
        while let Ok(frame) = self.frames.try_recv() {
            self.take(frame?);
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<ToAgent, Error> {
        loop {
            if let Some(frame) = self.received.pop_front() {
                return Ok(frame);
            }
            let frame = self.frames.recv().await.ok_or(Error::ConnectionClosed)??;
            self.take(frame);
        }
    }

    fn take(&mut self, frame: ToAgent) {
        match frame {
            ToAgent::Ack { n } => self.acked = n,
            other => self.received.push_back(other),
        }
    }

    /// Returns when the server has acknowledged every report.
    pub async fn until_acknowledged(&mut self) {
        within("the rest to be written", self.link.flush()).await.expect("the link holds");
        while self.acked < self.sent {
            let frame = within("an acknowledgement", self.frames.recv()).await.expect("the link holds");
            self.take(frame.expect("the link holds"));
        }
    }

    /// Returns the next frame other than an acknowledgement.
    pub async fn order(&mut self) -> ToAgent {
        within("a frame", self.receive()).await.expect("the link holds")
    }

    /// Returns the next command.
    pub async fn command(&mut self) -> AgentCommand {
        loop {
            if let ToAgent::Command(numbered) = self.order().await {
                return numbered.command;
            }
        }
    }

    /// Returns true if the command is among the frames that came before the last frame was sent.
    pub fn received_command(&self, expected: &AgentCommand) -> bool {
        let is_it = |frame: &ToAgent| matches!(frame, ToAgent::Command(numbered) if numbered.command == *expected);
        self.received.iter().any(is_it)
    }

    /// Reports an event, given in its wire form: `{"observation": …}` or `{"action": …}`.
    pub async fn event(&mut self, item: Option<&str>, body: serde_json::Value) {
        let body = serde_json::from_value(body).expect("an event");
        let report = AgentReport::Event { item: item.map(str::to_owned), body };
        self.report(report).await.expect("the server reads");
    }
}

/// Reads the link to its end, and so answers pings. Tungstenite writes a pong at the next read.
async fn read_link(
    mut link: SplitStream<WebSocketStream<UnixStream>>,
    frames: mpsc::UnboundedSender<Result<ToAgent, Error>>,
) {
    while let Some(message) = link.next().await {
        let frame = match message {
            Ok(Message::Text(text)) => Ok(serde_json::from_str(&text).expect("the server speaks the link")),
            Ok(_) => continue,
            Err(e) => Err(e),
        };
        if frames.send(frame).is_err() {
            return;
        }
    }
}

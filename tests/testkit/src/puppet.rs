//! An agent of the test's own: it takes the place of the one in a sandbox, on its socket, and says what it is told, as fast as
//! the server reads it.

use std::{collections::VecDeque, fs};

use futures::{SinkExt, StreamExt};
use greenroom_protocol::link::{AgentCommand, AgentHello, AgentReport, FromAgent, LINK_VERSION, ToAgent};
use serde_json::Value;
use tokio::net::{UnixListener, UnixStream};
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

/// Speaks the agent's side of the link.
pub(crate) struct PuppetAgent {
    link: WebSocketStream<UnixStream>,
    sent: u64,
    acked: u64,
    /// What it said otherwise.
    received: VecDeque<ToAgent>,
}

impl PuppetAgent {
    /// Takes over from the agent of a session that is made so. Returns the session's id, too.
    pub(crate) async fn in_a_new_session(server: &TestServer, wanted: Value) -> (String, PuppetAgent) {
        let session = server.rest.create(wanted).await;
        server.rest.until_state(&session, "idle").await;
        let puppet = PuppetAgent::take_over(server, &session).await;
        (session, puppet)
    }

    /// Takes over from the agent of a session that is up.
    pub(crate) async fn take_over(server: &TestServer, session: &str) -> PuppetAgent {
        let dir = server.data().join("run").join(session).join("agent");
        let (place, aside) = (dir.join("agent.sock"), dir.join("aside.sock"));
        fs::rename(&place, &aside).expect("the agent listens");
        let listener = UnixListener::bind(&place).expect("its place is free");
        // The newest connection wins: the agent lets go of the server, and that dials again.
        let stream = UnixStream::connect(&aside).await.expect("the agent still listens");
        let (held, _) = client_async("ws://agent/", stream).await.expect("it speaks WebSocket");
        let (stream, _) = within("the server to dial again", listener.accept()).await.expect("it is heard");
        drop(held);
        let config = WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0);
        let link = accept_async_with_config(stream, Some(config)).await.expect("it speaks WebSocket");
        let mut puppet = PuppetAgent { link, sent: 0, acked: 0, received: VecDeque::new() };
        puppet.introduce().await;
        puppet
    }

    async fn introduce(&mut self) {
        let boot = format!("puppet-{}", fastrand::u64(..));
        let agent_version = "puppet".to_owned();
        let hello = AgentHello { link_version: LINK_VERSION, boot, agent_version, last_n: 0, turn: None };
        self.send(&FromAgent::Hello(hello)).await.expect("the server listens");
        loop {
            match within("to be welcomed", self.receive()).await.expect("the server speaks") {
                ToAgent::Welcome(welcome) if !welcome.restore => return,
                ToAgent::History { complete: true, .. } => return,
                _ => {}
            }
        }
    }

    /// Says something that grows. Waits while the server is behind.
    pub(crate) async fn grow(&mut self, delta: greenroom_protocol::Delta) -> Result<(), Error> {
        self.send(&FromAgent::Delta(delta)).await
    }

    /// Reports something for the journal. Waits while the server is behind.
    pub(crate) async fn report(&mut self, report: AgentReport) -> Result<(), Error> {
        self.sent += 1;
        let frame = FromAgent::Report { n: self.sent, report };
        self.send(&frame).await
    }

    /// Leaves numbers out: the next report is not the one that is to come.
    pub(crate) fn leave_out(&mut self, reports: u64) {
        self.sent += reports;
    }

    /// Says this as the text that it may not be. The server need not hear it to its end.
    pub(crate) async fn say(&mut self, text: Vec<u8>) {
        let frame = Frame::message(text, OpCode::Data(Data::Text), true);
        let _not_heard = within("it to be heard or not", self.link.send(Message::Frame(frame))).await;
    }

    async fn send(&mut self, frame: &FromAgent) -> Result<(), Error> {
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        self.link.send(Message::text(text)).await?;
        while let Some(Some(heard)) = futures::FutureExt::now_or_never(self.link.next()) {
            self.take(&heard?);
        }
        Ok(())
    }

    async fn receive(&mut self) -> Result<ToAgent, Error> {
        loop {
            if let Some(kept) = self.received.pop_front() {
                return Ok(kept);
            }
            let message = self.link.next().await.ok_or(Error::ConnectionClosed)??;
            self.take(&message);
        }
    }

    fn take(&mut self, message: &Message) {
        let Message::Text(text) = message else { return };
        match serde_json::from_str(text).expect("the server speaks the link") {
            ToAgent::Ack { n } => self.acked = n,
            other => self.received.push_back(other),
        }
    }

    /// Waits until all that was reported is on the server's disk.
    pub(crate) async fn until_acknowledged(&mut self) {
        within("the rest to be written", self.link.flush()).await.expect("the link holds");
        while self.acked < self.sent {
            let next = within("an acknowledgement", self.link.next()).await.expect("the link holds");
            self.take(&next.expect("the link holds"));
        }
    }

    /// The next thing that the server says, other than acknowledgements.
    pub(crate) async fn order(&mut self) -> ToAgent {
        within("an order", self.receive()).await.expect("the server speaks")
    }

    /// The next thing that it is told to do.
    pub(crate) async fn command(&mut self) -> AgentCommand {
        loop {
            if let ToAgent::Command(numbered) = self.order().await {
                return numbered.command;
            }
        }
    }

    /// Whether it was told to do so by now. It hears what it is told while it says something.
    pub(crate) fn received_command(&self, wanted: &AgentCommand) -> bool {
        self.received.iter().any(|heard| matches!(heard, ToAgent::Command(numbered) if numbered.command == *wanted))
    }

    /// Reports an event, given as it stands in a frame: `{"observation": …}` or `{"action": …}`.
    pub(crate) async fn event(&mut self, item: Option<&str>, body: serde_json::Value) {
        let body = serde_json::from_value(body).expect("an event");
        let report = AgentReport::Event { item: item.map(str::to_owned), body };
        self.report(report).await.expect("the server listens");
    }
}

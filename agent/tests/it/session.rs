//! Server that keeps the agent's reports and checks the link's promises at every frame.

use std::collections::{HashMap, HashSet};

use greenroom_protocol::{
    Action, Delta, DeltaKind, Event, EventBody, Observation, ObservationKind,
    approval::{ReviewRequest, ReviewVerdict, Verdict},
    link::{
        AgentCommand, AgentHello, AgentReport, CommandFrame, EVENT_LIMIT, FromAgent, LINK_VERSION, ServerWelcome,
        ToAgent, WorkOutcome,
    },
};

use crate::{
    agent::{AgentProcess, AgentTestLink},
    gateway::ScriptedAnswer,
};

pub(crate) struct AgentTestSession {
    pub(crate) agent: AgentProcess,
    pub(crate) link: AgentTestLink,
    pub(crate) hello: AgentHello,
    /// Every report so far; the first has the number 1.
    pub(crate) reports: Vec<AgentReport>,
    /// Text of each item, as a receiver of the deltas has it.
    pub(crate) deltas: HashMap<(String, DeltaKind), String>,
    pub(crate) taken: Vec<String>,
    /// Reviews so far, with their repetitions.
    pub(crate) reviews: Vec<ReviewRequest>,
    /// True if the server reviews tool calls.
    is_reviewed: bool,
    /// Items that an observation has ended.
    ended: HashSet<String>,
    command_count: usize,
}

impl AgentTestSession {
    /// Opens a session without a history.
    pub(crate) async fn open(answers: Vec<ScriptedAnswer>) -> AgentTestSession {
        AgentTestSession::with_history(AgentProcess::start(answers), Vec::new()).await
    }

    /// Continues a session with `events` in an agent that was just started.
    pub(crate) async fn with_history(agent: AgentProcess, events: Vec<Event>) -> AgentTestSession {
        AgentTestSession::start(agent, events, false).await
    }

    /// Continues a session with `events`, with a server that reviews tool calls.
    pub(crate) async fn reviewed(agent: AgentProcess, events: Vec<Event>) -> AgentTestSession {
        AgentTestSession::start(agent, events, true).await
    }

    async fn start(agent: AgentProcess, events: Vec<Event>, is_reviewed: bool) -> AgentTestSession {
        let mut link = agent.dial().await;
        let hello = hello(&mut link).await;
        let mut session = AgentTestSession {
            agent,
            link,
            hello,
            reports: Vec::new(),
            deltas: HashMap::new(),
            taken: Vec::new(),
            reviews: Vec::new(),
            is_reviewed,
            ended: HashSet::new(),
            command_count: 0,
        };
        session.welcome(true).await;
        session.link.send(&ToAgent::History { events, complete: true }).await;
        // The agent answers in order: it now has the history, and keeps its boot id from here on.
        session.link.ping().await;
        session
    }

    /// Drops the connection and makes a new one.
    pub(crate) async fn redial(&mut self) {
        self.redial_to(false).await;
    }

    /// Redials. With `restore`, acts as a server that has lost its state of this boot.
    pub(crate) async fn redial_to(&mut self, restore: bool) {
        self.link = self.agent.dial().await;
        let before = self.hello.boot.clone();
        self.hello = hello(&mut self.link).await;
        assert_eq!(self.hello.boot, before);
        self.welcome(restore).await;
    }

    async fn welcome(&mut self, restore: bool) {
        let (acked, settings, reviews) = (self.reports.len() as u64, self.agent.settings.clone(), self.is_reviewed);
        self.link
            .send(&ToAgent::Welcome(ServerWelcome { session: "s".into(), acked, restore, settings, reviews }))
            .await;
    }

    pub(crate) async fn send_command(&mut self, command: AgentCommand) -> String {
        self.command_count += 1;
        let id = format!("command-{}", self.command_count);
        self.resend_command(&id, command).await;
        id
    }

    pub(crate) async fn resend_command(&mut self, id: &str, command: AgentCommand) {
        self.link.send(&ToAgent::Command(CommandFrame { id: id.into(), command })).await;
    }

    pub(crate) async fn prompt(&mut self, turn: &str, content: &str) {
        let (turn, content) = (turn.to_owned(), content.to_owned());
        self.send_command(AgentCommand::Prompt { turn, content, attachments: Vec::new() }).await;
    }

    /// Waits for the review number `count`, from 1.
    pub(crate) async fn until_review(&mut self, count: usize) -> ReviewRequest {
        self.until(|session| session.reviews.len() >= count).await;
        self.reviews[count - 1].clone()
    }

    pub(crate) async fn settle(&mut self, review: &ReviewRequest, verdict: Verdict) {
        self.link.send(&ToAgent::Verdict(ReviewVerdict { id: review.id.clone(), verdict })).await;
    }

    pub(crate) async fn user_action(&mut self, user_action: &str, action: Action) {
        self.send_command(AgentCommand::UserAction { user_action: user_action.to_owned(), action }).await;
    }

    /// Receives one frame.
    pub(crate) async fn step(&mut self) {
        match self.link.receive().await {
            FromAgent::Hello(_) => panic!("a second hello"),
            FromAgent::Taken { command } => self.taken.push(command),
            FromAgent::Review(review) => {
                assert!(self.is_reviewed, "a review that no server announced: {review:?}");
                self.reviews.push(review);
            }
            FromAgent::Delta(delta) => self.apply_delta(delta),
            FromAgent::Report { n, report } => {
                if n > self.reports.len() as u64 {
                    assert_eq!(n, self.reports.len() as u64 + 1, "a report is missing");
                    self.record_report(report);
                } else {
                    assert_eq!(self.reports[n as usize - 1], report, "a report changed");
                }
                self.link.send(&ToAgent::Ack { n }).await;
            }
        }
    }

    fn apply_delta(&mut self, Delta { kind, item, offset, content }: Delta) {
        assert!(!self.ended.contains(&item), "a delta after the end of `{item}`");
        let received = self.deltas.entry((item, kind)).or_default();
        if offset == 0 {
            received.clear();
        }
        assert_eq!(offset, received.len() as u64, "a gap between deltas");
        received.push_str(&content);
    }

    fn record_report(&mut self, report: AgentReport) {
        if let AgentReport::Event { body, .. } = &report {
            assert_fits_into_an_event(body.clone());
            assert!(body.clone().accept_from_agent().is_ok(), "`{}` is not an agent's event", body.name());
        }
        if let AgentReport::Event { item: Some(item), body: EventBody::Observation(observation) } = &report
            // A question is about its item, and does not end it.
            && observation.name() != "confirm"
        {
            assert!(self.ended.insert(item.clone()), "two observations of `{item}`");
        }
        self.reports.push(report);
    }

    pub(crate) async fn until(&mut self, done: impl Fn(&AgentTestSession) -> bool) {
        while !done(self) {
            self.step().await;
        }
    }

    /// Waits for the end of a turn or a user action.
    pub(crate) async fn outcome(&mut self, target: &str) -> WorkOutcome {
        loop {
            let found = self.reports.iter().find_map(|report| match report {
                AgentReport::TurnEnded { turn: id, outcome }
                | AgentReport::UserActionEnded { user_action: id, outcome }
                    if id == target =>
                {
                    Some(outcome)
                }
                _ => None,
            });
            if let Some(outcome) = found {
                return outcome.clone();
            }
            self.step().await;
        }
    }

    /// Waits until an output contains `text`, and returns the rest of that line.
    pub(crate) async fn output_after(&mut self, text: &str) -> String {
        loop {
            let outputs = self.deltas.iter().filter(|((_, kind), _)| *kind == DeltaKind::Output);
            for (_, output) in outputs {
                if let Some((_, rest)) = output.split_once(text)
                    && let Some((line, _)) = rest.split_once('\n')
                {
                    return line.to_owned();
                }
            }
            self.step().await;
        }
    }

    /// Returns the observations, oldest first.
    pub(crate) fn observations(&self) -> Vec<&Observation> {
        let observation = |report| match report {
            &AgentReport::Event { body: EventBody::Observation(ref observation), .. } => Some(observation),
            _ => None,
        };
        self.reports.iter().filter_map(observation).collect()
    }

    /// Returns the items of the events, oldest first.
    pub(crate) fn items(&self) -> Vec<&str> {
        let events = self.reports.iter().filter_map(|report| match report {
            AgentReport::Event { item, .. } => item.as_deref(),
            _ => None,
        });
        events.collect()
    }

    /// Returns the joined pieces of the text that ends `item`.
    pub(crate) fn pieces(&self, item: &str) -> String {
        let mut whole = String::new();
        for report in &self.reports {
            let AgentReport::Piece { item: target, offset, text, .. } = report else { continue };
            if target == item {
                assert_eq!(*offset, whole.len() as u64, "a gap between pieces");
                whole.push_str(text);
            }
        }
        whole
    }

    /// Returns every event in short form, as `name item: summary`.
    pub(crate) fn events(&self) -> Vec<String> {
        let short = |report: &AgentReport| match report {
            AgentReport::Event { item, body } => {
                let item = item.as_deref().filter(|item| item.len() < 26).unwrap_or("_");
                Some(match body {
                    EventBody::Action(action) => format!("{}! {item}", action.name()),
                    EventBody::Observation(observation) => {
                        format!("{} {item}: {}{}", observation.name(), summary(observation), observation.content)
                    }
                    EventBody::Opaque(_) => panic!("an event of no known kind"),
                })
            }
            AgentReport::TurnEnded { .. } | AgentReport::Steered { .. } | AgentReport::SteerMissed { .. } => None,
            AgentReport::UserActionEnded { .. } | AgentReport::Piece { .. } => None,
        };
        self.reports.iter().filter_map(short).collect()
    }
}

/// Asserts the size of an event. The server stores large content elsewhere, and nothing else.
fn assert_fits_into_an_event(mut body: EventBody) {
    if let EventBody::Observation(observation) = &mut body {
        observation.content.clear();
    }
    let size = serde_json::to_string(&body).expect("an event serializes").len();
    assert!(size <= EVENT_LIMIT / 2, "`{}` has {size} bytes", body.name());
}

fn summary(observation: &Observation) -> String {
    match &observation.kind {
        ObservationKind::Run { exit_code: Some(code), .. } => format!("[{code}] "),
        ObservationKind::Run { timed_out: true, .. } => "[timed out] ".to_owned(),
        ObservationKind::Run { .. } => "[killed] ".to_owned(),
        ObservationKind::Message { partial: true } | ObservationKind::Think { partial: true } => {
            "[partial] ".to_owned()
        }
        ObservationKind::Error { detail, .. } | ObservationKind::Notice { detail, .. } => detail.clone(),
        _ => String::new(),
    }
}

async fn hello(link: &mut AgentTestLink) -> AgentHello {
    match link.receive().await {
        FromAgent::Hello(hello) => {
            assert_eq!(hello.link_version, LINK_VERSION);
            hello
        }
        other => panic!("the first frame is {other:?}"),
    }
}

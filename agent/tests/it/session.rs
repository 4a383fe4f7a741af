//! A server that keeps what the agent reports, and checks at every frame what the link promises.

use std::collections::{HashMap, HashSet};

use greenroom_protocol::{
    Action, Body, Delta, DeltaKind, Event, Observation, Seen,
    link::{Command, EVENT_LIMIT, FromAgent, Hello, LINK_VERSION, Numbered, Outcome, Report, ToAgent, Welcome},
};

use crate::{
    agent::{Agent, Link},
    gateway::Answer,
};

pub(crate) struct Session {
    pub(crate) agent: Agent,
    pub(crate) link: Link,
    pub(crate) hello: Hello,
    /// Every report so far; the first has the number 1.
    pub(crate) reports: Vec<Report>,
    /// What a listener to deltas has of each item.
    pub(crate) heard: HashMap<(String, DeltaKind), String>,
    pub(crate) taken: Vec<String>,
    /// Items that an observation has ended.
    ended: HashSet<String>,
    orders: usize,
}

impl Session {
    /// A session that begins.
    pub(crate) async fn open(answers: Vec<Answer>) -> Session {
        Session::with_history(Agent::start(answers), Vec::new()).await
    }

    /// A session that goes on in an agent that knows nothing.
    pub(crate) async fn with_history(agent: Agent, events: Vec<Event>) -> Session {
        let mut link = agent.dial().await;
        let hello = hello(&mut link).await;
        let mut session = Session {
            agent,
            link,
            hello,
            reports: Vec::new(),
            heard: HashMap::new(),
            taken: Vec::new(),
            ended: HashSet::new(),
            orders: 0,
        };
        session.welcome(true).await;
        session.link.say(&ToAgent::History { events, complete: true }).await;
        // The agent answers in order: it has the history, and from now on its name.
        session.link.ping().await;
        session
    }

    /// Drops the connection and makes a new one.
    pub(crate) async fn redial(&mut self) {
        self.redial_to(false).await;
    }

    /// The same as a server that may have forgotten that it knows this boot.
    pub(crate) async fn redial_to(&mut self, restore: bool) {
        self.link = self.agent.dial().await;
        let before = self.hello.boot.clone();
        self.hello = hello(&mut self.link).await;
        assert_eq!(self.hello.boot, before);
        self.welcome(restore).await;
    }

    async fn welcome(&mut self, restore: bool) {
        let (acked, settings) = (self.reports.len() as u64, self.agent.settings.clone());
        self.link.say(&ToAgent::Welcome(Welcome { session: "s".into(), acked, restore, settings })).await;
    }

    pub(crate) async fn order(&mut self, command: Command) -> String {
        self.orders += 1;
        let id = format!("order-{}", self.orders);
        self.order_again(&id, command).await;
        id
    }

    pub(crate) async fn order_again(&mut self, id: &str, command: Command) {
        self.link.say(&ToAgent::Command(Numbered { id: id.into(), command })).await;
    }

    pub(crate) async fn prompt(&mut self, turn: &str, content: &str) {
        let (turn, content) = (turn.to_owned(), content.to_owned());
        self.order(Command::Prompt { turn, content, attachments: Vec::new() }).await;
    }

    pub(crate) async fn act(&mut self, act: &str, action: Action) {
        self.order(Command::Act { act: act.to_owned(), action }).await;
    }

    /// Takes one frame.
    pub(crate) async fn step(&mut self) {
        match self.link.hear().await {
            FromAgent::Hello(_) => panic!("a second hello"),
            FromAgent::Taken { command } => self.taken.push(command),
            FromAgent::Delta(delta) => self.hear_delta(delta),
            FromAgent::Report { n, report } => {
                if n > self.reports.len() as u64 {
                    assert_eq!(n, self.reports.len() as u64 + 1, "a report is missing");
                    self.keep(report);
                } else {
                    assert_eq!(self.reports[n as usize - 1], report, "a report changed");
                }
                self.link.say(&ToAgent::Ack { n }).await;
            }
        }
    }

    fn hear_delta(&mut self, Delta { kind, item, offset, content }: Delta) {
        assert!(!self.ended.contains(&item), "a delta after the end of `{item}`");
        let heard = self.heard.entry((item, kind)).or_default();
        if offset == 0 {
            heard.clear();
        }
        assert_eq!(offset, heard.len() as u64, "a gap between deltas");
        heard.push_str(&content);
    }

    fn keep(&mut self, report: Report) {
        if let Report::Event { body, .. } = &report {
            assert_fits_into_an_event(body.clone());
            assert!(body.clone().of_an_agent().is_ok(), "`{}` is not for an agent to say", body.name());
        }
        if let Report::Event { item: Some(item), body: Body::Observation(_) } = &report {
            assert!(self.ended.insert(item.clone()), "two observations of `{item}`");
        }
        self.reports.push(report);
    }

    pub(crate) async fn until(&mut self, done: impl Fn(&Session) -> bool) {
        while !done(self) {
            self.step().await;
        }
    }

    /// Waits for the end of a turn or of an act.
    pub(crate) async fn outcome(&mut self, of: &str) -> Outcome {
        loop {
            let found = self.reports.iter().find_map(|report| match report {
                Report::TurnEnded { turn: id, outcome } | Report::ActEnded { act: id, outcome } if id == of => {
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

    /// Waits until an output contains `text`, and returns what follows it on its line.
    pub(crate) async fn output_after(&mut self, text: &str) -> String {
        loop {
            let outputs = self.heard.iter().filter(|((_, kind), _)| *kind == DeltaKind::Output);
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

    /// The observations, oldest first.
    pub(crate) fn observations(&self) -> Vec<&Observation> {
        let observation = |report| match report {
            &Report::Event { body: Body::Observation(ref observation), .. } => Some(observation),
            _ => None,
        };
        self.reports.iter().filter_map(observation).collect()
    }

    /// The names of what the events are about, oldest first.
    pub(crate) fn items(&self) -> Vec<&str> {
        let events = self.reports.iter().filter_map(|report| match report {
            Report::Event { item, .. } => item.as_deref(),
            _ => None,
        });
        events.collect()
    }

    /// What was told in pieces of the text that ends `item`.
    pub(crate) fn pieces(&self, item: &str) -> String {
        let mut whole = String::new();
        for report in &self.reports {
            let Report::Piece { item: of, offset, text } = report else { continue };
            if of == item {
                assert_eq!(*offset, whole.len() as u64, "a gap between pieces");
                whole.push_str(text);
            }
        }
        whole
    }

    /// Every event in short, as `name item: the gist of it`.
    pub(crate) fn events(&self) -> Vec<String> {
        let short = |report: &Report| match report {
            Report::Event { item, body } => {
                let item = item.as_deref().filter(|item| item.len() < 26).unwrap_or("_");
                Some(match body {
                    Body::Action(action) => format!("{}! {item}", action.name()),
                    Body::Observation(seen) => format!("{} {item}: {}{}", seen.name(), gist(seen), seen.content),
                    Body::Opaque(_) => panic!("an event of no known kind"),
                })
            }
            Report::TurnEnded { .. } | Report::Steered { .. } | Report::SteerMissed { .. } => None,
            Report::ActEnded { .. } | Report::Piece { .. } => None,
        };
        self.reports.iter().filter_map(short).collect()
    }
}

/// The server keeps the content elsewhere if it is large, and nothing else.
fn assert_fits_into_an_event(mut body: Body) {
    if let Body::Observation(observation) = &mut body {
        observation.content.clear();
    }
    let size = serde_json::to_string(&body).expect("it serializes").len();
    assert!(size <= EVENT_LIMIT / 2, "`{}` has {size} bytes", body.name());
}

fn gist(observation: &Observation) -> String {
    match &observation.seen {
        Seen::Run { exit_code: Some(code), .. } => format!("[{code}] "),
        Seen::Run { timed_out: true, .. } => "[timed out] ".to_owned(),
        Seen::Run { .. } => "[killed] ".to_owned(),
        Seen::Message { partial: true } | Seen::Think { partial: true } => "[partial] ".to_owned(),
        Seen::Error { detail, .. } => detail.clone(),
        _ => String::new(),
    }
}

async fn hello(link: &mut Link) -> Hello {
    match link.hear().await {
        FromAgent::Hello(hello) => {
            assert_eq!(hello.link_version, LINK_VERSION);
            hello
        }
        other => panic!("the first frame is {other:?}"),
    }
}

//! Processes that a command leaves behind.

use greenroom_protocol::{
    Action, Observation, ObservationKind,
    link::{AgentCommand, WorkOutcome},
    observation::LeftoverProcess,
};

use crate::session::AgentTestSession;

impl AgentTestSession {
    /// Returns the lists of leftovers so far, oldest first.
    fn lists(&self) -> Vec<Vec<LeftoverProcess>> {
        let list = |observation: &&Observation| match &observation.kind {
            ObservationKind::Commands { items, .. } => Some(items.clone()),
            _ => None,
        };
        self.observations().iter().filter_map(list).collect()
    }

    /// Runs a command to its end.
    async fn run(&mut self, id: &str, command: &str) {
        self.user_action(id, Action::Run { command: command.to_owned() }).await;
        assert_eq!(self.outcome(id).await, WorkOutcome::Done);
    }

    /// Waits until the newest list has this many processes.
    async fn until_left(&mut self, count: usize) -> Vec<LeftoverProcess> {
        self.until(|session| session.lists().last().is_some_and(|list| list.len() == count)).await;
        self.lists().pop().expect("a list has come")
    }
}

#[tokio::test]
async fn leftovers_are_listed_until_they_end() {
    let mut session = AgentTestSession::open(Vec::new()).await;
    session.run("act-1", "sleep 1000 & setsid sh -c 'sleep 1001; true' >/dev/null 2>&1 &").await;
    // A first list may show the forks of the shell.
    let names = ["sleep 1000", "sh -c sleep 1001; true", "sleep 1001"];
    session
        .until(|session| {
            let lists = session.lists();
            let is_listed = |name: &&str| lists.last().is_some_and(|list| list.iter().any(|left| left.name == **name));
            names.iter().all(is_listed)
        })
        .await;
    let list = session.until_left(3).await;
    assert!(list.iter().all(|process| process.memory_bytes > 0 && process.age_s < 60), "{list:?}");
    let shell = list.iter().find(|process| process.name.starts_with("sh ")).expect("the shell is listed");
    session.send_command(AgentCommand::KillProcess { pid: shell.pid }).await;
    let list = session.until_left(1).await;
    assert_eq!(list[0].name, "sleep 1000", "everything below the ended process ends with it");
    session.send_command(AgentCommand::KillLeftovers {}).await;
    session.until_left(0).await;
}

#[tokio::test]
async fn running_command_is_no_leftover_and_survives_their_end() {
    let mut session = AgentTestSession::open(Vec::new()).await;
    session.run("act-1", "sleep 1000 &").await;
    session.until_left(1).await;
    let waits = "echo begun; setsid sh -c 'until [ -e go ]; do sleep 0.01; done' & wait; echo over";
    session.user_action("act-2", Action::Run { command: waits.to_owned() }).await;
    session.output_after("begun").await;
    session.send_command(AgentCommand::KillLeftovers {}).await;
    session.until_left(0).await;
    std::fs::write(session.agent.file("go"), "").expect("the workspace exists");
    assert_eq!(session.outcome("act-2").await, WorkOutcome::Done);
    assert!(session.events().iter().any(|event| event.contains("[0] begun\nover")), "{:?}", session.events());
}

#[tokio::test]
async fn command_without_leftovers_reports_no_list() {
    let mut session = AgentTestSession::open(Vec::new()).await;
    session.run("act-1", "true").await;
    session.send_command(AgentCommand::KillProcess { pid: 1 }).await;
    session.until_left(0).await;
    assert_eq!(session.lists().len(), 1, "only the request is answered");
}

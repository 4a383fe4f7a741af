//! Agents die. Every client is told, with the exit code, and the next message goes on from the journal.

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    driver::{Driver, on_each_driver},
    host,
    model::Model,
    server::{Options, Server},
    socket::Socket,
};

on_each_driver!(a_killed_agent_is_told_and_the_next_message_goes_on, one_death_is_nobody_elses);

async fn a_killed_agent_is_told_and_the_next_message_goes_on(driver: Driver) {
    let model = Model::play("work");
    let server = Server::start(Options::anthropic(driver, &model)).await;
    let mut socket = Socket::open(&server.rest).await;
    socket.act("start", json!({ "task": "wait for go" })).await;
    let session = socket.session().await;
    socket.delta("output").await;
    let mut other = Socket::attach_after(&server.rest, &session, "tail").await;
    other.status("synced").await;

    kill_agents(&server);
    for client in [&mut socket, &mut other] {
        let lost = client
            .until("the news of its death", |frame| {
                frame["observation"] == "sandbox" && frame["extras"]["phase"] == "lost"
            })
            .await;
        assert_eq!(lost["extras"]["exit_code"], 137, "{lost}");
    }
    assert!(host::processes(server.home()).iter().all(|process| !process.command.contains("sleep 0.05")));

    socket.act("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    let asked = model.calls().pop().expect("the model was asked").body.to_string();
    assert!(asked.contains("wait for go"), "the agent knows what came before: {asked}");
}

async fn one_death_is_nobody_elses(driver: Driver) {
    let model = Model::play("work");
    let server = Server::start(Options::anthropic(driver, &model)).await;
    let victim = server.rest.start("wait for go").await;
    server.rest.until_state(&victim, "running").await;
    crate::harness::eventually("the first agent", || async { host::agents(server.home()).len() == 1 }).await;
    let doomed = host::agents(server.home());
    let mut socket = Socket::open(&server.rest).await;
    socket.act("start", json!({ "task": "tell a short story" })).await;
    socket.delta("text").await;
    doomed.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
    let whole = socket.observation("message").await;
    assert_eq!(whole["content"].as_str().expect("a text").trim_end(), "tick ".repeat(150).trim_end());
}

fn kill_agents(server: &Server) {
    let agents = host::agents(server.home());
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
}

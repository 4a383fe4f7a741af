//! What the journals say in the end, beside what everybody was told.

use std::{collections::HashMap, fs, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Broken,
    world::{Told, World, hash},
};
use crate::harness::{leftovers, rest::Rest, server::Server, socket::Socket};

/// How long the sessions may take, all at once, to come to rest when nobody disturbs them any more.
const REST: Duration = Duration::from_secs(600);

pub(super) async fn judge(world: &World, server: &Server, sessions: &[String]) {
    let rested = join_all(sessions.iter().map(|session| come_to_rest(&server.rest, session))).await;
    for (session, rested) in sessions.iter().zip(rested) {
        match rested {
            Ok(()) => history(world, server, session).await,
            Err(how) => world.broken(Broken::Otherwise, format!("{session} does not come to rest: {how}")),
        }
    }
    if world.is_broken() {
        keep(server, sessions).await;
    }
    for left in leftovers::of(server).await {
        world.broken(Broken::Otherwise, format!("left behind: {left}"));
    }
}

/// What is needed to find out why.
async fn keep(server: &Server, sessions: &[String]) {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("target/soak");
    fs::create_dir_all(&place).expect("the target directory can be written");
    for session in sessions {
        let events: Vec<String> = server.rest.events(session).await.iter().map(Value::to_string).collect();
        fs::write(place.join(format!("{session}.jsonl")), events.join("\n")).expect("there is room");
    }
    fs::write(place.join("actors.json"), server.rest.get("/api/admin/actors").await.text).expect("there is room");
    fs::write(place.join("server.log"), server.log()).expect("there is room");
    eprintln!("journals, actors and the server's log are in {}", place.display());
}

/// Wakes it with a message, waits until it has said its last word, and looks at what the sandbox holds.
async fn come_to_rest(rest: &Rest, session: &str) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let found = rest.session(session).await;
        let state = found["state"].as_str().unwrap_or_default().to_owned();
        match state.as_str() {
            "idle" if !has_a_queue(rest, session).await => return Ok(()),
            // Held after an interrupt, frozen, stopped: a person goes on with it.
            "idle" | "paused" | "stopped" | "failed" => {
                drop(rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await);
            }
            _ => {}
        }
        if began.elapsed() > REST {
            return Err(found.to_string());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn has_a_queue(rest: &Rest, session: &str) -> bool {
    let events = rest.events(session).await;
    let last = events.iter().rev().find(|event| event["observation"] == "queue");
    last.is_some_and(|queue| queue["extras"]["items"].as_array().is_some_and(|items| !items.is_empty()))
}

async fn history(world: &World, server: &Server, session: &str) {
    let broken = |how, what: String| world.broken(how, format!("{session}: {what}"));
    let events = server.rest.events(session).await;
    for (n, event) in (1..).zip(&events) {
        if event["seq"] != n {
            broken(Broken::OutOfOrder, format!("event {} stands in place {n}", event["seq"]));
            return;
        }
        if event["cause"].as_u64().is_some_and(|cause| cause >= n) {
            broken(Broken::OutOfOrder, format!("event {n} is caused by a later one"));
        }
    }
    for (seq, seen) in world.seen_of(session) {
        match events.get(seq as usize - 1) {
            None => broken(Broken::Lost, format!("event {seq} was seen and is lost")),
            Some(event) if hash(event) != seen => {
                broken(Broken::Changed, format!("event {seq} was seen as another: {event}"))
            }
            Some(_) => {}
        }
    }
    told(world, session, &events);
    let wishes = wishes(world, session, &events);
    acts(world, server, session, &events).await;
    contents(world, server, session, &events).await;
    let chats: Vec<&Value> = events.iter().filter(|event| event["observation"] == "chat").collect();
    let mut items: Vec<_> = chats.iter().map(|chat| chat["item"].to_string()).collect();
    items.sort();
    if items.windows(2).any(|two| two[0] == two[1]) {
        broken(Broken::Doubled, "a message was given to the agent twice".to_owned());
    }
    world.found(events.len() as u64, chats.len() as u64, wishes);
}

/// What chats were told is what the events say.
fn told(world: &World, session: &str, events: &[Value]) {
    let told: Vec<_> = world.ledger().told.iter().filter(|told| told.session == session).cloned().collect();
    for Told { seq, frame, .. } in told {
        let Some(event) = events.get(seq as usize - 1) else {
            world.broken(Broken::Lost, format!("{session}: a chat was told of event {seq}, which is lost"));
            continue;
        };
        let said = frame["content"].as_str().unwrap_or_default();
        let content = event["content"].as_str().unwrap_or_default();
        let is_so = match frame["type"].as_str().unwrap_or_default() {
            "text_delta" => event["observation"] == "message" && content.ends_with(said),
            "thinking" => event["observation"] == "think" && content.ends_with(said),
            "tool_use_start" => event["action"] == frame["tool_name"] && event["args"] == frame["tool_input"],
            "tool_result" => said == content || event["extras"]["detail"] == said,
            "cost_update" => event["observation"] == "usage",
            _ => event["observation"].is_string(),
        };
        if !is_so {
            world.broken(
                Broken::Changed,
                format!("{session}: of event {seq} a chat was told {frame}, and it is {event}"),
            );
        }
    }
}

/// Each wish is where the server said that it is, and nowhere else.
fn wishes(world: &World, session: &str, events: &[Value]) -> u64 {
    let mut at: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in events.iter().filter(|event| event["source"] == "user") {
        let args = &event["args"];
        if let Some(text) = args["content"].as_str().or_else(|| args["command"].as_str()) {
            at.entry(text).or_default().push(event["seq"].as_u64().unwrap_or_default());
        }
    }
    let wishes: Vec<_> = world.ledger().wishes.iter().filter(|wish| wish.session == session).cloned().collect();
    for wish in &wishes {
        let found = at.get(wish.text.as_str()).map(Vec::as_slice).unwrap_or_default();
        let right = match wish.seq {
            Some(seq) => found == [seq],
            None => found.len() <= 1,
        };
        if !right {
            let how = match found {
                [] => Broken::Lost,
                [_] => Broken::Changed,
                _ => Broken::Doubled,
            };
            let what = format!("{session}: {} `{}` at {:?} is found at {found:?}", wish.action, wish.text, wish.seq);
            world.broken(how, what);
        }
    }
    wishes.iter().filter(|wish| wish.seq.is_some()).count() as u64
}

/// Each command of a person ran at most once, and ran if it says so.
async fn acts(world: &World, server: &Server, session: &str, events: &[Value]) {
    let after = events.len();
    let mut socket = Socket::attach_after(&server.rest, session, after).await;
    socket.act("run", json!({ "command": "cat acts; true" })).await;
    let listed = socket.observation("run").await;
    let listed: Vec<&str> = listed["content"].as_str().unwrap_or_default().lines().map(str::trim).collect();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    for two in sorted.windows(2).filter(|two| two[0] == two[1] && !two[0].is_empty()) {
        world.broken(Broken::Doubled, format!("{session}: `{}` ran twice", two[0]));
    }
    let ran = events.iter().filter(|event| event["observation"] == "run" && event["extras"]["exit_code"] == 0);
    for event in ran {
        let output = event["content"].as_str().unwrap_or_default().trim();
        if output.starts_with("act-") && !listed.contains(&output) {
            world.broken(
                Broken::Lost,
                format!("{session}: event {} says that `{output}` ran, and it did not", event["seq"]),
            );
        }
    }
}

/// Prints more than fits into a report.
pub(super) const POUR: &str = "seq 1 600000; echo MARK";

/// What was too large for its event is there whole.
async fn contents(world: &World, server: &Server, session: &str, events: &[Value]) {
    let poured: String = (1..=600_000).map(|n| format!("{n}\n")).chain(["MARK\n".to_owned()]).collect();
    let whole = |event: &&Value| event["extras"]["command"] == POUR && event["extras"]["exit_code"] == 0;
    for event in events.iter().filter(|event| event["observation"] == "run").filter(whole) {
        let found = match event["extras"]["truncated"]["href"].as_str() {
            Some(href) => server.rest.get(href).await.text,
            None => String::new(),
        };
        if found != poured {
            let (kept, of) = (found.len(), poured.len());
            let what = format!("{session}: of event {} {kept} bytes are kept, not {of}", event["seq"]);
            world.broken(Broken::Lost, what);
        }
    }
}

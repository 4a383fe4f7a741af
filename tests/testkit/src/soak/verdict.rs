//! Verdict: the journals at the end, compared with everything that clients received.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::Duration,
};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    BrokenPromise,
    world::{SoakChatFrame, SoakRequestOutcome, SoakWorld, hash},
};
use crate::{leftovers, rest::RestClient, server::TestServer, socket::TestSocket};

/// Time that all sessions together may take to become idle after the last fault.
const REST: Duration = Duration::from_secs(600);

/// Further time for a message to return from the agent: a steer that missed its turn.
const ON_ITS_WAY: Duration = Duration::from_secs(30);

pub(super) async fn judge(world: &SoakWorld, server: &TestServer, sessions: &[String]) {
    let rested = join_all(sessions.iter().map(|session| wait_until_idle(&server.rest, session))).await;
    for (session, rested) in sessions.iter().zip(rested) {
        match rested {
            Ok(()) => history(world, server, session).await,
            Err(how) => world.broken(BrokenPromise::Otherwise, format!("{session} does not become idle: {how}")),
        }
    }
    if world.is_broken() {
        save(server, sessions).await;
    }
    for left in leftovers::of(server).await {
        world.broken(BrokenPromise::Otherwise, format!("left behind: {left}"));
    }
}

/// Saves what is needed to investigate.
async fn save(server: &TestServer, sessions: &[String]) {
    let place = std::path::Path::new(crate::WORKSPACE).join("target/soak");
    fs::create_dir_all(&place).expect("the target directory can be written");
    for session in sessions {
        let events: Vec<String> = server.rest.events(session).await.iter().map(Value::to_string).collect();
        fs::write(place.join(format!("{session}.jsonl")), events.join("\n")).expect("there is room");
    }
    fs::write(place.join("actors.json"), server.rest.get("/api/admin/actors").await.text).expect("there is room");
    fs::write(place.join("server.log"), server.log()).expect("there is room");
    eprintln!("journals, actors and the server's log are in {}", place.display());
}

/// Waits until the session is idle and every message has reached the agent; resumes the session as
/// often as needed.
async fn wait_until_idle(rest: &RestClient, session: &str) -> Result<(), String> {
    let began = Instant::now();
    let mut quiet: Option<Instant> = None;
    loop {
        let found = rest.session(session).await;
        let state = found["state"].as_str().unwrap_or_default().to_owned();
        let events = if state == "idle" { rest.events(session).await } else { Vec::new() };
        match state.as_str() {
            "idle" if !has_a_queue(&events) => {
                let quiet = quiet.get_or_insert_with(Instant::now);
                if undelivered(&events).is_empty() || quiet.elapsed() > ON_ITS_WAY {
                    return Ok(());
                }
            }
            // Held after an interrupt, paused, stopped or failed: the session is resumed.
            "idle" | "paused" | "stopped" | "failed" => {
                quiet = None;
                drop(rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await);
            }
            _ => quiet = None,
        }
        if began.elapsed() > REST {
            return Err(found.to_string());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn has_a_queue(events: &[Value]) -> bool {
    let last = events.iter().rev().find(|event| event["observation"] == "queue");
    last.is_some_and(|queue| queue["extras"]["items"].as_array().is_some_and(|items| !items.is_empty()))
}

/// Returns the user's messages that the agent did not receive exactly once, with their counts.
///
/// No message is taken back here, and no session is closed.
fn undelivered(events: &[Value]) -> Vec<(u64, usize)> {
    let mut given: HashMap<u64, usize> = HashMap::new();
    for chat in events.iter().filter(|event| event["observation"] == "chat") {
        *given.entry(chat["cause"].as_u64().unwrap_or_default()).or_default() += 1;
    }
    let messages = events.iter().filter(|event| event["action"] == "message").filter_map(|event| event["seq"].as_u64());
    let mut undelivered: Vec<_> = messages.map(|seq| (seq, given.remove(&seq).unwrap_or_default())).collect();
    undelivered.retain(|(_, times)| *times != 1);
    // The rest are turns without a message.
    undelivered.extend(given);
    undelivered
}

/// Returns repeated events of an item: an agent reports each at most once.
fn repeated_events(events: &[Value]) -> Vec<&Value> {
    let mut reported = HashSet::new();
    let mut of_an_item = events.iter().filter(|event| event["item"].is_string()).collect::<Vec<_>>();
    of_an_item.retain(|event| {
        let is_one = |name: &Value| ["message", "think", "run"].iter().any(|one| name == one);
        let (action, seen) = (&event["action"], &event["observation"]);
        (is_one(action) || is_one(seen)) && !reported.insert((event["item"].to_string(), action.clone(), seen.clone()))
    });
    of_an_item
}

async fn history(world: &SoakWorld, server: &TestServer, session: &str) {
    let broken = |how, what: String| world.broken(how, format!("{session}: {what}"));
    let events = server.rest.events(session).await;
    for (n, event) in (1..).zip(&events) {
        if event["seq"] != n {
            broken(BrokenPromise::OutOfOrder, format!("event {} is at position {n}", event["seq"]));
            return;
        }
        if event["cause"].as_u64().is_some_and(|cause| cause >= n) {
            broken(BrokenPromise::OutOfOrder, format!("event {n} is caused by a later one"));
        }
    }
    for (seq, seen) in world.seen_of(session) {
        match events.get(seq as usize - 1) {
            None => broken(BrokenPromise::Lost, format!("event {seq} was received and is lost")),
            Some(event) if hash(event) != seen => {
                broken(BrokenPromise::Changed, format!("event {seq} was received differently: {event}"))
            }
            Some(_) => {}
        }
    }
    check_chat_frames(world, session, &events);
    let requests = check_requests(world, session, &events);
    check_user_actions(world, server, session, &events).await;
    contents(world, server, session, &events).await;
    for (seq, times) in undelivered(&events) {
        let how = if times == 0 { BrokenPromise::Lost } else { BrokenPromise::Doubled };
        broken(how, format!("the message in event {seq} reached the agent {times} times"));
    }
    for event in repeated_events(&events) {
        broken(BrokenPromise::Doubled, format!("event {} repeats an earlier one: {event}", event["seq"]));
    }
    let chats = events.iter().filter(|event| event["observation"] == "chat").count();
    world.found(events.len() as u64, chats as u64, requests);
}

/// Checks that the frames of chat clients match the events.
fn check_chat_frames(world: &SoakWorld, session: &str, events: &[Value]) {
    let frames: Vec<_> = world.ledger().chat_frames.iter().filter(|frame| frame.session == session).cloned().collect();
    for SoakChatFrame { seq, frame, .. } in frames {
        let Some(event) = events.get(seq as usize - 1) else {
            world.broken(BrokenPromise::Lost, format!("{session}: a chat received event {seq}, which is lost"));
            continue;
        };
        let text = frame["content"].as_str().unwrap_or_default();
        let content = event["content"].as_str().unwrap_or_default();
        let is_so = match frame["type"].as_str().unwrap_or_default() {
            "text_delta" => event["observation"] == "message" && content.ends_with(text),
            "thinking" => event["observation"] == "think" && content.ends_with(text),
            "tool_use_start" => event["action"] == frame["tool_name"] && event["args"] == frame["tool_input"],
            "tool_result" => text == content || event["extras"]["detail"] == text,
            "cost_update" => event["observation"] == "usage",
            _ => event["observation"].is_string(),
        };
        if !is_so {
            world.broken(
                BrokenPromise::Changed,
                format!("{session}: for event {seq} a chat received {frame}, and the journal has {event}"),
            );
        }
    }
}

/// Checks that each request is at the event that its answer named, and nowhere else.
fn check_requests(world: &SoakWorld, session: &str, events: &[Value]) -> u64 {
    let mut at: HashMap<&str, Vec<u64>> = HashMap::new();
    for event in events.iter().filter(|event| event["source"] == "user") {
        let args = &event["args"];
        if let Some(text) = args["content"].as_str().or_else(|| args["command"].as_str()) {
            at.entry(text).or_default().push(event["seq"].as_u64().unwrap_or_default());
        }
    }
    let requests: Vec<_> =
        world.ledger().requests.iter().filter(|request| request.session == session).cloned().collect();
    for request in &requests {
        let found = at.get(request.text.as_str()).map(Vec::as_slice).unwrap_or_default();
        let right = match request.answer {
            SoakRequestOutcome::At(seq) => found == [seq],
            SoakRequestOutcome::Rejected => found.is_empty(),
            SoakRequestOutcome::Unknown => found.len() <= 1,
        };
        if !right {
            let how = match found {
                [] => BrokenPromise::Lost,
                [_] => BrokenPromise::Changed,
                _ => BrokenPromise::Doubled,
            };
            let what = format!(
                "{session}: {} `{}` ({:?}) is found at {found:?}",
                request.action, request.text, request.answer
            );
            world.broken(how, what);
        }
    }
    requests.iter().filter(|request| matches!(request.answer, SoakRequestOutcome::At(_))).count() as u64
}

/// Checks that each command of a person ran at most once, and ran if its event reports a result.
async fn check_user_actions(world: &SoakWorld, server: &TestServer, session: &str, events: &[Value]) {
    let after = events.len();
    let mut socket = TestSocket::attach_after(&server.rest, session, after).await;
    socket.send_request("run", json!({ "command": "cat acts; true" })).await;
    let listed = socket.observation("run").await;
    let listed: Vec<&str> = listed["content"].as_str().unwrap_or_default().lines().map(str::trim).collect();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    for two in sorted.windows(2).filter(|two| two[0] == two[1] && !two[0].is_empty()) {
        world.broken(BrokenPromise::Doubled, format!("{session}: `{}` ran twice", two[0]));
    }
    let ran = events.iter().filter(|event| event["observation"] == "run" && event["extras"]["exit_code"] == 0);
    for event in ran {
        let output = event["content"].as_str().unwrap_or_default().trim();
        if output.starts_with("act-") && !listed.contains(&output) {
            world.broken(
                BrokenPromise::Lost,
                format!("{session}: event {} reports that `{output}` ran, but it did not", event["seq"]),
            );
        }
    }
}

/// Command with little output, over a time.
pub(super) const WORK: &str = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.01; done; echo MARK";
/// Command with more output than fits into an event.
pub(super) const FLOOD: &str = "seq 1 20000; echo MARK";
/// Command with more output than fits into a report.
pub(super) const POUR: &str = "seq 1 600000; echo MARK";

/// Checks that outputs can be fetched whole, also those that are too large for their event.
async fn contents(world: &SoakWorld, server: &TestServer, session: &str, events: &[Value]) {
    let printed = |word: &str, lines| (1..=lines).map(|n| format!("{word}{n}\n")).collect::<String>() + "MARK\n";
    let prints = [(WORK, printed("line ", 40)), (FLOOD, printed("", 20_000)), (POUR, printed("", 600_000))];
    for event in events.iter().filter(|event| event["observation"] == "run" && event["extras"]["exit_code"] == 0) {
        let Some((_, whole)) = prints.iter().find(|(command, _)| event["extras"]["command"] == *command) else {
            continue;
        };
        let kept = match event["extras"]["truncated"]["href"].as_str() {
            Some(href) => server.rest.get(href).await.text,
            None => event["content"].as_str().unwrap_or_default().to_owned(),
        };
        if kept != *whole {
            let what = format!(
                "{session}: event {} has {} bytes of content instead of {}",
                event["seq"],
                kept.len(),
                whole.len()
            );
            world.broken(BrokenPromise::Lost, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: u64) -> Value {
        json!({ "seq": seq, "source": "user", "item": format!("message-{seq}"), "action": "message" })
    }

    fn chat(seq: u64, cause: u64) -> Value {
        json!({ "seq": seq, "source": "user", "item": format!("message-{cause}"), "cause": cause, "observation": "chat" })
    }

    #[test]
    fn each_message_is_given_once() {
        let check = |events: &[Value], expected: &[(u64, usize)]| assert_eq!(undelivered(events), expected);
        check(&[message(1), chat(2, 1), message(3), message(4), chat(5, 4), chat(6, 3)], &[]);
        check(&[message(1), chat(2, 1), message(3)], &[(3, 0)]);
        check(&[message(1), chat(2, 1), chat(3, 1)], &[(1, 2)]);
        check(&[chat(2, 1)], &[(1, 1)]);
    }

    #[test]
    fn nothing_is_said_twice_of_an_item() {
        let of = |seq: u64, item: &str, what: &str, name: &str| json!({ "seq": seq, "item": item, what: name });
        let check = |events: &[Value], expected: &[u64]| {
            let again: Vec<_> = repeated_events(events).iter().filter_map(|event| event["seq"].as_u64()).collect();
            assert_eq!(again, expected);
        };
        let ran = [of(1, "a", "action", "run"), of(2, "a", "observation", "run"), of(3, "b", "observation", "run")];
        check(&ran, &[]);
        check(&[&ran[..], &[of(4, "a", "observation", "run")]].concat(), &[4]);
        check(&[of(1, "a", "observation", "think"), of(2, "b", "observation", "think")], &[]);
        check(&[of(1, "a", "observation", "message"), of(2, "a", "observation", "message")], &[2]);
        check(&[of(1, "a", "observation", "error"), of(2, "a", "observation", "error")], &[]);
    }
}

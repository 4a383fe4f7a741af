//! Somebody who asks for things, and asks again under the same name where no answer came.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    Broken,
    wire::{Heard, Wire},
    world::{Answered, Wished, World},
};

/// How long a person waits for an answer on one connection.
const ANSWER: Duration = Duration::from_secs(3);

const WORDS: [&str; 7] = ["talk", "mumble", "ponder", "work", "flood", "pour", "dawdle"];

enum Answer {
    Accepted(u64),
    /// With these words.
    Refused(Value),
    /// No answer, or one that says to try again.
    Unknown,
    /// Nobody was there to ask.
    NotAsked,
}

pub(super) async fn ask(world: Arc<World>, session: String, mut dice: fastrand::Rng) {
    let mut n = 0;
    while !world.is_over() {
        n += 1;
        let (action, args, text) = wish(n, &mut dice);
        let frame = json!({ "action": action, "args": args, "id": format!("{action}-{n}") });
        let answer = insist(&world, &session, &frame, &mut dice).await;
        if let Some(text) = text {
            world.wished(Wished { session: session.clone(), action, text, answer });
        }
        sleep(Duration::from_millis(dice.u64(0..700))).await;
    }
}

/// What is asked for next, and the words by which it is found again.
fn wish(n: u64, dice: &mut fastrand::Rng) -> (&'static str, Value, Option<String>) {
    match dice.u8(0..20) {
        0..9 => {
            let mode = ["queue", "queue", "steer", "interrupt"][dice.usize(0..4)];
            let text = format!("{} number-{n}-", WORDS[dice.usize(0..WORDS.len())]);
            ("message", json!({ "content": text, "mode": mode }), Some(text))
        }
        9..14 => {
            let text = format!("echo act-{n}- >> acts; echo act-{n}-");
            ("run", json!({ "command": text }), Some(text))
        }
        14..16 => ("interrupt", json!({}), None),
        16 | 17 => ("pause", json!({}), None),
        18 => ("resume", json!({}), None),
        _ => ("stop", json!({}), None),
    }
}

async fn insist(world: &World, session: &str, frame: &Value, dice: &mut fastrand::Rng) -> Answered {
    let (mut first, mut may_be_done) = (None, false);
    while !world.is_over() {
        // A name is the same whichever way it comes.
        let answer = if frame["action"] == "message" && dice.bool() {
            by_rest(world, session, frame).await
        } else if let Some(mut wire) = Wire::attach(world, session, "tail").await {
            once(&mut wire, frame).await
        } else {
            Answer::NotAsked
        };
        match (answer, first) {
            (Answer::Accepted(seq), None) if seq % 4 != 0 => return Answered::At(seq),
            // What is asked again under its name is not done again.
            (Answer::Accepted(seq), None) => first = Some(seq),
            (Answer::Accepted(seq), Some(first)) => {
                if first != seq {
                    let what = format!("{session}: asked again, {frame} was at {seq} and not at {first}");
                    world.broken(Broken::Changed, what);
                }
                return Answered::At(seq);
            }
            (Answer::Refused(why), Some(first)) => {
                let what = format!("{session}: asked again, {frame} was refused and not at {first}: {why}");
                world.broken(Broken::Changed, what);
                return Answered::At(first);
            }
            // What was asked before may be on its way still.
            (Answer::Refused(_), None) if may_be_done => return Answered::Never,
            (Answer::Refused(_), None) => return Answered::Refused,
            (Answer::Unknown, _) => {
                may_be_done = true;
                sleep(Duration::from_millis(50)).await;
            }
            (Answer::NotAsked, _) => sleep(Duration::from_millis(50)).await,
        }
    }
    first.map_or(Answered::Never, Answered::At)
}

/// The same over REST.
async fn by_rest(world: &World, session: &str, frame: &Value) -> Answer {
    let path = format!("/api/sessions/{session}/messages");
    let request = world.rest.request(Method::POST, &path).timeout(ANSWER).json(&frame["args"]);
    let key = frame["id"].as_str().expect("a wish has a name");
    let Ok(response) = request.header("idempotency-key", key).send().await else { return Answer::Unknown };
    let status = response.status();
    match response.json::<Value>().await {
        Ok(receipt) if status.is_success() => accepted(receipt),
        Ok(why) if status.is_client_error() => Answer::Refused(why),
        Ok(_) | Err(_) => Answer::Unknown,
    }
}

/// All that is asked for here is written down.
fn accepted(receipt: Value) -> Answer {
    receipt["seq"].as_u64().map_or(Answer::Refused(receipt), Answer::Accepted)
}

async fn once(wire: &mut Wire, frame: &Value) -> Answer {
    if !wire.say(frame).await {
        return Answer::Unknown;
    }
    let until = Instant::now() + ANSWER;
    while Instant::now() < until {
        match wire.hear(ANSWER).await {
            Heard::Frame(heard) if heard["id"] == frame["id"] && heard["status"] == "accepted" => {
                return accepted(heard);
            }
            Heard::Frame(heard) if heard["id"] == frame["id"] && heard["error"].is_object() => {
                let again = ["journal_unavailable", "unavailable", "unanswered"]
                    .iter()
                    .any(|code| heard["error"]["code"] == *code);
                return if again { Answer::Unknown } else { Answer::Refused(heard) };
            }
            Heard::Frame(_) => {}
            Heard::Nothing | Heard::Cut => break,
        }
    }
    Answer::Unknown
}

//! Somebody who asks for things, and asks again under the same name where no answer came.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    BrokenPromise,
    wire::{SoakConnection, SoakFrame},
    world::{SoakRequest, SoakRequestOutcome, SoakWorld},
};

/// How long a person waits for an answer on one connection.
const ANSWER: Duration = Duration::from_secs(3);

const WORDS: [&str; 7] = ["talk", "mumble", "ponder", "work", "flood", "pour", "dawdle"];

enum PersonAnswer {
    Accepted(u64),
    /// With these words.
    Refused(Value),
    /// No answer, or one that says to try again.
    Unknown,
    /// Nobody was there to ask.
    NotAsked,
}

pub(super) async fn ask(world: Arc<SoakWorld>, session: String, mut dice: fastrand::Rng) {
    let mut n = 0;
    while !world.is_over() {
        n += 1;
        let (action, args, text) = random_request(n, &mut dice);
        let frame = json!({ "action": action, "args": args, "id": format!("{action}-{n}") });
        let answer = insist(&world, &session, &frame, &mut dice).await;
        if let Some(text) = text {
            world.record_request(SoakRequest { session: session.clone(), action, text, answer });
        }
        sleep(Duration::from_millis(dice.u64(0..700))).await;
    }
}

/// What is asked for next, and the words by which it is found again.
fn random_request(n: u64, dice: &mut fastrand::Rng) -> (&'static str, Value, Option<String>) {
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

async fn insist(world: &SoakWorld, session: &str, frame: &Value, dice: &mut fastrand::Rng) -> SoakRequestOutcome {
    let (mut first, mut may_be_done) = (None, false);
    while !world.is_over() {
        // A name is the same whichever way it comes.
        let answer = if frame["action"] == "message" && dice.bool() {
            by_rest(world, session, frame).await
        } else if let Some(mut wire) = SoakConnection::attach(world, session, "tail").await {
            once(&mut wire, frame).await
        } else {
            PersonAnswer::NotAsked
        };
        match (answer, first) {
            (PersonAnswer::Accepted(seq), None) if seq % 4 != 0 => return SoakRequestOutcome::At(seq),
            // What is asked again under its name is not done again.
            (PersonAnswer::Accepted(seq), None) => first = Some(seq),
            (PersonAnswer::Accepted(seq), Some(first)) => {
                if first != seq {
                    let what = format!("{session}: asked again, {frame} was at {seq} and not at {first}");
                    world.broken(BrokenPromise::Changed, what);
                }
                return SoakRequestOutcome::At(seq);
            }
            (PersonAnswer::Refused(why), Some(first)) => {
                let what = format!("{session}: asked again, {frame} was refused and not at {first}: {why}");
                world.broken(BrokenPromise::Changed, what);
                return SoakRequestOutcome::At(first);
            }
            // What was asked before may be on its way still.
            (PersonAnswer::Refused(_), None) if may_be_done => return SoakRequestOutcome::Never,
            (PersonAnswer::Refused(_), None) => return SoakRequestOutcome::FailedServerStart,
            (PersonAnswer::Unknown, _) => {
                may_be_done = true;
                sleep(Duration::from_millis(50)).await;
            }
            (PersonAnswer::NotAsked, _) => sleep(Duration::from_millis(50)).await,
        }
    }
    first.map_or(SoakRequestOutcome::Never, SoakRequestOutcome::At)
}

/// The same over REST.
async fn by_rest(world: &SoakWorld, session: &str, frame: &Value) -> PersonAnswer {
    let path = format!("/api/sessions/{session}/messages");
    let request = world.rest.request(Method::POST, &path).timeout(ANSWER).json(&frame["args"]);
    let key = frame["id"].as_str().expect("a wish has a name");
    let Ok(response) = request.header("idempotency-key", key).send().await else { return PersonAnswer::Unknown };
    let status = response.status();
    match response.json::<Value>().await {
        Ok(receipt) if status.is_success() => accepted(receipt),
        Ok(why) if status.is_client_error() => PersonAnswer::Refused(why),
        Ok(_) | Err(_) => PersonAnswer::Unknown,
    }
}

/// All that is asked for here is written down.
fn accepted(receipt: Value) -> PersonAnswer {
    receipt["seq"].as_u64().map_or(PersonAnswer::Refused(receipt), PersonAnswer::Accepted)
}

async fn once(wire: &mut SoakConnection, frame: &Value) -> PersonAnswer {
    if !wire.say(frame).await {
        return PersonAnswer::Unknown;
    }
    let until = Instant::now() + ANSWER;
    while Instant::now() < until {
        match wire.receive(ANSWER).await {
            SoakFrame::Frame(heard) if heard["id"] == frame["id"] && heard["status"] == "accepted" => {
                return accepted(heard);
            }
            SoakFrame::Frame(heard) if heard["id"] == frame["id"] && heard["error"].is_object() => {
                let again = ["journal_unavailable", "unavailable", "unanswered"]
                    .iter()
                    .any(|code| heard["error"]["code"] == *code);
                return if again { PersonAnswer::Unknown } else { PersonAnswer::Refused(heard) };
            }
            SoakFrame::Frame(_) => {}
            SoakFrame::Nothing | SoakFrame::Cut => break,
        }
    }
    PersonAnswer::Unknown
}

//! Person who sends requests, and repeats them under the same idempotency key if no answer came.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    BrokenPromise,
    wire::{SoakConnection, SoakFrame},
    world::{SoakRequest, SoakRequestOutcome, SoakWorld},
};

/// Time that a person waits for an answer on one connection.
const ANSWER: Duration = Duration::from_secs(3);

const WORDS: [&str; 7] = ["talk", "mumble", "ponder", "work", "flood", "pour", "dawdle"];

enum PersonAnswer {
    Accepted(u64),
    /// Rejected, with this answer.
    Rejected(Value),
    /// No answer, or an answer with a request to retry.
    Unknown,
    /// No server was there to receive the request.
    NotAsked,
}

pub(super) async fn ask(world: Arc<SoakWorld>, session: String, mut dice: fastrand::Rng) {
    let mut n = 0;
    while !world.is_over() {
        n += 1;
        let (action, args, text) = random_request(n, &mut dice);
        let frame = json!({ "action": action, "args": args, "id": format!("{action}-{n}") });
        let answer = repeat_until_answered(&world, &session, &frame, &mut dice).await;
        if let Some(text) = text {
            world.record_request(SoakRequest { session: session.clone(), action, text, answer });
        }
        sleep(Duration::from_millis(dice.u64(0..700))).await;
    }
}

/// Returns the next request, and the text by which the journal is searched for it.
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

async fn repeat_until_answered(
    world: &SoakWorld,
    session: &str,
    frame: &Value,
    dice: &mut fastrand::Rng,
) -> SoakRequestOutcome {
    let (mut first, mut may_be_done) = (None, false);
    while !world.is_over() {
        // An idempotency key is valid for both ways, socket and REST.
        let answer = if frame["action"] == "message" && dice.bool() {
            by_rest(world, session, frame).await
        } else if let Some(mut wire) = SoakConnection::attach(world, session, "tail").await {
            once(&mut wire, frame).await
        } else {
            PersonAnswer::NotAsked
        };
        match (answer, first) {
            (PersonAnswer::Accepted(seq), None) if seq % 4 != 0 => return SoakRequestOutcome::At(seq),
            // A repeated request with the same key is not done again.
            (PersonAnswer::Accepted(seq), None) => first = Some(seq),
            (PersonAnswer::Accepted(seq), Some(first)) => {
                if first != seq {
                    let what = format!("{session}: repeated, {frame} was at {seq} instead of {first}");
                    world.broken(BrokenPromise::Changed, what);
                }
                return SoakRequestOutcome::At(seq);
            }
            (PersonAnswer::Rejected(reason), Some(first)) => {
                let what = format!("{session}: repeated, {frame} was rejected instead of being at {first}: {reason}");
                world.broken(BrokenPromise::Changed, what);
                return SoakRequestOutcome::At(first);
            }
            // An earlier attempt may still be in flight.
            (PersonAnswer::Rejected(_), None) if may_be_done => return SoakRequestOutcome::Unknown,
            (PersonAnswer::Rejected(_), None) => return SoakRequestOutcome::Rejected,
            (PersonAnswer::Unknown, _) => {
                may_be_done = true;
                sleep(Duration::from_millis(50)).await;
            }
            (PersonAnswer::NotAsked, _) => sleep(Duration::from_millis(50)).await,
        }
    }
    first.map_or(SoakRequestOutcome::Unknown, SoakRequestOutcome::At)
}

/// Sends the request over REST.
async fn by_rest(world: &SoakWorld, session: &str, frame: &Value) -> PersonAnswer {
    let path = format!("/api/sessions/{session}/messages");
    let request = world.rest.request(Method::POST, &path).timeout(ANSWER).json(&frame["args"]);
    let key = frame["id"].as_str().expect("a request has an idempotency key");
    let Ok(response) = request.header("idempotency-key", key).send().await else { return PersonAnswer::Unknown };
    let status = response.status();
    match response.json::<Value>().await {
        Ok(receipt) if status.is_success() => accepted(receipt),
        Ok(reason) if status.is_client_error() => PersonAnswer::Rejected(reason),
        Ok(_) | Err(_) => PersonAnswer::Unknown,
    }
}

/// Reads a receipt. Every request of a person here is recorded as an event.
fn accepted(receipt: Value) -> PersonAnswer {
    receipt["seq"].as_u64().map_or(PersonAnswer::Rejected(receipt), PersonAnswer::Accepted)
}

async fn once(wire: &mut SoakConnection, frame: &Value) -> PersonAnswer {
    if !wire.say(frame).await {
        return PersonAnswer::Unknown;
    }
    let until = Instant::now() + ANSWER;
    while Instant::now() < until {
        match wire.receive(ANSWER).await {
            SoakFrame::Frame(answer) if answer["id"] == frame["id"] && answer["status"] == "accepted" => {
                return accepted(answer);
            }
            SoakFrame::Frame(answer) if answer["id"] == frame["id"] && answer["error"].is_object() => {
                let again = ["journal_unavailable", "unavailable", "unanswered"]
                    .iter()
                    .any(|code| answer["error"]["code"] == *code);
                return if again { PersonAnswer::Unknown } else { PersonAnswer::Rejected(answer) };
            }
            SoakFrame::Frame(_) => {}
            SoakFrame::Nothing | SoakFrame::Cut => break,
        }
    }
    PersonAnswer::Unknown
}

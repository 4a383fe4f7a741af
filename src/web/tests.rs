mod access;
mod approvals;
mod browsers;
mod checkpoints;
mod contract;
mod errors;
mod file_changes;
mod files;
mod fixture;
mod openapi;
mod operators;
mod pages;
mod search;
mod sessions;
mod terminals;
mod unreadable;

use self::fixture::ApiReply;

const UNKNOWN_SESSION: &str = "/api/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE";

fn id_of(reply: &ApiReply) -> String {
    reply.json()["id"].as_str().expect("a session has an id").to_owned()
}

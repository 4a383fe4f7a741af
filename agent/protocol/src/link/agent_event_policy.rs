//! What an agent may have written down by itself.
//!
//! The journal says who speaks by `source`, and clients believe kinds: a state, a bill, a receipt, a user's message. An agent
//! is untrusted, so it says what agents do and see, and no more.

use crate::{Action, EventBody, Observation, ObservationKind, observation::OpaqueFields};

/// The fields of what an event says. All others are the server's (`seq`, `at`, `source`, `cause`, `item`, `message`), or make a
/// frame of another family of it (`status`, `delta`, `error`).
const FIELDS: [&str; 5] = ["action", "args", "observation", "extras", "content"];

/// The kinds that are the user's or the server's. An event that only bears such a name is no agent's either, in whatever
/// shape it comes.
const RESERVED_ACTIONS: [&str; 9] =
    ["start", "message", "confirm", "set_model", "interrupt", "pause", "resume", "stop", "end"];
const RESERVED_OBSERVATIONS: [&str; 7] =
    ["chat", "confirmed", "usage", "agent_state_changed", "interrupted", "queue", "sandbox"];

/// The longest name of a kind that is not known here, in bytes. Kinds are kept with their events, and asked for by them.
const NAME_LIMIT: usize = 64;

impl EventBody {
    /// What an agent says as it may be written down, without what only the server can know.
    ///
    /// # Errors
    /// The name of what is not an agent's to say.
    pub fn accept_from_agent(mut self) -> Result<EventBody, String> {
        let may = match &self {
            EventBody::Action(action) => is_agent_action(action),
            EventBody::Observation(Observation { kind: seen, .. }) => is_agent_observation(seen),
            // A kind that is not known here may be a newer agent's.
            EventBody::Opaque(fields) => may_be_agent_kind(fields),
        };
        if !may {
            return Err(self.name().to_owned());
        }
        // Where the whole of something is, the server says, which keeps it.
        match &mut self {
            EventBody::Observation(Observation { kind: seen, .. }) => {
                if let ObservationKind::Run { truncated: Some(truncated), .. }
                | ObservationKind::Read { truncated: Some(truncated), .. }
                | ObservationKind::Browse { truncated: Some(truncated), .. } = seen
                {
                    truncated.href = None;
                }
            }
            EventBody::Opaque(fields) => {
                fields.retain(|name, _| FIELDS.contains(&name.as_str()));
                // In no other shape than an object: who reads it into a type might find the same in a list.
                if let Some(extras) = object_or_remove(fields, "extras")
                    && let Some(truncated) = object_or_remove(extras, "truncated")
                {
                    truncated.remove("href");
                }
            }
            EventBody::Action(_) => {}
        }
        Ok(self)
    }
}

/// The object of this name, if it is one; in another shape it goes.
fn object_or_remove<'a>(fields: &'a mut OpaqueFields, name: &str) -> Option<&'a mut OpaqueFields> {
    if fields.get(name).is_some_and(|field| !field.is_object()) {
        fields.remove(name);
    }
    fields.get_mut(name)?.as_object_mut()
}

fn is_agent_action(action: &Action) -> bool {
    match action {
        Action::Run { .. }
        | Action::Read { .. }
        | Action::Write { .. }
        | Action::Edit { .. }
        | Action::Browse { .. }
        | Action::Think { .. }
        | Action::Plan { .. }
        | Action::Finish { .. } => true,
        Action::Start { .. }
        | Action::Message { .. }
        | Action::Confirm { .. }
        | Action::SetModel { .. }
        | Action::Interrupt {}
        | Action::Pause {}
        | Action::Resume {}
        | Action::Stop {}
        | Action::End {} => false,
    }
}

fn is_agent_observation(seen: &ObservationKind) -> bool {
    match seen {
        ObservationKind::Run { .. }
        | ObservationKind::Read { .. }
        | ObservationKind::Write { .. }
        | ObservationKind::Edit { .. }
        | ObservationKind::Browse { .. }
        | ObservationKind::Message { .. }
        | ObservationKind::Think { .. }
        | ObservationKind::Plan { .. }
        | ObservationKind::Confirm { .. }
        | ObservationKind::Error { .. } => true,
        ObservationKind::Chat { .. }
        | ObservationKind::Confirmed { .. }
        | ObservationKind::Usage(_)
        | ObservationKind::AgentStateChanged { .. }
        | ObservationKind::Interrupted { .. }
        | ObservationKind::Queue { .. }
        | ObservationKind::Sandbox { .. } => false,
    }
}

fn may_be_agent_kind(fields: &OpaqueFields) -> bool {
    let name = |key: &str| fields.get(key).map(|name| name.as_str());
    let (name, of_others): (_, &[&str]) = match (name("action"), name("observation")) {
        (Some(Some(action)), None) => (action, &RESERVED_ACTIONS),
        (None, Some(Some(observation))) => (observation, &RESERVED_OBSERVATIONS),
        // Neither, both, or no name at all: nobody could say what it is.
        (Some(_), _) | (None, Some(None) | None) => return false,
    };
    // The journal has names as they are, between what is not text.
    name.len() <= NAME_LIMIT && !name.contains(char::is_control) && !of_others.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn accepted(body: Value) -> Result<Value, String> {
        let body: EventBody = serde_json::from_value(body).expect("a body");
        body.accept_from_agent().map(|body| serde_json::to_value(&body).expect("it serializes"))
    }

    /// The names in the error that a foreign one leads to.
    fn names<T: serde::de::DeserializeOwned + std::fmt::Debug>(tag: &str) -> Vec<String> {
        let error = serde_json::from_value::<T>(json!({ tag: "no such kind" })).expect_err("it is foreign").to_string();
        let (_, listed) = error.split_once("expected one of ").expect("it lists them");
        listed.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn every_kind_is_an_agents_or_is_not() {
        let check = |mut known: Vec<String>, agents: &[&str], others: &[&str]| {
            let mut listed: Vec<_> = agents.iter().chain(others).map(|name| (*name).to_owned()).collect();
            known.sort();
            listed.sort();
            assert_eq!(listed, known, "say of a new kind whose it is, here and above");
        };
        let actions = ["run", "read", "write", "edit", "browse", "think", "plan", "finish"];
        check(names::<Action>("action"), &actions, &RESERVED_ACTIONS);
        let seen = ["run", "read", "write", "edit", "browse", "message", "think", "plan", "confirm", "error"];
        check(names::<ObservationKind>("observation"), &seen, &RESERVED_OBSERVATIONS);
    }

    #[test]
    fn what_others_say_an_agent_cannot() {
        let refused = |body: Value, name: &str| assert_eq!(accepted(body), Err(name.to_owned()));
        refused(json!({ "action": "end", "args": {} }), "end");
        refused(json!({ "action": "message", "args": { "content": "rm -rf /" } }), "message");
        refused(json!({ "observation": "chat", "extras": {}, "content": "do it" }), "chat");
        refused(
            json!({ "observation": "agent_state_changed", "extras": { "agent_state": "failed", "since": "" } }),
            "agent_state_changed",
        );
        // Not in their shape, so nothing here reads them as what they are called; a client might.
        refused(
            json!({ "observation": "agent_state_changed", "extras": { "agent_state": "failed" } }),
            "agent_state_changed",
        );
        refused(json!({ "action": "end" }), "end");
        // What it is called depends on who reads it.
        refused(json!({ "action": "dance", "observation": "usage" }), "dance");
        refused(json!({ "action": 7, "observation": "usage" }), "unknown");
        refused(json!({ "extras": {} }), "unknown");
        let long = "x".repeat(NAME_LIMIT + 1);
        refused(json!({ "observation": long }), &long);
    }

    #[test]
    fn what_agents_say_is_left_as_it_is() {
        for body in [
            json!({ "action": "run", "args": { "command": "ls" } }),
            json!({ "observation": "error", "extras": { "code": "c", "detail": "d" }, "content": "" }),
            json!({ "observation": "smell", "extras": { "of": "smoke" } }),
            json!({ "action": "dance", "args": { "to": "music" } }),
        ] {
            assert_eq!(accepted(body.clone()), Ok(body));
        }
    }

    #[test]
    fn what_is_the_servers_cannot_be_said_beside_it() {
        let spoof = json!({
            "observation": "smell", "extras": { "of": "smoke" }, "content": "hm", "seq": 1, "at": "", "source": "user",
            "cause": 1, "item": "i", "message": "m", "status": "hello", "delta": "text", "error": {}, "local": "lost",
        });
        let left = json!({ "observation": "smell", "extras": { "of": "smoke" }, "content": "hm" });
        assert_eq!(accepted(spoof), Ok(left));
    }

    #[test]
    fn where_the_whole_is_only_the_server_says() {
        let read = json!({ "path": "a", "truncated": { "bytes": 9, "href": "/api/elsewhere" } });
        let cut = json!({ "path": "a", "truncated": { "bytes": 9 } });
        for name in ["read", "smell"] {
            let body = |extras: &Value| json!({ "observation": name, "extras": extras, "content": "" });
            assert_eq!(accepted(body(&read)), Ok(body(&cut)));
        }
    }

    #[test]
    fn what_is_in_no_shape_of_the_protocol_cannot_say_it_either() {
        let body = |extras: Value| json!({ "observation": "smell", "extras": extras, "content": "" });
        for extras in [json!([["/api/elsewhere"]]), json!([[9, "/api/elsewhere"]]), json!("/api/elsewhere")] {
            assert_eq!(accepted(body(extras)), Ok(json!({ "observation": "smell", "content": "" })));
        }
        for truncated in [json!([9, "/api/elsewhere"]), json!(["/api/elsewhere"]), json!("/api/elsewhere")] {
            let said = accepted(body(json!({ "of": "smoke", "truncated": truncated })));
            assert_eq!(said, Ok(body(json!({ "of": "smoke" }))));
        }
    }
}

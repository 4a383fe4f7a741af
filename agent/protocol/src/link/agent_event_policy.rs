//! Policy for events that an agent may report by itself.
//!
//! The journal names the speaker by `source`, and clients rely on the kind: a state, a cost, a
//! receipt, a user's message. An agent is untrusted. It may report what agents do and observe, and
//! nothing else ([`KindDeclaration`]).

use crate::{
    EventBody, EventSource, Observation, ObservationKind,
    declarations::{ACTIONS, KindDeclaration, OBSERVATIONS},
    observation::OpaqueFields,
};

/// Fields that a reported body may have.
///
/// Some other fields belong to the server: `seq`, `at`, `source`, `cause`, `item`, `message`. Some
/// would turn the event into a frame of another family: `status`, `delta`, `error`.
const FIELDS: [&str; 5] = ["action", "args", "observation", "extras", "content"];

/// Longest name of an unknown kind, in bytes. The journal stores the names, and clients filter by
/// them.
const NAME_LIMIT: usize = 64;

impl EventBody {
    /// Returns the body if an agent may report it, without fields that only the server may set.
    ///
    /// # Errors
    /// Returns the name of the kind if an agent may not report the kind.
    pub fn accept_from_agent(mut self) -> Result<EventBody, String> {
        let allowed = match &self {
            EventBody::Action(action) => is_agent_kind(&ACTIONS, action.name()),
            EventBody::Observation(observation) => is_agent_kind(&OBSERVATIONS, observation.name()),
            EventBody::Opaque(fields) => may_be_agent_kind(fields),
        };
        if !allowed {
            return Err(self.name().to_owned());
        }
        // The server stores whole texts and pictures, so only the server sets their location.
        match &mut self {
            EventBody::Observation(Observation { kind, .. }) => {
                if let ObservationKind::Browse { screenshot, html, .. } = kind {
                    (*screenshot, *html) = (None, None);
                }
                if let ObservationKind::Run { truncated: Some(truncated), .. }
                | ObservationKind::Read { truncated: Some(truncated), .. }
                | ObservationKind::Browse { truncated: Some(truncated), .. }
                | ObservationKind::Tool { truncated: Some(truncated), .. } = kind
                {
                    truncated.href = None;
                }
            }
            EventBody::Opaque(fields) => {
                fields.retain(|name, _| FIELDS.contains(&name.as_str()));
                // Only objects are kept: a derived reader would accept the same fields from a list.
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

/// Returns the object of this name. A value of another shape is removed.
fn object_or_remove<'a>(fields: &'a mut OpaqueFields, name: &str) -> Option<&'a mut OpaqueFields> {
    if fields.get(name).is_some_and(|field| !field.is_object()) {
        fields.remove(name);
    }
    fields.get_mut(name)?.as_object_mut()
}

/// Returns true if an agent may report the kind. A kind unknown to this version may come from a
/// newer agent.
fn is_agent_kind(declarations: &[KindDeclaration], name: &str) -> bool {
    KindDeclaration::find(declarations, name).is_none_or(|kind| kind.allows(EventSource::Agent))
}

fn may_be_agent_kind(fields: &OpaqueFields) -> bool {
    let name = |key: &str| fields.get(key).map(|name| name.as_str());
    let (name, declarations): (_, &[KindDeclaration]) = match (name("action"), name("observation")) {
        (Some(Some(action)), None) => (action, &ACTIONS),
        (None, Some(Some(observation))) => (observation, &OBSERVATIONS),
        // Neither name, both names, or a name that is no string: the kind is ambiguous.
        (Some(_), _) | (None, Some(None) | None) => return false,
    };
    // The journal stores names unescaped, between binary fields.
    name.len() <= NAME_LIMIT && !name.contains(char::is_control) && is_agent_kind(declarations, name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn accepted(body: Value) -> Result<Value, String> {
        let body: EventBody = serde_json::from_value(body).expect("every object is a body");
        body.accept_from_agent().map(|body| serde_json::to_value(&body).expect("a body always serializes"))
    }

    #[test]
    fn reserved_kinds_are_rejected() {
        let rejected = |body: Value, name: &str| assert_eq!(accepted(body), Err(name.to_owned()));
        rejected(json!({ "action": "end", "args": {} }), "end");
        rejected(json!({ "action": "message", "args": { "content": "rm -rf /" } }), "message");
        rejected(json!({ "observation": "chat", "extras": {}, "content": "do it" }), "chat");
        rejected(
            json!({ "observation": "agent_state_changed", "extras": { "agent_state": "failed", "since": "" } }),
            "agent_state_changed",
        );
        for (tag, kinds) in [("action", &ACTIONS[..]), ("observation", &OBSERVATIONS[..])] {
            for kind in kinds.iter().filter(|kind| !kind.allows(EventSource::Agent)) {
                rejected(json!({ tag: kind.name }), kind.name);
            }
        }
        // Reserved names in a wrong shape: no reader here parses them as that kind, but a client
        // might.
        rejected(
            json!({ "observation": "agent_state_changed", "extras": { "agent_state": "failed" } }),
            "agent_state_changed",
        );
        rejected(json!({ "action": "end" }), "end");
        // Ambiguous kinds: the name depends on the reader.
        rejected(json!({ "action": "dance", "observation": "usage" }), "dance");
        rejected(json!({ "action": 7, "observation": "usage" }), "unknown");
        rejected(json!({ "extras": {} }), "unknown");
        let long = "x".repeat(NAME_LIMIT + 1);
        rejected(json!({ "observation": long }), &long);
    }

    #[test]
    fn agent_kinds_are_accepted_unchanged() {
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
    fn server_fields_are_removed() {
        let spoof = json!({
            "observation": "smell", "extras": { "of": "smoke" }, "content": "hm", "seq": 1, "at": "", "source": "user",
            "cause": 1, "item": "i", "message": "m", "status": "hello", "delta": "text", "error": {}, "local": "lost",
        });
        let left = json!({ "observation": "smell", "extras": { "of": "smoke" }, "content": "hm" });
        assert_eq!(accepted(spoof), Ok(left));
    }

    #[test]
    fn location_of_the_whole_text_is_removed() {
        let read = json!({ "path": "a", "truncated": { "bytes": 9, "href": "/api/elsewhere" } });
        let cut = json!({ "path": "a", "truncated": { "bytes": 9 } });
        for name in ["read", "smell"] {
            let body = |extras: &Value| json!({ "observation": name, "extras": extras, "content": "" });
            assert_eq!(accepted(body(&read)), Ok(body(&cut)));
        }
    }

    #[test]
    fn locations_of_a_pages_contents_are_removed() {
        let spoof = json!({ "url": "http://a/", "screenshot": "/api/elsewhere", "html": "/api/elsewhere" });
        let body = |extras: Value| json!({ "observation": "browse", "extras": extras, "content": "" });
        assert_eq!(accepted(body(spoof)), Ok(body(json!({ "url": "http://a/" }))));
    }

    #[test]
    fn extras_of_a_wrong_shape_are_removed() {
        let body = |extras: Value| json!({ "observation": "smell", "extras": extras, "content": "" });
        for extras in [json!([["/api/elsewhere"]]), json!([[9, "/api/elsewhere"]]), json!("/api/elsewhere")] {
            assert_eq!(accepted(body(extras)), Ok(json!({ "observation": "smell", "content": "" })));
        }
        for truncated in [json!([9, "/api/elsewhere"]), json!(["/api/elsewhere"]), json!("/api/elsewhere")] {
            let result = accepted(body(json!({ "of": "smoke", "truncated": truncated })));
            assert_eq!(result, Ok(body(json!({ "of": "smoke" }))));
        }
    }
}

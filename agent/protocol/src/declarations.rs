//! Declaration of every kind of action and observation: its name, and who may send it.
//!
//! The types declare the fields ([`Action`](crate::Action), [`ClientRequest`],
//! [`ObservationKind`](crate::ObservationKind)). The parser of client frames, the policy for
//! agents, the page's check of events and the tables of docs/protocol.md read both.
//!
//! [`ClientRequest`]: crate::client::ClientRequest

use crate::EventSource::{self, Agent, Server, User};

/// Kind of action or observation, as the wire names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindDeclaration {
    pub name: &'static str,
    /// Parties that may send the kind. An action that the user may send is a client request.
    pub senders: &'static [EventSource],
    /// True if clients of the classic view of the session socket receive events of the kind.
    pub is_classic: bool,
}

/// Actions, with the client requests that no event records.
pub const ACTIONS: [KindDeclaration; 24] = [
    kind("initialize", &[User]),
    kind("start", &[User]).classic(),
    kind("message", &[User]).classic(),
    kind("run", &[User, Agent]).classic(),
    kind("read", &[User, Agent]).classic(),
    kind("write", &[User, Agent]).classic(),
    kind("edit", &[Agent]).classic(),
    kind("browse", &[User, Agent]).classic(),
    kind("tool", &[Agent]),
    kind("think", &[Agent]).classic(),
    kind("plan", &[Agent]).classic(),
    kind("finish", &[Agent]).classic(),
    kind("interrupt", &[User]).classic(),
    kind("pause", &[User]).classic(),
    kind("resume", &[User]).classic(),
    kind("stop", &[User, Server]).classic(),
    kind("end", &[User]).classic(),
    kind("confirm", &[User]).classic(),
    kind("edit_queue", &[User]),
    kind("set_mode", &[User]),
    kind("set_model", &[User]).classic(),
    kind("set_budget", &[User]),
    kind("kill_process", &[User]),
    kind("ping", &[User]),
];

/// Observations. `chat` reports that the user's message reached the agent, and a `plan` of the user
/// that the user edited the agent's plan.
pub const OBSERVATIONS: [KindDeclaration; 26] = [
    kind("run", &[Agent]).classic(),
    kind("read", &[Agent]).classic(),
    kind("write", &[Agent]).classic(),
    kind("edit", &[Agent]).classic(),
    kind("browse", &[Agent]).classic(),
    kind("tool", &[Agent]),
    kind("chat", &[User]).classic(),
    kind("message", &[Agent]).classic(),
    kind("think", &[Agent]).classic(),
    kind("plan", &[Agent, User]).classic(),
    kind("compaction", &[Agent]),
    kind("commands", &[Agent]),
    kind("confirm", &[Agent]).classic(),
    kind("confirmed", &[Server]).classic(),
    kind("usage", &[Server]),
    kind("agent_state_changed", &[Server]).classic(),
    kind("interrupted", &[Server]).classic(),
    kind("queue", &[Server]),
    kind("sandbox", &[Server]),
    kind("checkpoint", &[Server]),
    kind("changes", &[Server]),
    kind("forked", &[Server]),
    kind("repository", &[Server]),
    kind("pushed", &[Server]),
    kind("error", &[Agent, Server]).classic(),
    kind("notice", &[Agent, Server]),
];

const fn kind(name: &'static str, senders: &'static [EventSource]) -> KindDeclaration {
    KindDeclaration { name, senders, is_classic: false }
}

impl KindDeclaration {
    const fn classic(self) -> KindDeclaration {
        KindDeclaration { is_classic: true, ..self }
    }

    /// Returns the declaration of `name`, if this version has the kind.
    pub fn find<'a>(declarations: &'a [KindDeclaration], name: &str) -> Option<&'a KindDeclaration> {
        declarations.iter().find(|declaration| declaration.name == name)
    }

    /// Returns true if `sender` may send the kind.
    pub fn allows(&self, sender: EventSource) -> bool {
        self.senders.contains(&sender)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::DeserializeOwned;
    use serde_json::json;
    use strum::VariantNames;

    use super::*;
    use crate::{Action, ObservationKind, client::ClientRequest};

    fn check<'a>(type_name: &str, declared: impl Iterator<Item = &'a KindDeclaration>, variants: &[&'a str]) {
        let declared: Vec<_> = declared.map(|kind| kind.name).collect();
        let (names, variants) = (BTreeSet::from_iter(&declared), BTreeSet::from_iter(variants));
        assert_eq!(names, variants, "declare each kind of `{type_name}` once in declarations.rs");
        assert_eq!(declared.len(), names.len(), "a kind of `{type_name}` is declared twice");
    }

    #[test]
    fn every_kind_is_declared_once() {
        let variants: BTreeSet<_> = Action::VARIANTS.iter().chain(ClientRequest::VARIANTS).copied().collect();
        check("Action", ACTIONS.iter(), &variants.into_iter().collect::<Vec<_>>());
        check("ObservationKind", OBSERVATIONS.iter(), ObservationKind::VARIANTS);
        check("ClientRequest", ACTIONS.iter().filter(|kind| kind.allows(User)), ClientRequest::VARIANTS);
    }

    /// Returns the kinds that serde's error lists for an unknown kind.
    fn serialized_names<T: DeserializeOwned + std::fmt::Debug>(tag: &str) -> Vec<String> {
        let error = serde_json::from_value::<T>(json!({ tag: "none" })).expect_err("the kind is unknown").to_string();
        let (_, listed) = error.split_once("expected one of ").expect("the error lists the kinds");
        listed.split(", ").map(|name| name.trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn name_is_the_serialized_name() {
        assert_eq!(serialized_names::<Action>("action"), Action::VARIANTS);
        assert_eq!(serialized_names::<ClientRequest>("action"), ClientRequest::VARIANTS);
        assert_eq!(serialized_names::<ObservationKind>("observation"), ObservationKind::VARIANTS);
    }
}

//! Limit of the names that a session keeps while their item, approval request or review is open.

use greenroom_protocol::{
    EventBody, Observation, ObservationKind,
    link::{AgentReport, FromAgent},
};

/// Longest item name or id of an approval request or review, in bytes. Those of the built-in agent
/// have about 40.
pub(super) const NAME_LIMIT: usize = 256;

/// Returns the length of the longest such name in the frame, in bytes.
pub(super) fn longest_name(frame: &FromAgent) -> usize {
    match frame {
        FromAgent::Delta(delta) => delta.item.len(),
        FromAgent::Report { report: AgentReport::Event { item, body }, .. } => {
            let request = match body {
                EventBody::Observation(Observation { kind: ObservationKind::Confirm { request, .. }, .. }) => {
                    request.len()
                }
                EventBody::Observation(_) | EventBody::Action(_) | EventBody::Opaque(_) => 0,
            };
            item.as_ref().map_or(0, String::len).max(request)
        }
        FromAgent::Report { report: AgentReport::Piece { item, .. }, .. } => item.len(),
        FromAgent::Review(review) => review.item.as_ref().map_or(0, String::len).max(review.id.len()),
        FromAgent::Report { .. } | FromAgent::Hello(_) | FromAgent::Taken { .. } => 0,
    }
}

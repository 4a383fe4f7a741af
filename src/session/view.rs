//! A session as clients see it: in lists, in `hello`, in every answer of REST.

use greenroom_protocol::observation::AgentState;
use serde::Serialize;

use crate::store::{Seq, SessionId, SessionSnapshot, UsageTotals};

/// `{id, title, state, …}` of PROTOCOL.md section 3.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = View)]
pub struct SessionView {
    #[schema(value_type = String, example = "01KAHTXV3M9W6N2Q4ZB8C5R7DE")]
    pub id: SessionId,
    pub title: String,
    #[schema(value_type = String, example = "idle")]
    pub state: AgentState,
    /// Why it is in that state, where that needs saying.
    pub reason: Option<String>,
    pub agent: String,
    pub model: String,
    pub image: Option<String>,
    /// The sandbox driver: `docker` or `process`.
    pub sandbox: String,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    pub updated_at: String,
    #[schema(value_type = u64)]
    pub last_seq: Seq,
    /// How many clients are attached right now.
    pub attached: usize,
    #[schema(value_type = Object)]
    pub usage: UsageTotals,
    pub budget_usd: Option<f64>,
    pub archived: bool,
}

impl SessionView {
    pub fn new(snapshot: &SessionSnapshot, attached: usize) -> SessionView {
        let record = snapshot.record.clone();
        SessionView {
            id: record.id,
            title: record.title,
            state: record.state,
            reason: record.reason,
            agent: record.agent,
            model: record.model,
            image: record.image,
            sandbox: record.sandbox,
            created_at: record.created_at,
            updated_at: record.updated_at,
            last_seq: snapshot.tail,
            attached,
            usage: record.usage,
            budget_usd: record.budget_usd,
            archived: record.archived,
        }
    }
}

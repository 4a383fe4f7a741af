//! Client view of a session, in lists, in `hello` and in the answers of the REST API.

use greenroom_protocol::{approval::ApprovalMode, link::ReasoningEffort, observation::AgentState};
use serde::Serialize;

use crate::{
    api_schema::{AgentStateSchema, ApprovalModeSchema, ReasoningEffortSchema},
    store::{ForkParent, Seq, SessionId, SessionRepository, SessionSnapshot, UsageTotals},
};

/// Session object `{id, title, state, …}` of docs/reference/rest.md.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[schema(as = Session)]
pub struct SessionView {
    pub id: SessionId,
    pub title: String,
    #[schema(value_type = AgentStateSchema)]
    pub state: AgentState,
    /// Reason for the state, if the state needs one.
    pub reason: Option<String>,
    pub agent: String,
    pub model: String,
    /// Reasoning effort. `null`: the model's own default.
    #[schema(value_type = Option<ReasoningEffortSchema>)]
    pub effort: Option<ReasoningEffort>,
    /// Mode of approvals.
    #[schema(value_type = ApprovalModeSchema)]
    pub mode: ApprovalMode,
    /// Security analyzer. `null` in sessions of earlier versions: the configured one.
    pub analyzer: Option<String>,
    pub image: Option<String>,
    /// Sandbox driver: `docker` or `process`.
    pub sandbox: String,
    /// RFC 3339, UTC, milliseconds.
    pub created_at: String,
    pub updated_at: String,
    #[schema(value_type = u64)]
    pub last_seq: Seq,
    /// Number of clients that are attached now.
    pub attached: usize,
    pub usage: UsageTotals,
    pub budget_usd: Option<f64>,
    pub archived: bool,
    /// Session and event at which this session was forked.
    pub parent: Option<ForkParent>,
    /// Repository that the workspace is a clone of.
    pub repository: Option<SessionRepository>,
    /// Newest thing that the session did: a message, a command or a failure, in one line of plain
    /// text.
    #[schema(max_length = 120)]
    pub latest: Option<String>,
    /// Number of the event that `latest` describes.
    #[schema(value_type = Option<u64>)]
    pub latest_seq: Option<Seq>,
}

impl SessionView {
    pub fn new(snapshot: &SessionSnapshot, attached: usize) -> SessionView {
        let record = snapshot.record.clone();
        let (latest, latest_seq) = record.latest.map(|latest| (latest.text, latest.seq)).unzip();
        SessionView {
            id: record.id,
            title: record.title,
            state: record.state,
            reason: record.reason,
            agent: record.agent,
            model: record.model,
            effort: record.effort,
            mode: record.mode.unwrap_or(ApprovalMode::Auto),
            analyzer: record.analyzer,
            image: record.image,
            sandbox: record.sandbox,
            created_at: record.created_at,
            updated_at: record.updated_at,
            last_seq: snapshot.tail,
            attached,
            usage: record.usage,
            budget_usd: record.budget_usd,
            archived: record.archived,
            parent: record.parent,
            repository: record.repository,
            latest,
            latest_seq,
        }
    }
}

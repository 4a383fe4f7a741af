//! Findings of a session: its newest tool calls with a risk above `low`, from the journal.

use std::sync::Arc;

use futures::TryStreamExt;
use greenroom_protocol::approval::{RiskAssessment, RiskLevel};
use serde::{Deserialize, Serialize};

use crate::{
    api_schema::RiskLevelSchema,
    store::{Seq, SessionId, Store, StoredEvent},
    web::{error::ApiError, event_reads::chunks},
};

/// Largest number of findings in an answer.
const MAX_FINDINGS: usize = 100;
/// Newest events that are searched for findings.
const SEARCHED_EVENTS: Seq = 10_000;
/// Events of one search step.
const STEP: Seq = 1_000;
/// Bytes of events after which the search ends.
const SEARCHED_BYTES: usize = 16 * 1024 * 1024;

/// Tool call with a risk above `low`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct SecurityFinding {
    #[schema(value_type = u64)]
    seq: Seq,
    /// Time of the event, RFC 3339, UTC.
    at: String,
    item: Option<String>,
    /// Name of the call's action, such as `run`.
    action: String,
    /// Call in words.
    message: String,
    #[schema(value_type = RiskLevelSchema)]
    level: RiskLevel,
    reasons: Vec<String>,
    /// Name of the analyzer.
    analyzer: String,
}

/// Event, as far as a finding needs it.
#[derive(Deserialize)]
struct RiskyEvent {
    at: String,
    action: String,
    #[serde(default)]
    item: Option<String>,
    #[serde(default)]
    message: String,
    risk: RiskAssessment,
}

/// Returns the newest findings up to `tail`, newest first: at most [`MAX_FINDINGS`].
///
/// # Errors
/// The journal cannot be read.
pub(super) async fn newest_findings(
    store: &Arc<dyn Store>,
    id: SessionId,
    tail: Seq,
) -> Result<Vec<SecurityFinding>, ApiError> {
    let (mut found, mut bytes, mut end) = (Vec::new(), 0, tail);
    let oldest = tail.saturating_sub(SEARCHED_EVENTS);
    while end > oldest && bytes < SEARCHED_BYTES {
        let start = end.saturating_sub(STEP).max(oldest);
        let mut of_step = Vec::new();
        let mut step = Box::pin(chunks(store.clone(), id, start, end));
        while let Some(chunk) = step.try_next().await? {
            bytes += chunk.iter().map(|(_, event)| event.json.len()).sum::<usize>();
            of_step.extend(chunk.iter().filter_map(finding));
        }
        found.extend(of_step.into_iter().rev());
        if found.len() >= MAX_FINDINGS {
            found.truncate(MAX_FINDINGS);
            break;
        }
        end = start;
    }
    Ok(found)
}

fn finding((seq, event): &StoredEvent) -> Option<SecurityFinding> {
    let RiskyEvent { at, action, item, message, risk } = serde_json::from_slice(&event.json).ok()?;
    let RiskAssessment { level, reasons, analyzer } = risk;
    (level > RiskLevel::Low).then_some(SecurityFinding {
        seq: *seq,
        at,
        item,
        action,
        message,
        level,
        reasons,
        analyzer,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::{AppendBatch, JournalEvent, contract, in_memory::MemoryStore};

    #[tokio::test]
    async fn newest_findings_come_first_and_low_risk_is_none() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let record = contract::record("");
        let id = record.id;
        store.create(record).await.expect("the store creates the session");
        let (epoch, _) = store.claim(id).await.expect("the store claims the session");
        let event = |seq: u64, level: &str| JournalEvent {
            kind: "run".into(),
            json: Bytes::from(format!(
                r#"{{"seq":{seq},"at":"t","source":"agent","item":"i","action":"run","args":{{"command":"x"}},"message":"{seq}",
                   "risk":{{"level":"{level}","reasons":["r"],"analyzer":"rules"}}}}"#
            )),
        };
        let level = |seq: u64| ["low", "medium", "high"][usize::try_from(seq % 3).expect("a small number")];
        let events: Vec<JournalEvent> = (1..=2_300).map(|seq| event(seq, level(seq))).collect();
        store.append(id, epoch, 0, AppendBatch { events, ..AppendBatch::default() }).await.expect("the store appends");

        let found = newest_findings(&store, id, 2_300).await.expect("the journal is readable");
        let seqs: Vec<Seq> = found.iter().map(|finding| finding.seq).collect();
        let expected: Vec<Seq> = (1..=2_300).rev().filter(|seq| seq % 3 != 0).take(MAX_FINDINGS).collect();
        assert_eq!(seqs, expected);
        assert_eq!((found[0].level, found[0].reasons.as_slice()), (RiskLevel::High, &["r".to_owned()][..]));
        let few = newest_findings(&store, id, 5).await.expect("the journal is readable");
        assert_eq!(few.iter().map(|finding| finding.seq).collect::<Vec<_>>(), [5, 4, 2, 1]);
    }
}

//! Journal quotas: reports within and outside a turn, and large contents.

use bytesize::ByteSize;

use super::*;
use crate::{config::QuotaConfig, session::SessionDeps};

impl ReportFixture {
    async fn with_quota(quota: QuotaConfig) -> ReportFixture {
        let store = Arc::new(MemoryStore::new());
        let (id, session) = testkit::idle_session_with(store.clone(), |deps| SessionDeps { quota, ..deps }).await;
        ReportFixture { store, id, session }
    }

    async fn start_turn(&self) {
        self.request(ClientRequest::Start { task: "go".into() }).await;
    }

    /// Returns the session's state and the error `quota`, if the session has recorded one.
    async fn outcome(&self) -> (AgentState, Option<String>) {
        let view = self.session.send(GetView).await.expect("session actor is running");
        let events = self.events().await;
        let error = events.iter().find(|event| event["extras"]["code"] == "quota");
        (view.state, error.map(|error| error["extras"]["detail"].as_str().expect("a text").to_owned()))
    }
}

fn think(bytes: usize) -> AgentReport {
    observation(ObservationKind::Think { partial: false }, &"x".repeat(bytes))
}

fn quota(work: u64, idle: u64) -> QuotaConfig {
    QuotaConfig {
        journal_per_hour: ByteSize::b(work),
        idle_journal_per_hour: ByteSize::b(idle),
        ..QuotaConfig::default()
    }
}

#[actix::test]
async fn turn_beyond_quota_is_interrupted() {
    for batch in [1, 4] {
        let fixture = ReportFixture::with_quota(quota(100_000, 1)).await;
        fixture.start_turn().await;
        fixture.report(1, (0..batch).map(|_| think(10_000)).collect()).await;
        assert_eq!(fixture.outcome().await, (AgentState::Running, None));
        fixture.report(1 + batch, (0..batch).map(|_| think(60_000)).collect()).await;
        fixture.report(1 + 2 * batch, (0..batch).map(|_| think(60_000)).collect()).await;
        let (state, error) = fixture.outcome().await;
        assert_eq!(state, AgentState::Interrupting);
        assert!(error.is_some_and(|error| error.contains("`quota.journal_per_hour`")));
    }
}

#[actix::test]
async fn reports_outside_work_have_a_lower_quota() {
    let fixture = ReportFixture::with_quota(quota(1 << 20, 10_000)).await;
    fixture.report(1, vec![think(5_000)]).await;
    assert_eq!(fixture.outcome().await, (AgentState::Idle, None));
    fixture.report(2, vec![think(5_000)]).await;
    let (state, error) = fixture.outcome().await;
    assert_eq!(state, AgentState::Failed);
    assert!(error.is_some_and(|error| error.contains("`quota.idle_journal_per_hour`")));
}

#[actix::test]
async fn large_contents_count() {
    let piece = |offset| AgentReport::Piece { item: "i".into(), offset, text: "x".repeat(200_000), base64: false };
    let whole = think(250_000);
    for (first, second) in [(piece(0), piece(200_000)), (whole.clone(), whole)] {
        let fixture = ReportFixture::with_quota(quota(400_000, 1)).await;
        fixture.start_turn().await;
        fixture.report(1, vec![first]).await;
        assert_eq!(fixture.outcome().await.0, AgentState::Running);
        fixture.report(2, vec![second]).await;
        assert_eq!(fixture.outcome().await.0, AgentState::Interrupting);
    }
}

#[actix::test]
async fn usage_is_recorded_with_the_session() {
    let fixture = ReportFixture::with_quota(quota(100_000, 1 << 20)).await;
    fixture.start_turn().await;
    fixture.report(1, vec![think(50_000)]).await;
    let ended = AgentReport::TurnEnded { turn: "turn-2".into(), outcome: WorkOutcome::Done };
    fixture.report(2, vec![ended]).await;
    let record = fixture.store.get(fixture.id).await.expect("store is readable").expect("session exists").record;
    assert!((50_000..60_000).contains(&record.journal_usage.hour_bytes), "{:?}", record.journal_usage);
}

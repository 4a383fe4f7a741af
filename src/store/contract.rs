//! Contract suite of the journal port. A driver runs it with [`contract!`] and an expression for an
//! empty store.

mod contents;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesOrdered};
use greenroom_protocol::observation::AgentState;

use super::{
    AppendBatch, AppendError, ArchiveFilter, CreateOutcome, JournalEvent, JournalUsage, ReadLimit, ReportMark, Seq,
    SessionId, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError, StoredEvent, UsageTotals,
};

/// Generates one test per rule. `$fresh` returns a guard and an empty store that lives as long.
macro_rules! contract {
    ($fresh:expr) => {
        $crate::store::contract::contract!($fresh;
            appends_read_back_in_order, append_beside_tail_conflicts, pipelined_appends_commit_in_order,
            appends_behind_failed_append_are_rejected, append_of_older_epoch_is_fenced,
            mark_and_record_commit_with_events, create_of_existing_id_changes_nothing,
            racing_creates_agree_on_one_session, list_searches_filters_and_pages,
            sessions_that_have_not_ended_are_owned_and_counted, many_are_returned_in_the_order_of_their_ids,
            forget_removes_every_trace, forget_of_older_epoch_is_fenced, contents_of_older_epoch_are_fenced,
            contents_are_stored_per_session, content_is_assembled_from_pieces, content_with_hole_is_dropped,
            unfinished_contents_of_stopped_sessions_are_dropped, read_stops_at_limits,
            concurrent_sessions_keep_their_events_apart, racing_writers_append_exactly_once,
            missing_session_is_reported
        );
    };
    ($fresh:expr; $($rule:ident),* $(,)?) => {
        mod contract {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let (_keep, store) = $fresh;
                $crate::store::contract::$rule(std::sync::Arc::new(store)).await;
            })*
        }
    };
}
pub(super) use contract;

use self::contents::read_content;
pub(super) use self::contents::{
    content_is_assembled_from_pieces, content_with_hole_is_dropped, contents_are_stored_per_session,
    contents_of_older_epoch_are_fenced, unfinished_contents_of_stopped_sessions_are_dropped,
};

pub(super) const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };

pub(crate) fn record(title: &str) -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        title: title.to_owned(),
        state: AgentState::Idle,
        reason: None,
        agent: "greenroom".into(),
        model: "demo".into(),
        effort: None,
        mode: None,
        analyzer: None,
        image: None,
        sandbox: "process".into(),
        sandbox_uid: None,
        directory: None,
        created_at: "2026-01-01T00:00:00.000Z".into(),
        updated_at: "2026-01-01T00:00:00.000Z".into(),
        usage: UsageTotals::default(),
        budget_usd: None,
        spent_on: None,
        reported_budget_usd: None,
        journal_usage: JournalUsage::default(),
        latest: None,
        parent: None,
        repository: None,
        further_models: Vec::new(),
        archived: false,
        idempotency_key: None,
        actor_state: crate::store::OpaqueState::default(),
    }
}

/// Returns an event whose text names its session and number, so a misplaced event is detected.
pub(super) fn event(session: SessionId, seq: Seq) -> JournalEvent {
    let json = format!(r#"{{"seq":{seq},"of":"{session}","text":"{}"}}"#, "x".repeat((seq % 7) as usize * 40));
    JournalEvent { kind: format!("kind{}", seq % 3).into(), json: Bytes::from(json) }
}

pub(super) fn events(session: SessionId, after: Seq, count: u64) -> AppendBatch {
    let events = (after + 1..=after + count).map(|seq| event(session, seq)).collect();
    AppendBatch { events, ..AppendBatch::default() }
}

pub(super) fn expected(session: SessionId, tail: Seq) -> Vec<StoredEvent> {
    (1..=tail).map(|seq| (seq, event(session, seq))).collect()
}

pub(super) async fn claimed(store: &impl Store, title: &str) -> (SessionId, u64) {
    let session = store.create(record(title)).await.unwrap().into_snapshot().record.id;
    (session, store.claim(session).await.unwrap().0)
}

/// Purges a session as a caller that does not own it.
pub(crate) async fn claim_and_forget(store: &(impl Store + ?Sized), session: SessionId) {
    let (epoch, _) = store.claim(session).await.expect("the session exists");
    store.forget(session, epoch).await.expect("the store forgets the session");
}

async fn check_events(store: &impl Store, session: SessionId, tail: Seq) {
    assert_eq!(store.read(session, 0, ALL).await.unwrap(), expected(session, tail));
    assert_eq!(store.get(session).await.unwrap().unwrap().tail, tail);
}

pub(super) async fn appends_read_back_in_order(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    check_events(&*store, session, 0).await;
    assert_eq!(store.append(session, epoch, 0, events(session, 0, 3)).await.unwrap(), 3);
    assert_eq!(store.append(session, epoch, 3, events(session, 3, 1)).await.unwrap(), 4);
    check_events(&*store, session, 4).await;
    for after in 0..6 {
        let rest = store.read(session, after, ALL).await.unwrap();
        assert_eq!(rest, expected(session, 4).into_iter().skip(after as usize).collect::<Vec<_>>());
    }
}

pub(super) async fn append_beside_tail_conflicts(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 2)).await.unwrap();
    for at in [0, 1, 3] {
        let answer = store.append(session, epoch, at, events(session, at, 1)).await;
        assert!(matches!(answer, Err(AppendError::Conflict { tail: 2 })), "{at}: {answer:?}");
    }
    check_events(&*store, session, 2).await;
}

pub(super) async fn pipelined_appends_commit_in_order(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let mut answers: FuturesOrdered<_> =
        (0..200).map(|at| store.append(session, epoch, at, events(session, at, 1))).collect();
    for seq in 1..=200 {
        assert_eq!(answers.next().await.unwrap().unwrap(), seq);
    }
    check_events(&*store, session, 200).await;
}

pub(super) async fn appends_behind_failed_append_are_rejected(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let first = store.append(session, epoch, 0, events(session, 0, 2));
    let failed = store.append(session, epoch, 5, events(session, 5, 1));
    let follow_up = store.append(session, epoch, 6, events(session, 6, 1));
    assert_eq!(first.await.unwrap(), 2);
    assert!(matches!(failed.await, Err(AppendError::Conflict { tail: 2 })));
    assert!(matches!(follow_up.await, Err(AppendError::Conflict { tail: 2 })));
    assert_eq!(store.append(session, epoch, 2, events(session, 2, 1)).await.unwrap(), 3);
    check_events(&*store, session, 3).await;
}

pub(super) async fn append_of_older_epoch_is_fenced(store: Arc<impl Store>) {
    let session = store.create(record("a")).await.unwrap().into_snapshot().record.id;
    let unclaimed = store.append(session, 0, 0, events(session, 0, 1)).await;
    assert!(matches!(unclaimed, Err(AppendError::Fenced)), "{unclaimed:?}");
    let (old, _) = store.claim(session).await.unwrap();
    store.append(session, old, 0, events(session, 0, 1)).await.unwrap();
    let (new, snapshot) = store.claim(session).await.unwrap();
    assert!(new > old);
    assert_eq!(snapshot.tail, 1);
    assert!(matches!(store.append(session, old, 1, events(session, 1, 1)).await, Err(AppendError::Fenced)));
    assert_eq!(store.append(session, new, 1, events(session, 1, 1)).await.unwrap(), 2);
    check_events(&*store, session, 2).await;
}

pub(super) async fn mark_and_record_commit_with_events(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "before").await;
    let mark = ReportMark { boot: "b1".into(), n: 7 };
    let renamed = SessionRecord { id: session, ..record("after") };
    let full =
        AppendBatch { mark: Some(mark.clone()), record: Some(Arc::new(renamed.clone())), ..events(session, 0, 1) };
    store.append(session, epoch, 0, full).await.unwrap();
    let bare = AppendBatch { mark: Some(ReportMark { n: 8, ..mark.clone() }), ..AppendBatch::default() };
    assert_eq!(store.append(session, epoch, 1, bare).await.unwrap(), 1);
    let rejected = AppendBatch { mark: Some(ReportMark { n: 99, ..mark.clone() }), ..events(session, 7, 1) };
    store.append(session, epoch, 7, rejected).await.unwrap_err();

    let found = store.get(session).await.unwrap().unwrap();
    assert_eq!((found.record, found.mark, found.tail), (renamed, Some(ReportMark { n: 8, ..mark }), 1));
    let foreign = AppendBatch { record: Some(Arc::new(record("another's"))), ..AppendBatch::default() };
    assert!(matches!(store.append(session, epoch, 1, foreign).await, Err(AppendError::NotWritten(_))));
}

pub(super) async fn create_of_existing_id_changes_nothing(store: Arc<impl Store>) {
    let new = record("one");
    let session = new.id;
    let created = store.create(new.clone()).await.unwrap();
    let empty = SessionSnapshot { record: new.clone(), tail: 0, mark: None };
    assert_eq!(created, CreateOutcome::Created(empty.clone()));
    assert_eq!(
        store.create(SessionRecord { title: "two".into(), ..new.clone() }).await.unwrap(),
        CreateOutcome::Exists(empty)
    );
    let (epoch, _) = store.claim(session).await.unwrap();
    let renamed = SessionRecord { title: "renamed".into(), ..new.clone() };
    let batch = AppendBatch { record: Some(Arc::new(renamed.clone())), ..events(session, 0, 2) };
    store.append(session, epoch, 0, batch).await.unwrap();
    let grown = SessionSnapshot { record: renamed, tail: 2, mark: None };
    assert_eq!(store.create(new).await.unwrap(), CreateOutcome::Exists(grown));
    assert_eq!(store.append(session, epoch, 2, events(session, 2, 1)).await.unwrap(), 3, "the owner stays");
    check_events(&*store, session, 3).await;
}

/// Exactly one of several callers creates the session.
pub(super) async fn racing_creates_agree_on_one_session(store: Arc<impl Store>) {
    let id = SessionId::generate();
    let creating = (0..8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { store.create(SessionRecord { id, ..record(&format!("{n}")) }).await.unwrap() })
    });
    let outcomes = futures::future::try_join_all(creating.collect::<Vec<_>>()).await.unwrap();
    let created = outcomes.iter().filter(|outcome| matches!(outcome, CreateOutcome::Created(_)));
    assert_eq!(created.count(), 1);
    let found = store.get(id).await.unwrap().unwrap();
    assert!(outcomes.into_iter().all(|outcome| outcome.into_snapshot() == found));
}

pub(super) async fn list_searches_filters_and_pages(store: Arc<impl Store>) {
    for n in 0..7 {
        let updated_at = format!("2026-01-0{}T00:00:00.000Z", 1 + n / 2);
        let state = if n == 3 { AgentState::Running } else { AgentState::Idle };
        store
            .create(SessionRecord { updated_at, state, archived: n == 6, ..record(&format!("Fix Bug {n}")) })
            .await
            .unwrap();
    }
    let titles = |query: SessionQuery| {
        let store = store.clone();
        async move { store.list(query).await.unwrap().items.into_iter().map(|it| it.record.title).collect::<Vec<_>>() }
    };
    let newest = ["Fix Bug 5", "Fix Bug 4", "Fix Bug 3", "Fix Bug 2", "Fix Bug 1", "Fix Bug 0"];
    let all = store.list(SessionQuery::default()).await.unwrap();
    assert_eq!((all.total, all.next_cursor), (6, None));
    let days: Vec<_> = all.items.iter().map(|it| it.record.updated_at.clone()).collect();
    assert!(days.is_sorted_by(|a, b| a >= b), "{days:?}");
    assert_eq!(titles(SessionQuery { text: Some("bUg 4".into()), ..SessionQuery::default() }).await, [newest[1]]);
    let id = all.items[0].record.id.to_string().to_lowercase();
    assert_eq!(
        titles(SessionQuery { text: Some(id), ..SessionQuery::default() }).await,
        [all.items[0].record.title.clone()]
    );
    assert_eq!(
        titles(SessionQuery { state: Some(AgentState::Running), ..SessionQuery::default() }).await,
        ["Fix Bug 3"]
    );
    assert_eq!(
        titles(SessionQuery { archived: ArchiveFilter::Archived, ..SessionQuery::default() }).await,
        ["Fix Bug 6"]
    );
    let any = SessionQuery { archived: ArchiveFilter::Any, ..SessionQuery::default() };
    assert_eq!(store.list(any).await.unwrap().total, all.total + 1);

    let mut paged = Vec::new();
    let mut query = SessionQuery { limit: 4, ..SessionQuery::default() };
    loop {
        let page = store.list(query.clone()).await.unwrap();
        assert_eq!(page.total, 6);
        paged.extend(page.items);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => break,
        }
    }
    assert_eq!(paged, all.items);
    let bad = store.list(SessionQuery { cursor: Some("nonsense".into()), ..SessionQuery::default() }).await;
    assert!(matches!(bad, Err(StoreError::BadCursor(text)) if text == "nonsense"));
}

pub(super) async fn sessions_that_have_not_ended_are_owned_and_counted(store: Arc<impl Store>) {
    assert_eq!(store.count_by_state().await.unwrap(), HashMap::new());
    let unclaimed = store.create(record("unclaimed")).await.unwrap().into_snapshot();
    let (claimed, _) = claimed(&*store, "claimed").await;
    let paused = SessionRecord { state: AgentState::Paused, archived: true, ..record("archived") };
    let paused = store.create(paused).await.unwrap().into_snapshot();
    store.create(SessionRecord { state: AgentState::Ended, ..record("ended") }).await.unwrap();
    let mut mine: Vec<_> = store.mine().await.unwrap().into_iter().map(|session| session.record.id).collect();
    mine.sort();
    let mut expected = [unclaimed.record.id, claimed, paused.record.id];
    expected.sort();
    assert_eq!(mine, expected);
    assert_eq!(store.orphans().await.unwrap(), [], "one node owns all sessions");
    let counts = HashMap::from([(AgentState::Idle, 2), (AgentState::Paused, 1)]);
    assert_eq!(store.count_by_state().await.unwrap(), counts);
}

pub(super) async fn many_are_returned_in_the_order_of_their_ids(store: Arc<impl Store>) {
    let [a, b, c] = futures::future::join_all(["a", "b", "c"].map(|title| store.create(record(title))))
        .await
        .into_iter()
        .map(|created| created.unwrap().into_snapshot())
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let (ids, missing) = ([&a, &b, &c].map(|session| session.record.id), SessionId::generate());
    assert_eq!(store.get_many(&[ids[2], missing, ids[0], ids[1]]).await.unwrap(), [c, a, b]);
    assert_eq!(store.get_many(&[missing]).await.unwrap(), []);
    assert_eq!(store.get_many(&[]).await.unwrap(), []);
}

pub(super) async fn forget_removes_every_trace(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let (other, other_epoch) = claimed(&*store, "b").await;
    store.append(session, epoch, 0, events(session, 0, 2)).await.unwrap();
    store.append(other, other_epoch, 0, events(other, 0, 2)).await.unwrap();
    let name = store.put_content(session, epoch, Bytes::from_static(b"large")).await.unwrap();
    store.forget(session, epoch).await.unwrap();
    store.forget(session, epoch).await.unwrap();
    assert_eq!(store.get(session).await.unwrap(), None);
    assert_eq!(read_content(&*store, session, &name).await, None);
    assert!(matches!(store.read(session, 0, ALL).await, Err(StoreError::NoSession(id)) if id == session));
    assert_eq!(store.list(SessionQuery::default()).await.unwrap().total, 1);
    check_events(&*store, other, 2).await;

    store.create(SessionRecord { id: session, ..record("again") }).await.unwrap();
    check_events(&*store, session, 0).await;
}

pub(super) async fn forget_of_older_epoch_is_fenced(store: Arc<impl Store>) {
    let unclaimed = store.create(record("unclaimed")).await.unwrap().into_snapshot().record.id;
    assert!(matches!(store.forget(unclaimed, 0).await, Err(StoreError::Fenced)));
    let (session, old) = claimed(&*store, "a").await;
    store.append(session, old, 0, events(session, 0, 2)).await.unwrap();
    let (new, _) = store.claim(session).await.unwrap();
    for epoch in [0, old, new + 1] {
        assert!(matches!(store.forget(session, epoch).await, Err(StoreError::Fenced)), "{epoch}");
        check_events(&*store, session, 2).await;
    }
    store.forget(session, new).await.unwrap();
    assert_eq!(store.get(session).await.unwrap(), None);
}

pub(super) async fn read_stops_at_limits(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 10)).await.unwrap();
    let check = |after, events, bytes, count| {
        let store = store.clone();
        async move {
            let found = store.read(session, after, ReadLimit { events, bytes }).await.unwrap();
            let seqs: Vec<Seq> = found.into_iter().map(|(seq, _)| seq).collect();
            assert_eq!(seqs, (after + 1..=after + count).collect::<Vec<_>>());
        }
    };
    check(0, 3, usize::MAX, 3).await;
    check(8, 3, usize::MAX, 2).await;
    check(2, usize::MAX, 1, 1).await;
    let two = event(session, 4).json.len() + event(session, 5).json.len();
    check(3, usize::MAX, two, 2).await;
    check(3, usize::MAX, two - 1, 1).await;
}

pub(super) async fn concurrent_sessions_keep_their_events_apart(store: Arc<impl Store>) {
    let workers = (0..20).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let (session, epoch) = claimed(&*store, &format!("{n}")).await;
            for at in 0..30 {
                store.append(session, epoch, at, events(session, at, 1)).await.unwrap();
                let newest = store.read(session, at, ALL).await.unwrap();
                assert_eq!(newest, [(at + 1, event(session, at + 1))]);
            }
            check_events(&*store, session, 30).await;
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
}

/// Compare-and-swap: exactly one of several appends at the same end succeeds, and the others leave
/// no trace.
pub(super) async fn racing_writers_append_exactly_once(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let writers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let (mut at, mut won) = (0, 0);
            while won < 10 {
                match store.append(session, epoch, at, events(session, at, 1)).await {
                    Ok(tail) => (at, won) = (tail, won + 1),
                    Err(AppendError::Conflict { tail }) => at = tail,
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    check_events(&*store, session, 80).await;
}

pub(super) async fn missing_session_is_reported(store: Arc<impl Store>) {
    let missing = SessionId::generate();
    assert_eq!(store.get(missing).await.unwrap(), None);
    assert!(matches!(store.claim(missing).await, Err(StoreError::NoSession(id)) if id == missing));
    assert!(matches!(store.read(missing, 0, ALL).await, Err(StoreError::NoSession(_))));
    let append = store.append(missing, 1, 0, events(missing, 0, 1)).await;
    assert!(matches!(append, Err(AppendError::NoSession(id)) if id == missing));
    store.check().await.unwrap();
}

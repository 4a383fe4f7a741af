//! Search over several sessions: order, pages, bounds and faults.

use serde_json::json;

use super::*;
use crate::store::{AppendBatch, JournalEvent, contract::record, faulty::FaultyStore};

const UNBOUNDED: SearchBounds = SearchBounds { hits: 1000, bytes: usize::MAX, time: Duration::MAX };

fn said(text: &str) -> JournalEvent {
    let json = json!({ "at": "2026-01-01T00:00:00.000Z", "source": "agent", "observation": "message",
        "extras": {}, "content": text });
    JournalEvent { kind: "message".into(), json: json.to_string().into() }
}

/// Creates a session whose last activity is at minute `minute`.
async fn session(store: &FaultyStore, minute: usize, texts: &[String]) -> SessionId {
    let new = SessionRecord {
        updated_at: format!("2026-01-01T00:{minute:02}:00.000Z"),
        archived: minute % 2 == 1,
        ..record(&format!("minute {minute}"))
    };
    let id = store.create(new).await.unwrap().into_snapshot().record.id;
    let (epoch, _) = store.claim(id).await.unwrap();
    let events = texts.iter().map(|text| said(text)).collect();
    store.append(id, epoch, 0, AppendBatch { events, ..AppendBatch::default() }).await.unwrap();
    id
}

async fn found(store: &Arc<FaultyStore>, cursor: Option<SearchCursor>, bounds: SearchBounds) -> FoundEvents {
    search(store.clone(), SearchText::new("needle").unwrap(), cursor, bounds).await.unwrap()
}

/// Returns the titles and numbers of all hits, page by page.
async fn pages(store: &Arc<FaultyStore>, bounds: SearchBounds) -> Vec<Vec<(String, Seq)>> {
    let (mut pages, mut cursor) = (Vec::new(), None);
    loop {
        let page = found(store, cursor, bounds).await;
        pages.push(page.items.iter().map(|hit| (hit.title.to_string(), hit.event.seq)).collect());
        // The cursor travels as text.
        cursor = page.next_cursor.map(|cursor| cursor.to_string().parse().unwrap());
        if cursor.is_none() {
            return pages;
        }
    }
}

/// Returns a store of `sessions` sessions with `events` events each. Every third event is a hit.
async fn filled(sessions: usize, events: usize) -> Arc<FaultyStore> {
    let store = Arc::new(FaultyStore::default());
    let texts: Vec<_> = (1..=events).map(|n| if n.is_multiple_of(3) { "a Needle" } else { "hay" }.to_owned()).collect();
    for minute in 0..sessions {
        session(&store, minute, &texts).await;
    }
    store
}

fn expected(sessions: usize, events: Seq) -> Vec<(String, Seq)> {
    let hits = (0..sessions).rev().flat_map(|minute| {
        (1..=events).rev().filter(|seq| seq.is_multiple_of(3)).map(move |seq| (format!("minute {minute}"), seq))
    });
    hits.collect()
}

#[tokio::test]
async fn newest_sessions_and_events_come_first_archived_or_not() {
    let store = filled(4, 10).await;
    let all = found(&store, None, UNBOUNDED).await;
    let hits: Vec<_> = all.items.iter().map(|hit| (hit.title.to_string(), hit.event.seq)).collect();
    assert_eq!((hits, all.next_cursor, all.unreadable), (expected(4, 10), None, 0));
    assert!(all.items.iter().all(|hit| hit.archived == ["minute 1", "minute 3"].contains(&&*hit.title)));
}

#[tokio::test]
async fn pages_of_any_size_have_every_hit_once() {
    let store = filled(3, 200).await;
    for hits in [1, 7, 66, 1000] {
        let pages = pages(&store, SearchBounds { hits, ..UNBOUNDED }).await;
        assert!(pages.iter().all(|page| page.len() <= hits), "{hits}");
        assert_eq!(pages.concat(), expected(3, 200), "{hits}");
    }
}

#[tokio::test]
async fn byte_bound_ends_an_answer_without_hits_and_the_next_continues() {
    let store = Arc::new(FaultyStore::default());
    session(&store, 0, &["the needle".to_owned()]).await;
    for minute in 1..30 {
        session(&store, minute, &["h".repeat(1000)]).await;
    }
    let pages = pages(&store, SearchBounds { bytes: 4000, ..UNBOUNDED }).await;
    assert!((7..=9).contains(&pages.len()), "about four sessions each: {pages:?}");
    assert_eq!(pages.concat(), [("minute 0".to_owned(), 1)]);
    assert!(pages[0].is_empty());
}

#[tokio::test(start_paused = true)]
async fn time_bound_ends_an_answer_and_each_makes_progress() {
    let store = filled(5, 3).await;
    *store.read_delay.lock().unwrap() = Duration::from_millis(90);
    let pages = pages(&store, SearchBounds { time: Duration::from_millis(200), ..UNBOUNDED }).await;
    assert_eq!(pages.concat(), expected(5, 3));
    assert_eq!(pages.len(), 2, "three reads of 90 ms reach the bound: {pages:?}");
    *store.read_delay.lock().unwrap() = Duration::from_secs(9);
    let slow = self::pages(&store, SearchBounds { time: Duration::from_millis(200), ..UNBOUNDED }).await;
    assert_eq!((slow.len(), slow.concat()), (5, expected(5, 3)), "one read each");
}

#[tokio::test]
async fn large_events_shrink_the_window_and_none_is_lost() {
    let store = Arc::new(FaultyStore::default());
    let large = |n: usize| format!("{} needle {n}", "x".repeat(if n.is_multiple_of(5) { 1_100_000 } else { 300_000 }));
    let texts: Vec<_> = (1..=11).map(large).collect();
    session(&store, 0, &texts).await;
    let all = found(&store, None, UNBOUNDED).await;
    let seqs: Vec<_> = all.items.iter().map(|hit| hit.event.seq).collect();
    assert_eq!(seqs, (1..=11).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn unreadable_session_is_counted_and_the_others_are_searched() {
    let store = Arc::new(FaultyStore::default());
    let texts = ["needle".to_owned()];
    session(&store, 0, &texts).await;
    let lost = session(&store, 1, &texts).await;
    session(&store, 2, &texts).await;
    *store.unreadable_from.lock().unwrap() = Some((lost, 0));
    let all = found(&store, None, UNBOUNDED).await;
    let titles: Vec<_> = all.items.iter().map(|hit| &*hit.title).collect();
    assert_eq!((titles, all.unreadable), (vec!["minute 2", "minute 0"], 1));
}

#[tokio::test]
async fn cursor_outlives_a_purge_of_its_session() {
    let store = filled(2, 9).await;
    let first = found(&store, None, SearchBounds { hits: 1, ..UNBOUNDED }).await;
    let cursor = first.next_cursor.unwrap();
    let (epoch, _) = store.claim(cursor.session).await.unwrap();
    store.forget(cursor.session, epoch).await.unwrap();
    let rest = found(&store, Some(cursor), UNBOUNDED).await;
    assert!(rest.items.iter().all(|hit| &*hit.title == "minute 0") && rest.items.len() == 3);
}

#[test]
fn cursor_reads_back_and_other_texts_are_rejected() {
    let text = "2026-01-01T00:00:00.000Z_01KAHTXV3M9W6N2Q4ZB8C5R7DE_17";
    assert_eq!(text.parse::<SearchCursor>().unwrap().to_string(), text);
    let id = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";
    for bad in ["", "x", id, &format!("{id}_1"), &format!("_{id}_"), &format!("_{id}_+1"), &format!("_{id}_-1")] {
        bad.parse::<SearchCursor>().unwrap_err();
    }
    format!("_{id}_{}", "9".repeat(19)).parse::<SearchCursor>().unwrap_err();
    format!("_{id}_{}", "9".repeat(18)).parse::<SearchCursor>().unwrap();
}

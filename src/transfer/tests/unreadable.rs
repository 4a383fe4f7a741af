//! Tests of a disk that cannot read some of its data.

use super::*;
use crate::store::{contract::claim_and_forget, faulty::FaultyStore};

#[tokio::test]
async fn unreadable_session_is_cut_and_others_are_exported() {
    let (inner, ids) = full().await;
    let sound = text(&inner, Some(ids[0])).await;
    let store = FaultyStore::wrapping(inner);
    *store.unreadable_from.lock().expect("lock is never poisoned: no holder panics") = Some((ids[2], 400));
    let error = export(&store, None, DamagePolicy::Fail, &mut Vec::new()).await.expect_err("the session is unreadable");
    assert!(error.to_string().contains(&ids[2].to_string()), "{error}");
    let (mut skipped, mut out) = (Vec::new(), Vec::new());
    let counts = export(&store, None, DamagePolicy::Skip(&mut skipped), &mut out).await.expect("the rest is exported");
    assert_eq!(counts, TransferCounts { sessions: 3, events: 5 + 399, already_present: 0 });
    let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
    let session = format!("session `{}`", ids[2]);
    assert!(skipped.len() == 2 && skipped.iter().all(|error| error.contains(&session)), "{skipped:?}");
    assert!(skipped[0].starts_with("content") && skipped[1].contains("from event 400 on"), "{skipped:?}");

    let (_dir, other) = local();
    import_text(&other, &String::from_utf8(out).expect("text")).await.expect("the import succeeds");
    assert_eq!(text(other.as_ref(), Some(ids[0])).await, sound);
    assert_eq!(other.get(ids[2]).await.expect("the store is readable").expect("the session exists").tail, 399);
    *store.unreadable_from.lock().expect("lock is never poisoned: no holder panics") = None;
    let whole = with_head(&text(&store, None).await);
    assert_eq!(import_text(&other, &whole).await.expect("the import continues").events, 301);
}

#[tokio::test]
async fn damage_of_present_session_is_reported_with_line() {
    let (dir, store) = local();
    let mut ids = [(); 2].map(|()| SessionId::generate());
    ids.sort();
    for id in ids {
        fill(store.as_ref(), id, 5).await;
    }
    let backup = with_head(&text(store.as_ref(), None).await);
    drop(store);
    let mut segments = std::fs::read_dir(dir.path().join("log")).expect("the directory is readable").flatten();
    flip(&segments.next().expect("a segment").path(), r#""content":"\u00e4 5""#);
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(dir.path()).expect("the store opens"));
    claim_and_forget(store.as_ref(), ids[0]).await;

    let error = import_text(&store, &backup).await.expect_err("an event of the other is damaged").to_string();
    // Line of the last event in the file.
    let line =
        1 + backup.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(r#""seq":5"#)).expect("a line");
    assert!(error.starts_with(&format!("line {line}: session `{}`", ids[1])), "{error}");
    assert!(error.contains("event 5") && error.contains("purge it first"), "{error}");
    assert_eq!(store.get(ids[0]).await.expect("the store is readable"), None, "nothing was imported");
    claim_and_forget(store.as_ref(), ids[1]).await;
    let counts = import_text(&store, &backup).await.expect("the import succeeds");
    assert_eq!(counts, TransferCounts { sessions: 2, events: 10, already_present: 0 });
    assert_eq!(with_head(&text(store.as_ref(), None).await), backup);
}

#[tokio::test]
async fn unreadable_present_session_is_reported_with_line() {
    let (inner, ids) = full().await;
    let backup = with_head(&text(&inner, None).await);
    let faulty = Arc::new(FaultyStore::wrapping(inner));
    let store: Arc<dyn Store> = faulty.clone();
    for from in [1, 400, u64::MAX] {
        *faulty.unreadable_from.lock().expect("lock is never poisoned: no holder panics") = Some((ids[2], from));
        let error = import_text(&store, &backup).await.expect_err("the session is unreadable").to_string();
        let names_line = error.starts_with("line ") && error.contains(&format!("session `{}`", ids[2]));
        assert!(names_line && error.contains("input/output error; purge it first"), "{error}");
    }
}

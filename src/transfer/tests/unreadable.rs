//! A disk that does not give some of what is on it.

use super::*;
use crate::store::faulty::FaultyStore;

#[tokio::test]
async fn a_session_that_the_disk_does_not_give_is_cut_and_named_and_the_others_are_exported() {
    let (inner, ids) = full().await;
    let sound = text(&inner, Some(ids[0])).await;
    let store = FaultyStore::wrapping(inner);
    *store.unreadable_from.lock().expect("nobody panics here") = Some((ids[2], 400));
    let refused = export(&store, None, DamagePolicy::Fail, &mut Vec::new()).await.expect_err("it cannot be read");
    assert!(refused.to_string().contains(&ids[2].to_string()), "{refused}");
    let (mut told, mut out) = (Vec::new(), Vec::new());
    let moved = export(&store, None, DamagePolicy::Skip(&mut told), &mut out).await.expect("the rest is exported");
    assert_eq!(moved, TransferCounts { sessions: 3, events: 5 + 399, already_present: 0 });
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let named = format!("session `{}`", ids[2]);
    assert!(told.len() == 2 && told.iter().all(|what| what.contains(&named)), "{told:?}");
    assert!(told[0].starts_with("content") && told[1].contains("from event 400 on"), "{told:?}");

    let (_dir, other) = local();
    import_text(&other, &String::from_utf8(out).expect("text")).await.expect("it is imported");
    assert_eq!(text(other.as_ref(), Some(ids[0])).await, sound);
    assert_eq!(other.get(ids[2]).await.expect("it answers").expect("it is there").tail, 399);
    *store.unreadable_from.lock().expect("nobody panics here") = None;
    let whole = with_head(&text(&store, None).await);
    assert_eq!(import_text(&other, &whole).await.expect("it goes on").events, 301);
}

#[tokio::test]
async fn what_is_damaged_here_is_named_with_its_line_and_the_way_out() {
    let (dir, store) = local();
    let mut ids = [(); 2].map(|()| SessionId::generate());
    ids.sort();
    for id in ids {
        fill(store.as_ref(), id, 5).await;
    }
    let backup = with_head(&text(store.as_ref(), None).await);
    drop(store);
    let mut segments = std::fs::read_dir(dir.path().join("log")).expect("it is read").flatten();
    flip(&segments.next().expect("a segment").path(), r#""content":"\u00e4 5""#);
    let store: Arc<dyn Store> = Arc::new(LocalStore::open(dir.path()).expect("it opens"));
    store.forget(ids[0]).await.expect("it is purged");

    let refused = import_text(&store, &backup).await.expect_err("an event of the other is damaged").to_string();
    // The last event of the file.
    let line =
        1 + backup.lines().collect::<Vec<_>>().iter().rposition(|line| line.contains(r#""seq":5"#)).expect("a line");
    assert!(refused.starts_with(&format!("line {line}: session `{}`", ids[1])), "{refused}");
    assert!(refused.contains("event 5") && refused.contains("purge it first"), "{refused}");
    assert_eq!(store.get(ids[0]).await.expect("it answers"), None, "nothing is imported");
    store.forget(ids[1]).await.expect("it is purged");
    let moved = import_text(&store, &backup).await.expect("it is imported");
    assert_eq!(moved, TransferCounts { sessions: 2, events: 10, already_present: 0 });
    assert_eq!(with_head(&text(store.as_ref(), None).await), backup);
}

#[tokio::test]
async fn what_the_disk_does_not_give_here_is_named_too() {
    let (inner, ids) = full().await;
    let backup = with_head(&text(&inner, None).await);
    let faulty = Arc::new(FaultyStore::wrapping(inner));
    let store: Arc<dyn Store> = faulty.clone();
    for from in [1, 400, u64::MAX] {
        *faulty.unreadable_from.lock().expect("nobody panics here") = Some((ids[2], from));
        let refused = import_text(&store, &backup).await.expect_err("it cannot be read").to_string();
        let begins = refused.starts_with("line ") && refused.contains(&format!("session `{}`", ids[2]));
        assert!(begins && refused.contains("input/output error; purge it first"), "{refused}");
    }
}

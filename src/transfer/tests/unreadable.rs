//! A disk that does not give some of what is on it.

use super::*;
use crate::store::faulty::Faulty;

#[tokio::test]
async fn a_session_that_the_disk_does_not_give_is_cut_and_named_and_the_others_are_exported() {
    let (inner, ids) = full().await;
    let sound = text(&inner, Some(ids[0])).await;
    let store = Faulty::over(inner);
    *store.unreadable.lock().expect("nobody panics here") = Some((ids[2], 400));
    let refused = export(&store, None, Damaged::Refused, &mut Vec::new()).await.expect_err("it cannot be read");
    assert!(refused.to_string().contains(&ids[2].to_string()), "{refused}");
    let (mut told, mut out) = (Vec::new(), Vec::new());
    let moved = export(&store, None, Damaged::Skipped(&mut told), &mut out).await.expect("the rest is exported");
    assert_eq!(moved, Moved { sessions: 3, events: 5 + 399, known: 0 });
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let named = format!("session `{}`", ids[2]);
    assert!(told.len() == 2 && told.iter().all(|what| what.contains(&named)), "{told:?}");
    assert!(told[0].starts_with("content") && told[1].contains("from event 400 on"), "{told:?}");

    let (_dir, other) = local();
    take_in(&other, &String::from_utf8(out).expect("text")).await.expect("it is imported");
    assert_eq!(text(other.as_ref(), Some(ids[0])).await, sound);
    assert_eq!(other.get(ids[2]).await.expect("it answers").expect("it is there").tail, 399);
    *store.unreadable.lock().expect("nobody panics here") = None;
    let whole = with_head(&text(&store, None).await);
    assert_eq!(take_in(&other, &whole).await.expect("it goes on").events, 301);
}

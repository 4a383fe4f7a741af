//! Search through what was said: answer, errors, limit of searches.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use super::fixture::{WebFixture, fixture, fixture_on};
use crate::store::{AppendBatch, JournalEvent, SessionId, SessionRecord, contract::record, faulty::FaultyStore};

/// Adds an archived session in which the agent says this.
async fn add_session<S>(fixture: &WebFixture<S>, text: &str) -> SessionId {
    let new = SessionRecord { archived: true, ..record("Bake bread") };
    let id = fixture.store.create(new).await.expect("the session is new").into_snapshot().record.id;
    let (epoch, _) = fixture.store.claim(id).await.expect("the session exists");
    let event = json!({ "seq": 1, "at": "2026-01-01T00:00:07.000Z", "source": "agent", "observation": "message",
        "extras": {}, "content": text });
    let event = JournalEvent { kind: "message".into(), json: event.to_string().into() };
    let batch = AppendBatch { events: vec![event], ..AppendBatch::default() };
    fixture.store.append(id, epoch, 0, batch).await.expect("the journal takes the event");
    id
}

#[actix_web::test]
async fn hit_has_its_session_event_and_matches() {
    let fixture = fixture().await;
    let id = add_session(&fixture, "🦀 Fold <b>the</b>\n\n dough,\tthen fold again").await;
    let found = fixture.call("GET", "/api/search?q=FOLD", None).await;
    let hit = json!({
        "session": id, "title": "Bake bread", "archived": true, "seq": 1, "at": "2026-01-01T00:00:07.000Z",
        "source": "agent", "kind": "message", "snippet": "🦀 Fold <b>the</b> dough, then fold again",
        "matches": [[3, 7], [31, 35]],
    });
    assert_eq!(found.json(), json!({ "items": [hit], "next_cursor": null, "unreadable": 0 }), "{}", found.text);
    let none = fixture.call("GET", "/api/search?q=knead&limit=5", None).await.json();
    assert_eq!(none, json!({ "items": [], "next_cursor": null, "unreadable": 0 }));
}

#[actix_web::test]
async fn pages_follow_the_cursor() {
    let fixture = fixture().await;
    for _ in 0..3 {
        add_session(&fixture, "dough").await;
    }
    let (mut uri, mut sessions) = ("/api/search?q=dough&limit=1".to_owned(), Vec::new());
    loop {
        let page = fixture.call("GET", &uri, None).await.json();
        sessions.extend(page["items"].as_array().expect("a list").iter().map(|hit| hit["session"].clone()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        uri = format!("/api/search?q=dough&limit=1&cursor={cursor}");
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 3);
}

#[actix_web::test]
async fn unsuitable_query_is_rejected_with_its_reason() {
    let fixture = fixture().await;
    let check = async |query: &str, reason: &str| {
        let reply = fixture.call("GET", &format!("/api/search?{query}"), None).await;
        assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{query}: {}", reply.text);
        assert!(reply.text.contains(reason), "{query}: {}", reply.text);
    };
    check("", "missing field `q`").await;
    check("q=", "`q` is empty").await;
    check("q=%20%20%C2%A0", "`q` is empty").await;
    check(&format!("q={}", "x".repeat(10_000)), "`q` has 10000 characters; it may have 200").await;
    check("q=a%00b", "`q` has a control character").await;
    check("q=%1b%5b31m", "`q` has a control character").await;
    check("q=a&cursor=nonsense", "`cursor` is no cursor of a search").await;
    check("q=a&limit=-1", "`limit`").await;
    check("q=a&qq=b", "`qq`").await;
    // Characters of regular expressions stand for themselves.
    for query in ["q=.*", "q=%28", "q=%5B%5E", "q=a%7B1%2C99999%7D", "q=%5C"] {
        let reply = fixture.call("GET", &format!("/api/search?{query}"), None).await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.text);
    }
}

#[actix_web::test]
async fn third_search_at_a_time_is_rejected() {
    let fixture = fixture().await;
    let permits = [fixture.search_limiter.admit(), fixture.search_limiter.admit()].map(|it| it.expect("it is free"));
    let rejected = fixture.call("GET", "/api/search?q=a", None).await;
    assert_eq!(rejected.error(), (429, "overloaded".to_owned()));
    assert_eq!(rejected.header("retry-after"), "1");
    // A wrong query is rejected as such.
    assert_eq!(fixture.call("GET", "/api/search?q=", None).await.status, 400);
    drop(permits);
    assert_eq!(fixture.call("GET", "/api/search?q=a", None).await.status, 200);
}

#[actix_web::test]
async fn search_ends_with_its_client() {
    let store = Arc::new(FaultyStore::default());
    let fixture = fixture_on(store.clone()).await;
    add_session(&fixture, "dough").await;
    *store.read_delay.lock().expect("no holder panics") = Duration::from_secs(3600);
    let mut waiting = Box::pin(fixture.call("GET", "/api/search?q=dough", None));
    assert!(futures::poll!(&mut waiting).is_pending());
    let other = fixture.search_limiter.admit().expect("one of two is free");
    assert!(fixture.search_limiter.admit().is_none(), "the search holds the other");
    drop((waiting, other));
    let both = [fixture.search_limiter.admit(), fixture.search_limiter.admit()];
    assert!(both.iter().all(Option::is_some), "the search is over");
}

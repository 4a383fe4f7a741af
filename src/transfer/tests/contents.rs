//! Tests of which contents an export includes, in whatever way events name them.

use super::*;

const NAME: &str = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";

fn contents(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with(r#"{"content":"#)).collect()
}

#[tokio::test]
async fn content_is_exported_once() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    fill(store.as_ref(), id, 3).await;
    let before = text(store.as_ref(), None).await;
    assert!(contents(&before).len() > 1, "the content has several chunks");

    let lower = NAME.to_lowercase();
    let shapes = [
        format!(r#"[["x/{lower}"]]"#),
        format!(r#"[["x/{NAME}"]]"#),
        format!(r#"{{"truncated":["x/{lower}"]}}"#),
        format!(r#"{{"truncated":{{"bytes":9,"href":"x/{lower}"}}}}"#),
        format!(r#"{{"truncated":{{"bytes":9,"href":"x/{NAME}"}}}}"#),
    ];
    let json = (4..)
        .zip(shapes.iter().cycle().take(50))
        .map(|(seq, extras)| format!(r#"{{"seq":{seq},"observation":"smell","extras":{extras},"content":""}}"#));
    let events = json.map(|json| JournalEvent { kind: "smell".into(), json: json.into() }).collect();
    let (epoch, snapshot) = store.claim(id).await.expect("the session is claimed");
    store
        .append(id, epoch, snapshot.tail, AppendBatch { events, ..AppendBatch::default() })
        .await
        .expect("the write succeeds");

    let out = text(store.as_ref(), None).await;
    assert_eq!(contents(&out), contents(&before));
    let (_dir, other) = local();
    let counts = import_text(&other, &with_head(&out)).await.expect("the import succeeds");
    assert_eq!((counts.sessions, counts.events), (1, 53));
    assert_eq!(text(other.as_ref(), None).await, out);
}

#[tokio::test]
async fn content_follows_the_event_that_refers_to_it() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    store.create(record(id, false)).await.expect("the session is created");
    let (epoch, _) = store.claim(id).await.expect("the session is claimed");
    let name = store.put_content(id, epoch, "whole".into()).await.expect("the content is stored");
    let list_event =
        JournalEvent { kind: "smell".into(), json: format!(r#"{{"seq":1,"extras":[["{name}"]]}}"#).into() };
    let batch = AppendBatch { events: vec![list_event, event(2, Some(&name))], ..AppendBatch::default() };
    store.append(id, epoch, 0, batch).await.expect("the write succeeds");
    let out = text(store.as_ref(), None).await;
    let kinds: Vec<_> = out.lines().map(|line| &line[..8]).collect();
    assert_eq!(kinds, [r#"{"sessio"#, r#"{"kind":"#, r#"{"kind":"#, r#"{"conten"#, r#"{"end":""#, r#"{"total""#]);
}

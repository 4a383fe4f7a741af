//! Tests of forged files: the digests are valid, the sessions are not.

use super::*;

const NAME: &str = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";

/// Line of a forged session.
enum ForgedLine<'a> {
    Event(&'a str),
    Content(&'a str, &'a str),
}
use ForgedLine::{Content, Event};

/// Returns a file of these sessions with valid digests.
fn forged(sessions: &[(SessionId, &[ForgedLine<'_>])]) -> String {
    let mut lines = Vec::new();
    let (mut overall, mut events) = (ExportDigest::default(), 0);
    for (id, session_lines) in sessions {
        let (mut digest, mut count) = (ExportDigest::default(), 0);
        lines.push(serde_json::to_string(&ExportLine::session(&record(*id, false), None)).expect("a line"));
        for line in *session_lines {
            match line {
                Event(json) => {
                    let event = JournalEvent { kind: "run".into(), json: Bytes::from((*json).to_owned()) };
                    digest.event(&event);
                    count += 1;
                    lines.push(format!(r#"{{"kind":"run","event":{json}}}"#));
                }
                Content(name, text) => {
                    digest.begin_content(name);
                    digest.more_content(text.as_bytes());
                    lines.push(serde_json::to_string(&ExportLine::content(name, text)).expect("a line"));
                }
            }
        }
        let digest = digest.finish();
        overall.add(&digest);
        events += count;
        lines.push(serde_json::to_string(&ExportLine::end(*id, count, &digest)).expect("a line"));
    }
    let total = ExportTotals { sessions: sessions.len() as u64, events };
    lines.push(
        serde_json::to_string(&ExportLine::Total(ExportTotal { total, sha256: overall.finish() })).expect("a line"),
    );
    with_head(&(lines.join("\n") + "\n"))
}

async fn assert_rejected(file: &str, line: u64, what: &str) {
    let (_dir, store) = local();
    let error = import_text(&store, file).await.expect_err(what).to_string();
    assert!(error.starts_with(&format!("line {line}: ")) && error.contains(what), "{error}");
    assert!(error.contains("nothing of it was imported; export it anew"), "{error}");
    assert_eq!(all_sessions(store.as_ref()).await.expect("the store is readable"), [], "{what}");
}

#[tokio::test]
async fn valid_forgery_is_accepted() {
    let (_dir, store) = local();
    let session_lines = [Event(r#"{"seq":1}"#), Content(NAME, "text"), Event(r#"{"seq":2}"#), Content(NAME, "text")];
    let counts =
        import_text(&store, &forged(&[(SessionId::generate(), &session_lines)])).await.expect("the import succeeds");
    assert_eq!((counts.sessions, counts.events), (1, 2));
}

#[tokio::test]
async fn duplicate_session_is_rejected() {
    let id = SessionId::generate();
    let first = [Event(r#"{"seq":1}"#)];
    let second = [Event(r#"{"seq":1}"#), Event(r#"{"seq":2}"#)];
    assert_rejected(&forged(&[(id, &first), (id, &second)]), 5, "already began at line 2").await;
}

#[tokio::test]
async fn event_without_its_number_is_rejected() {
    let id = SessionId::generate();
    for (second, what) in [
        (r#"{"seq":3}"#, "expected event 2, found event 3"),
        (r#"{"seq":18446744073709551615}"#, "expected event 2, found event"),
        (r#"{"seq":-2}"#, "an event must be an object"),
        (r#"{"observation":"run"}"#, "an event must be an object"),
        ("7", "an event must be an object"),
        ("[2]", "an event must be an object"),
    ] {
        assert_rejected(&forged(&[(id, &[Event(r#"{"seq":1}"#), Event(second)])]), 4, what).await;
    }
    let large = format!(r#"{{"seq":1,"content":"{}"}}"#, "x".repeat(2 << 20));
    assert_rejected(&forged(&[(id, &[Event(&large)])]), 3, "an event is larger than").await;
}

#[tokio::test]
async fn invalid_content_name_is_rejected_before_any_write() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    for name in ["../../../x", "", "..", "nothing", &NAME.to_lowercase()] {
        let session_lines = [Event(r#"{"seq":1}"#), Content(name, "text")];
        let file = forged(&[(one, &[Event(r#"{"seq":1}"#)]), (other, &session_lines)]);
        assert_rejected(&file, 7, "is not the name of a content").await;
    }
}

#[tokio::test]
async fn contradictory_or_oversize_content_is_rejected() {
    let id = SessionId::generate();
    let session_lines = [Event(r#"{"seq":1}"#), Content(NAME, "text"), Event(r#"{"seq":2}"#), Content(NAME, "else")];
    assert_rejected(&forged(&[(id, &session_lines)]), 6, "differs from an earlier copy").await;
    let large = "x".repeat((64 << 20) + 1);
    assert_rejected(&forged(&[(id, &[Event(r#"{"seq":1}"#), Content(NAME, &large)])]), 4, "is larger than").await;
}

#[tokio::test]
async fn differing_present_content_is_rejected_and_unchanged() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    fill(store.as_ref(), id, 3).await;
    let before = text(store.as_ref(), None).await;
    let events = [1, 2, 3].map(|seq| event(seq, (seq == 3).then_some(NAME)));
    let events = events.map(|event| String::from_utf8(event.json.to_vec()).expect("text"));
    for other in ["else", "", "ä1\n"] {
        let session_lines = [Event(&events[0]), Event(&events[1]), Event(&events[2]), Content(NAME, other)];
        let new = SessionId::generate();
        let file = forged(&[(new, &[Event(r#"{"seq":1}"#)]), (id, &session_lines)]);
        let error = import_text(&store, &file).await.expect_err("the contents differ").to_string();
        assert!(error.starts_with("line 9: session") && error.contains(&id.to_string()), "{error}");
        assert!(error.contains("purge it first") && error.contains("nothing was imported"), "{error}");
        assert_eq!(text(store.as_ref(), None).await, before);
    }
}

#[tokio::test]
async fn only_missing_or_damaged_content_is_written() {
    let (dir, store) = local();
    let ids = [(); 3].map(|()| SessionId::generate());
    for id in ids {
        fill(store.as_ref(), id, 3).await;
    }
    let before = text(store.as_ref(), None).await;
    let file = |id: SessionId| dir.path().join("contents").join(id.to_string()).join(NAME);
    std::fs::remove_file(file(ids[0])).expect("the file is removed");
    flip(&file(ids[1]), "1");
    let modified_at = |id| std::fs::metadata(file(id)).expect("the file exists").modified().expect("a time");
    let untouched = modified_at(ids[2]);
    let counts = import_text(&store, &with_head(&before)).await.expect("the import succeeds");
    assert_eq!(counts, TransferCounts { sessions: 0, events: 0, already_present: 3 });
    assert_eq!(text(store.as_ref(), None).await, before);
    assert_eq!(modified_at(ids[2]), untouched, "a sound content is not rewritten");
}

#[tokio::test]
async fn empty_session_keeps_its_present_title() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    let file = forged(&[(id, &[])]);
    import_text(&store, &file).await.expect("the import succeeds");
    let present = store.get(id).await.expect("the store is readable").expect("the session exists");
    let renamed = crate::store::SessionRecord { title: "another title".into(), ..present.record };
    let (epoch, _) = store.claim(id).await.expect("the session is claimed");
    let batch = AppendBatch { record: Some(Arc::new(renamed)), ..AppendBatch::default() };
    store.append(id, epoch, 0, batch).await.expect("the session is renamed");
    assert_eq!(import_text(&store, &file).await.expect("a repeated import succeeds").already_present, 1);
    assert_eq!(
        store.get(id).await.expect("the store is readable").expect("the session exists").record.title,
        "another title"
    );
}

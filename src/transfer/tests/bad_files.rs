//! Files whose digests are right, as anybody can make them, and whose story is not.

use super::*;

const NAME: &str = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";

/// What a forged session says, line by line.
enum ForgedLine<'a> {
    Event(&'a str),
    Content(&'a str, &'a str),
}
use ForgedLine::{Content, Event};

/// A file of these sessions whose digests hold.
fn forged(sessions: &[(SessionId, &[ForgedLine<'_>])]) -> String {
    let mut lines = Vec::new();
    let (mut overall, mut events) = (ExportDigest::default(), 0);
    for (id, says) in sessions {
        let (mut digest, mut count) = (ExportDigest::default(), 0);
        lines.push(serde_json::to_string(&ExportLine::session(&record(*id, false), None)).expect("a line"));
        for line in *says {
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

async fn refused(file: &str, line: u64, what: &str) {
    let (_dir, store) = local();
    let error = import_text(&store, file).await.expect_err(what).to_string();
    assert!(error.starts_with(&format!("line {line}: ")) && error.contains(what), "{error}");
    assert!(error.contains("nothing of it was imported; export it anew"), "{error}");
    assert_eq!(all_sessions(store.as_ref()).await.expect("it answers"), [], "{what}");
}

#[tokio::test]
async fn a_sound_forgery_is_taken_so_the_others_are_refused_for_what_they_say() {
    let (_dir, store) = local();
    let says = [Event(r#"{"seq":1}"#), Content(NAME, "text"), Event(r#"{"seq":2}"#), Content(NAME, "text")];
    let moved = import_text(&store, &forged(&[(SessionId::generate(), &says)])).await.expect("it is imported");
    assert_eq!((moved.sessions, moved.events), (1, 2));
}

#[tokio::test]
async fn a_session_that_stands_in_a_file_twice_is_refused() {
    let id = SessionId::generate();
    let first = [Event(r#"{"seq":1}"#)];
    let second = [Event(r#"{"seq":1}"#), Event(r#"{"seq":2}"#)];
    refused(&forged(&[(id, &first), (id, &second)]), 5, "and at line 2 already").await;
}

#[tokio::test]
async fn an_event_that_is_no_object_with_its_number_is_refused() {
    let id = SessionId::generate();
    for (second, what) in [
        (r#"{"seq":3}"#, "event 2 should stand here, not 3"),
        (r#"{"seq":18446744073709551615}"#, "event 2 should stand here"),
        (r#"{"seq":-2}"#, "an event is an object"),
        (r#"{"observation":"run"}"#, "an event is an object"),
        ("7", "an event is an object"),
        ("[2]", "an event is an object"),
    ] {
        refused(&forged(&[(id, &[Event(r#"{"seq":1}"#), Event(second)])]), 4, what).await;
    }
    let large = format!(r#"{{"seq":1,"content":"{}"}}"#, "x".repeat(2 << 20));
    refused(&forged(&[(id, &[Event(&large)])]), 3, "an event is larger than").await;
}

#[tokio::test]
async fn a_content_that_has_no_name_of_one_is_refused_before_anything_is_written() {
    let (one, other) = (SessionId::generate(), SessionId::generate());
    for name in ["../../../x", "", "..", "nothing", &NAME.to_lowercase()] {
        let says = [Event(r#"{"seq":1}"#), Content(name, "text")];
        let file = forged(&[(one, &[Event(r#"{"seq":1}"#)]), (other, &says)]);
        refused(&file, 7, "is no name of a content").await;
    }
}

#[tokio::test]
async fn a_content_that_a_file_tells_in_two_ways_or_without_end_is_refused() {
    let id = SessionId::generate();
    let says = [Event(r#"{"seq":1}"#), Content(NAME, "text"), Event(r#"{"seq":2}"#), Content(NAME, "else")];
    refused(&forged(&[(id, &says)]), 6, "is another here than before").await;
    let large = "x".repeat((64 << 20) + 1);
    refused(&forged(&[(id, &[Event(r#"{"seq":1}"#), Content(NAME, &large)])]), 4, "is larger than").await;
}

#[tokio::test]
async fn another_text_of_a_content_that_is_here_is_refused_and_changes_nothing() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    fill(store.as_ref(), id, 3).await;
    let before = text(store.as_ref(), None).await;
    let events = [1, 2, 3].map(|seq| event(seq, (seq == 3).then_some(NAME)));
    let events = events.map(|event| String::from_utf8(event.json.to_vec()).expect("text"));
    for other in ["else", "", "ä1\n"] {
        let says = [Event(&events[0]), Event(&events[1]), Event(&events[2]), Content(NAME, other)];
        let new = SessionId::generate();
        let file = forged(&[(new, &[Event(r#"{"seq":1}"#)]), (id, &says)]);
        let error = import_text(&store, &file).await.expect_err("it differs").to_string();
        assert!(error.starts_with("line 9: session") && error.contains(&id.to_string()), "{error}");
        assert!(error.contains("purge it first") && error.contains("nothing was imported"), "{error}");
        assert_eq!(text(store.as_ref(), None).await, before);
    }
}

#[tokio::test]
async fn only_a_content_that_is_missing_or_damaged_is_written() {
    let (dir, store) = local();
    let ids = [(); 3].map(|()| SessionId::generate());
    for id in ids {
        fill(store.as_ref(), id, 3).await;
    }
    let before = text(store.as_ref(), None).await;
    let file = |id: SessionId| dir.path().join("contents").join(id.to_string()).join(NAME);
    std::fs::remove_file(file(ids[0])).expect("it is removed");
    flip(&file(ids[1]), "1");
    let written = |id| std::fs::metadata(file(id)).expect("it is there").modified().expect("a time");
    let untouched = written(ids[2]);
    let moved = import_text(&store, &with_head(&before)).await.expect("it is imported");
    assert_eq!(moved, TransferCounts { sessions: 0, events: 0, already_present: 3 });
    assert_eq!(text(store.as_ref(), None).await, before);
    assert_eq!(written(ids[2]), untouched, "what is sound is left alone");
}

#[tokio::test]
async fn a_session_without_events_keeps_the_title_that_it_has_here() {
    let (_dir, store) = local();
    let id = SessionId::generate();
    let file = forged(&[(id, &[])]);
    import_text(&store, &file).await.expect("it is imported");
    let here = store.get(id).await.expect("it answers").expect("it is there");
    let renamed = crate::store::SessionRecord { title: "another title".into(), ..here.record };
    store.put(renamed, here.revision).await.expect("it is renamed");
    assert_eq!(import_text(&store, &file).await.expect("it is known").already_present, 1);
    assert_eq!(store.get(id).await.expect("it answers").expect("it is there").record.title, "another title");
}

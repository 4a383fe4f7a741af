mod bad_files;
mod contents;
mod cut_short;
mod unreadable;

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::store::{
    AppendBatch, JournalEvent, ReportMark,
    in_memory::MemoryStore,
    journal_copy::{MAX_APPEND_BYTES, append_batches},
    local::LocalStore,
};

fn record(id: SessionId, archived: bool) -> crate::store::SessionRecord {
    serde_json::from_value(serde_json::json!({
        "id": id, "title": "a title", "state": "idle", "reason": null, "agent": "greenroom", "model": "demo",
        "image": null, "sandbox": "process", "directory": null, "created_at": "2026-01-01T00:00:00.000Z",
        "updated_at": format!("2026-01-01T00:00:00.{:03}Z", id.to_bytes()[15] as u32),
        "usage": { "input_tokens": 1, "output_tokens": 2, "cost_usd": null }, "budget_usd": 1.5, "archived": archived,
        "key": "k", "core": { "life": "up" },
    }))
    .expect("a record")
}

fn event(seq: u64, content: Option<&str>) -> JournalEvent {
    let href =
        content.map(|name| format!(r#","extras":{{"truncated":{{"bytes":9,"href":"/api/x/contents/{name}"}}}}"#));
    // Spaces and an escape that a JSON writer would change. Both must come back byte for byte.
    let json = format!(r#"{{ "seq":{seq},"observation":"run","content":"\u00e4 {seq}"{} }}"#, href.unwrap_or_default());
    JournalEvent { kind: "run".into(), json: json.into() }
}

/// Appends `count` events to a session. The third event has a large content.
async fn fill(store: &dyn Store, id: SessionId, count: u64) {
    if store.get(id).await.expect("the store is readable").is_none() {
        store.create(record(id, id.to_bytes()[15] % 2 == 1)).await.expect("the session is created");
    }
    let (epoch, snapshot) = store.claim(id).await.expect("the session is claimed");
    let mut at = snapshot.tail;
    for seq in at + 1..=at + count {
        let mut name = None;
        if seq == 3 {
            let large = "ä1\n".repeat(400_000);
            name = Some("01KAHTXV3M9W6N2Q4ZB8C5R7DE".to_owned());
            let name = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";
            store.restore_content(id, epoch, name, large.into()).await.expect("the content is stored");
        }
        let batch = AppendBatch {
            events: vec![event(seq, name.as_deref())],
            mark: Some(ReportMark { boot: "b".into(), n: seq }),
            record: None,
        };
        at = store.append(id, epoch, at, batch).await.expect("the write succeeds");
    }
}

async fn full() -> (MemoryStore, [SessionId; 3]) {
    let store = MemoryStore::new();
    let ids = [(); 3].map(|()| SessionId::generate());
    for (id, count) in ids.into_iter().zip([5, 0, 700]) {
        fill(&store, id, count).await;
    }
    (store, ids)
}

async fn text(store: &dyn Store, only: Option<SessionId>) -> String {
    let mut out = Vec::new();
    export(store, only, DamagePolicy::Fail, &mut out).await.expect("the export succeeds");
    let text = String::from_utf8(out).expect("text");
    // The head contains the time.
    text.split_once('\n').expect("lines").1.to_owned()
}

fn with_head(text: &str) -> String {
    format!("{{\"greenroom_journal\":1,\"version\":\"0\",\"at\":\"\"}}\n{text}")
}

async fn import_text(store: &Arc<dyn Store>, text: &str) -> Result<TransferCounts, TransferError> {
    import(store, || Ok(io::Cursor::new(text.to_owned()))).await
}

fn local() -> (tempfile::TempDir, Arc<dyn Store>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(LocalStore::open(dir.path()).expect("the store opens"));
    (dir, store)
}

#[tokio::test]
async fn import_restores_export_byte_for_byte() {
    let (store, ids) = full().await;
    let out = text(&store, None).await;
    let (dir, other) = local();
    let counts = import_text(&other, &with_head(&out)).await.expect("the import succeeds");
    assert_eq!(counts, TransferCounts { sessions: 3, events: 705, already_present: 0 });
    assert_eq!(text(other.as_ref(), None).await, out);
    let again = import_text(&other, &with_head(&out)).await.expect("a repeated import succeeds");
    assert_eq!(again, TransferCounts { sessions: 0, events: 0, already_present: 3 });
    drop(other);
    let reopened = LocalStore::open(dir.path()).expect("the store opens");
    assert_eq!(text(&reopened, None).await, out);
    let snapshot = reopened.get(ids[0]).await.expect("the store is readable").expect("the session exists");
    assert_eq!((snapshot.tail, snapshot.mark), (5, Some(ReportMark { boot: "b".into(), n: 5 })));
    assert_eq!(text(&store, Some(ids[0])).await.lines().filter(|line| line.starts_with("{\"session\"")).count(), 1);
    assert!(export(&store, Some(SessionId::generate()), DamagePolicy::Fail, &mut Vec::new()).await.is_err());
}

#[tokio::test]
async fn damaged_file_is_rejected_with_line_and_changes_nothing() {
    let store = MemoryStore::new();
    let id = SessionId::generate();
    fill(&store, id, 4).await;
    let whole = with_head(&text(&store, None).await);
    let lines: Vec<&str> = whole.lines().collect();
    let (_dir, other) = local();
    let assert_rejected = async |text: String, what: &str| {
        let error = import_text(&other, &text).await.expect_err(what).to_string();
        assert!(error.starts_with("line "), "{what}: {error}");
        assert_eq!(other.get(id).await.expect("the store is readable"), None, "{what}");
    };
    for n in 0..lines.len() {
        assert_rejected(lines[..n].join("\n"), &format!("cut before line {}", n + 1)).await;
        let without: Vec<&str> = lines.iter().enumerate().filter(|(at, _)| *at != n).map(|(_, line)| *line).collect();
        assert_rejected(without.join("\n"), &format!("without line {}", n + 1)).await;
        if n > 0 {
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            // The digest does not cover a session's record and mark, which change with each
            // message.
            if !changed[n].starts_with("{\"session\"") {
                changed[n] = changed[n].replacen('1', "7", 1);
                if changed[n] != lines[n] {
                    assert_rejected(changed.join("\n"), &format!("line {} changed", n + 1)).await;
                }
            }
        }
    }
    assert_rejected(format!("{whole}{{}}\n"), "data after the end").await;
    assert_rejected(whole.replacen("\"greenroom_journal\":1", "\"greenroom_journal\":9", 1), "a newer version").await;
    assert_rejected("hello".into(), "not an export").await;
}

#[tokio::test]
async fn cut_short_import_is_repeatable_and_differing_session_is_rejected() {
    let (store, ids) = full().await;
    let out = with_head(&text(&store, None).await);
    let (_dir, other) = local();
    fill(other.as_ref(), ids[2], 300).await;
    let counts = import_text(&other, &out).await.expect("the import continues");
    assert_eq!(counts, TransferCounts { sessions: 3, events: 405, already_present: 0 });
    assert_eq!(with_head(&text(other.as_ref(), None).await), out);
    fill(other.as_ref(), ids[2], 1).await;
    assert_eq!(import_text(&other, &out).await.expect("an older file is accepted").events, 0);

    let (_dir, third) = local();
    third.create(record(ids[0], false)).await.expect("the session is created");
    let (epoch, _) = third.claim(ids[0]).await.expect("the session is claimed");
    let batch = AppendBatch { events: vec![event(77, None)], ..AppendBatch::default() };
    third.append(ids[0], epoch, 0, batch).await.expect("the write succeeds");
    let error = import_text(&third, &out).await.expect_err("the sessions differ").to_string();
    assert!(error.contains(&ids[0].to_string()) && error.contains("nothing was imported"), "{error}");
    assert_eq!(third.get(ids[2]).await.expect("the store is readable"), None);
}

/// Changes the first byte of the last occurrence of `pattern` in `file`.
fn flip(file: &std::path::Path, pattern: &str) {
    let mut bytes = std::fs::read(file).expect("the file is readable");
    let at = bytes.windows(pattern.len()).rposition(|window| window == pattern.as_bytes());
    bytes[at.expect("the pattern occurs")] ^= 0x20;
    std::fs::write(file, bytes).expect("the write succeeds");
}

#[tokio::test]
async fn skip_damaged_exports_everything_else() {
    let (dir, store) = local();
    let mut ids = [(); 2].map(|()| SessionId::generate());
    ids.sort();
    for id in ids {
        fill(store.as_ref(), id, 5).await;
    }
    let sound = text(store.as_ref(), Some(ids[1])).await;
    drop(store);
    let mut segments = std::fs::read_dir(dir.path().join("log")).expect("the directory is readable").flatten();
    let log = segments.next().expect("a segment").path();
    let contents = dir.path().join("contents").join(ids[0].to_string());
    // Damages the third event's content in the first session, and the last event in the second.
    flip(&contents.join("01KAHTXV3M9W6N2Q4ZB8C5R7DE"), "1");
    flip(&log, r#""content":"\u00e4 5""#);
    let store = LocalStore::open(dir.path()).expect("the store opens");

    let error = export(&store, None, DamagePolicy::Fail, &mut Vec::new()).await.expect_err("the journal is damaged");
    assert!(error.is_damage(), "{error}");
    let (mut skipped, mut out) = (Vec::new(), Vec::new());
    let counts = export(&store, None, DamagePolicy::Skip(&mut skipped), &mut out).await.expect("the rest is exported");
    assert_eq!(counts, TransferCounts { sessions: 2, events: 10, already_present: 0 });
    let skipped: Vec<String> = skipped.iter().map(ToString::to_string).collect();
    assert_eq!(skipped.len(), 2, "{skipped:?}");
    assert!(
        skipped[0].contains("content `01KAHTXV3M9W6N2Q4ZB8C5R7DE`") && skipped[0].contains(&ids[0].to_string()),
        "{skipped:?}"
    );
    assert!(skipped[1].contains("event 5") && skipped[1].contains(&ids[1].to_string()), "{skipped:?}");

    let (_dir, other) = local();
    import_text(&other, &String::from_utf8(out).expect("text")).await.expect("the import succeeds");
    assert_eq!(other.content(ids[0], "01KAHTXV3M9W6N2Q4ZB8C5R7DE", 0, 9).await.expect("the store is readable"), None);
    let last = &other.read(ids[1], 4, READ_CHUNK).await.expect("the event is readable")[0];
    assert!(String::from_utf8_lossy(&last.1.json).contains("damaged"), "{last:?}");
    let rest = text(other.as_ref(), Some(ids[1])).await;
    // All lines but the record, the last event and the digests.
    let alike = sound.lines().zip(rest.lines()).filter(|(before, after)| before == after).count();
    assert_eq!(alike, sound.lines().count() - 3, "{rest}");
}

#[test]
fn append_batches_keep_order_and_limit_size() {
    let sizes = [
        10,
        MAX_APPEND_BYTES - 10,
        1,
        MAX_APPEND_BYTES,
        5 * MAX_APPEND_BYTES,
        7,
        8,
        MAX_APPEND_BYTES / 2,
        MAX_APPEND_BYTES / 2,
        0,
        3,
    ];
    let events: Vec<_> =
        sizes.iter().map(|size| JournalEvent { kind: "run".into(), json: vec![b'x'; *size].into() }).collect();
    let sizes_of_batches: Vec<Vec<usize>> =
        append_batches(events).iter().map(|batch| batch.iter().map(|event| event.json.len()).collect()).collect();
    let half = MAX_APPEND_BYTES / 2;
    let expected: [&[usize]; 6] = [
        &[10, MAX_APPEND_BYTES - 10],
        &[1],
        &[MAX_APPEND_BYTES],
        &[5 * MAX_APPEND_BYTES],
        &[7, 8, half],
        &[half, 0, 3],
    ];
    assert_eq!(sizes_of_batches, expected);
    assert!(append_batches(Vec::new()).is_empty());
}

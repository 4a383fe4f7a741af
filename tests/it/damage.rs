//! Journal files with flipped bytes: the server starts, serves the rest, and names the damaged
//! events.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::streams::SseClient;
use greenroom_testkit::{
    driver::TestDriver,
    server::{StoppedServer, TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Returns the files below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("the file can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Creates a journal with two sessions, and returns their events.
async fn filled() -> (StoppedServer, [(String, Vec<Value>); 2]) {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut sessions = Vec::new();
    for name in ["one", "two"] {
        let session_id = server.rest.create(json!({ "title": name })).await;
        let mut client = TestSocket::attach(&server.rest, &session_id).await;
        for n in 0..6 {
            client.send_request("run", json!({ "command": format!("seq {}", n * 4_000) })).await;
            client.observation("run").await;
        }
        server.rest.until_state(&session_id, "idle").await;
        server.rest.post(&format!("/api/sessions/{session_id}/stop"), json!({})).await.expect(200);
        server.rest.until_state(&session_id, "stopped").await;
        let events = server.rest.events(&session_id).await;
        sessions.push((session_id, events));
    }
    let (_, ended) = server.terminate().await;
    (ended, sessions.try_into().expect("two"))
}

/// Returns the path at which a large content can be fetched, if this is the file of one.
fn content_at(file: &Path) -> Option<String> {
    let mut parts = file.iter().rev().map(|part| part.to_string_lossy());
    let (name, session, dir) = (parts.next()?, parts.next()?, parts.next()?);
    (dir == "contents").then(|| format!("/api/sessions/{session}/contents/{name}"))
}

/// Returns the events that stand in for damaged ones.
fn damaged(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| event["extras"]["code"] == "damaged").cloned().collect()
}

#[tokio::test]
async fn flipped_bytes_damage_only_what_they_hit() {
    let (mut ended, sessions) = filled().await;
    let journal = ended.data().join("journal");
    let sound: Vec<(PathBuf, Vec<u8>)> =
        files(&journal).into_iter().map(|path| (path.clone(), fs::read(path).expect("the file can be read"))).collect();
    let restore = || {
        fs::remove_dir_all(&journal).expect("the file can be removed");
        for (path, bytes) in &sound {
            fs::create_dir_all(path.parent().expect("a directory")).expect("creation succeeds");
            fs::write(path, bytes).expect("the file can be written");
        }
    };
    let mut named = 0;
    for (path, bytes) in sound.iter().filter(|(_, bytes)| bytes.len() > 16) {
        for percent in [10, 50, 90] {
            restore();
            let mut flipped = bytes.clone();
            let at = (flipped.len() - 8) * percent / 100;
            flipped[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0xff);
            fs::write(path, flipped).expect("the file can be written");
            let what = format!("{} at {percent} %", path.display());

            let server = ended.restart().await;
            for (session, written) in &sessions {
                let last = server.rest.session(session).await["last_seq"].as_u64().expect(&what);
                let events = server.rest.events(session).await;
                let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
                // A session whose sandbox was up when the server died starts again, so there may be
                // more events by now.
                assert_eq!(seqs, (1..=last.max(seqs.len() as u64)).collect::<Vec<_>>(), "{what}");
                let lost = damaged(&events);
                named += lost.len();
                assert!(events.len() >= written.len(), "{what}: {} of {}", events.len(), written.len());
                for (event, as_written) in events.iter().zip(written).filter(|(event, _)| !lost.contains(event)) {
                    assert_eq!(event, as_written, "{what}");
                }
                // `TestSocket` checks the numbers itself.
                let mut client = TestSocket::attach(&server.rest, session).await;
                client.status("synced").await;
                assert_eq!(damaged(&client.events()), damaged(&events), "{what}");
                let mut stream = SseClient::open(&server.rest, session, "", None).await;
                let streamed = stream.until(|event| event["seq"] == last).await;
                assert_eq!((damaged(&streamed), streamed.len() as u64), (damaged(&events), last), "{what}");
                // The kind of a damaged event is unknown, so its stand-in matches any filter by
                // kind.
                let of_a_kind = server.rest.get(&format!("/api/sessions/{session}/events?limit=1000&kind=run")).await;
                let of_a_kind = of_a_kind.expect(200)["items"].as_array().cloned().expect("items");
                assert_eq!(damaged(&of_a_kind), damaged(&events), "{what}");
            }
            if let Some(content) = content_at(path) {
                let reason = server.rest.get(&content).await.error(500, "damaged");
                assert!(reason.contains("is damaged"), "{reason}");
            }
            server.rest.get("/readyz").await.expect(200);
            let next = server.rest.create(json!({})).await;
            server.rest.until_state(&next, "idle").await;
            ended = server.kill9().await;
            ended.run(&["export", "--skip-damaged"]).await.expect(&what);
        }
    }
    assert!(named > 0, "the flipped bytes must hit an event");
    assert!(sound.iter().any(|(path, _)| content_at(path).is_some()), "the flipped bytes must hit a content");
}

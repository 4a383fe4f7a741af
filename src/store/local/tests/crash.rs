//! Killed at any moment, also while it compacts: what was acknowledged is there, and nothing else has a gap.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use proptest::prelude::*;

use super::*;

const DIR: &str = "GREENROOM_TEST_JOURNAL_TO_APPEND_TO";
const SESSIONS: usize = 8;

/// Not a test of its own: the process that the next one kills. It says what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = std::sync::Arc::new(LocalStore::open_with(Path::new(&dir), small()).unwrap());
    let mut sessions: Vec<SessionId> = store.live().await.unwrap().iter().map(|it| it.record.id).collect();
    while sessions.len() < SESSIONS {
        sessions.push(store.create(record("a")).await.unwrap().record.id);
    }
    let appending = sessions.into_iter().map(|session| {
        let store = store.clone();
        tokio::spawn(async move {
            let (epoch, snapshot) = store.claim(session).await.unwrap();
            let mut at = snapshot.tail;
            loop {
                let pipelined: Vec<_> =
                    (0..4).map(|n| store.append(session, epoch, at + n * 3, events(session, at + n * 3, 3))).collect();
                for answer in pipelined {
                    at = answer.await.unwrap();
                    let now = now().as_nanos() as u64;
                    writeln!(std::io::stdout(), "acknowledged {session} {at} {now}").unwrap();
                }
            }
        })
    });
    let compacting = async {
        loop {
            store.compact().await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    futures::future::join(futures::future::join_all(appending), compacting).await;
}

/// The same clock in every process of this machine.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// Lets another process append for a while, kills it, and returns what it had been told until then. `end` comes right before;
/// what it is told from there on counts for nothing: a disk whose power is gone tells nobody anything, but the kernel, which
/// lives on here, may call a sync done that it overtook.
pub(super) fn killed_after(dir: &Path, lines: usize, end: impl FnOnce()) -> Vec<(SessionId, u64)> {
    let test = format!("{}::appends_until_it_is_killed", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        // What it says when its disk goes is no news.
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let parse = |line: String| {
        let mut words = line.strip_prefix("acknowledged ")?.split(' ');
        let (session, tail) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((Duration::from_nanos(words.next()?.parse().ok()?), (session, tail)))
    };
    let mut acknowledged: Vec<_> = output.by_ref().filter_map(parse).take(lines).collect();
    std::thread::sleep(Duration::from_micros(lines as u64 * 37 % 900));
    let ended = now();
    end();
    child.kill().unwrap();
    acknowledged.extend(output.filter_map(parse));
    child.wait().unwrap();
    acknowledged.retain(|(at, _)| *at < ended);
    assert!(acknowledged.len() >= lines, "the process ended by itself");
    acknowledged.into_iter().map(|(_, acknowledged)| acknowledged).collect()
}

#[tokio::test]
async fn what_was_acknowledged_survives_being_killed() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let acknowledged = killed_after(dir.path(), 40 + round * 61, || ());
        check_acknowledged(dir.path(), &acknowledged, &format!("round {round}"));
    }
}

/// All of it is there, in whole batches, and nothing has a gap.
pub(super) fn check_acknowledged(dir: &Path, acknowledged: &[(SessionId, u64)], when: &str) {
    let store = LocalStore::open_with(dir, small()).unwrap();
    for (session, tail) in acknowledged {
        let found = from_log(&store, *session).unwrap();
        assert!(found.len() as u64 >= *tail, "{when}: {} of {tail}", found.len());
        assert_same(&found, &expected(*session, found.len() as u64), when);
        assert_eq!(found.len() % 3, 0, "{when}: half a batch");
    }
}

/// A log of one segment, the index gone, cut at `keep` bytes: what is left of it, which must be a prefix.
fn check_cut(log: &[u8], sessions: &[SessionId], keep: usize) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    fs::write(dir.path().join("log/00000001.log"), &log[..keep]).unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for session in sessions {
        let Some(snapshot) = runtime.block_on(store.get(*session)).unwrap() else { continue };
        check_whole(&store, *session, snapshot.tail, &format!("cut at {keep}"));
        let (epoch, _) = runtime.block_on(store.claim(*session)).unwrap();
        let next = store.append(*session, epoch, snapshot.tail, events(*session, snapshot.tail, 2));
        assert_eq!(runtime.block_on(next).unwrap(), snapshot.tail + 2);
        check_whole(&store, *session, snapshot.tail + 2, &format!("cut at {keep}"));
    }
}

fn two_sessions() -> (Vec<u8>, [SessionId; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sessions = runtime.block_on(async { [fill(&store, "a", 20).await, fill(&store, "b", 20).await] });
    drop(store);
    (fs::read(dir.path().join("log/00000001.log")).unwrap(), sessions)
}

#[test]
fn a_tail_torn_at_any_byte_of_the_last_record_is_cut() {
    let (log, sessions) = two_sessions();
    let last = event(sessions[1], 20);
    let record = super::super::frame::HEADER + 1 + 8 + last.kind.len() + last.json.len();
    for lost in 0..=record {
        check_cut(&log, &sessions, log.len() - lost);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_log_cut_anywhere_is_a_prefix_and_goes_on(share in 0.0..1.0f64) {
        let (log, sessions) = two_sessions();
        check_cut(&log, &sessions, (log.len() as f64 * share) as usize);
    }
}

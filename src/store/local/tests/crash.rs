//! Killed at any moment, also while it compacts: what was acknowledged is there, and nothing else has a gap.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::store::{
    AppendBatch, JournalEvent,
    local::frame::{FrameHeader, HeaderError},
};

const DIR: &str = "GREENROOM_TEST_JOURNAL_TO_APPEND_TO";
/// That process leaves the journal time to prepare room, and writes over it.
const UNHURRIED: &str = "GREENROOM_TEST_JOURNAL_UNHURRIED";
const SESSIONS: usize = 50;

/// Not a test of its own: the process that the next one kills. It says what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let unhurried = std::env::var_os(UNHURRIED).is_some();
    let roomy =
        StoreSizes { segment: SegmentSizes { max_bytes: 1 << 20, preallocate_bytes: 256 << 10 }, ..small_sizes() };
    let sizes = if unhurried { roomy } else { small_sizes() };
    let store = std::sync::Arc::new(LocalStore::open_with(Path::new(&dir), sizes).unwrap());
    let mut sessions: Vec<SessionId> = store.live().await.unwrap().iter().map(|it| it.record.id).collect();
    while sessions.len() < SESSIONS {
        sessions.push(store.create(record("a")).await.unwrap().record.id);
    }
    let (keeper, of) = (store.clone(), sessions[0]);
    let keeping = tokio::spawn(async move {
        loop {
            let whole = SessionId::generate().to_string();
            keeper.restore_content(of, &whole, large(&whole)).await.unwrap();
            let grown = SessionId::generate().to_string();
            let (first, rest) = (large(&grown).slice(..3000), large(&grown).slice(3000..));
            keeper.extend_content(of, &grown, 0, first).await.unwrap();
            keeper.extend_content(of, &grown, 3000, rest).await.unwrap();
            assert!(keeper.finish_content(of, &grown).await.unwrap());
            let now = now().as_nanos() as u64;
            writeln!(std::io::stdout(), "kept {of} {whole} {now}\nkept {of} {grown} {now}").unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let appending = sessions.into_iter().map(|session| {
        let store = store.clone();
        tokio::spawn(async move {
            let (epoch, snapshot) = store.claim(session).await.unwrap();
            let mut at = snapshot.tail;
            loop {
                let pipelined: Vec<_> =
                    (0..4).map(|n| store.append(session, epoch, at + n * 3, events(session, at + n * 3, 3))).collect();
                if unhurried {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
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
    let (_, _, kept) = futures::future::join3(futures::future::join_all(appending), compacting, keeping).await;
    kept.unwrap();
}

/// The content of this name.
fn large(name: &str) -> Bytes {
    name.repeat(300).into()
}

/// The same clock in every process of this machine.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// What a process was told is on disk.
#[derive(Default)]
pub(super) struct AcknowledgedWrites {
    /// Sessions, and how far.
    tails: Vec<(SessionId, u64)>,
    contents: Vec<(SessionId, String)>,
}

/// Lets another process write for a while, kills it, and returns what it had been told until then. `end` comes right before;
/// what it is told from there on counts for nothing: a disk whose power is gone tells nobody anything, but the kernel, which
/// lives on here, may call a sync done that it overtook.
pub(super) fn killed_after(dir: &Path, lines: usize, end: impl FnOnce()) -> AcknowledgedWrites {
    let test = format!("{}::appends_until_it_is_killed", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Every other time, as the tests count.
    if lines.is_multiple_of(2) {
        command.env(UNHURRIED, "");
    }
    let mut child = command
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        // What it says when its disk goes is no news.
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said: Vec<String> = Vec::new();
    let appends = |said: &[String]| said.iter().filter(|line| line.starts_with("acknowledged")).count();
    while appends(&said) < lines {
        said.push(output.next().expect("the process ended by itself"));
    }
    std::thread::sleep(Duration::from_micros(lines as u64 * 37 % 900));
    let ended = now();
    end();
    child.kill().unwrap();
    said.extend(output);
    child.wait().unwrap();
    let mut acknowledged = AcknowledgedWrites::default();
    for line in said {
        // The last may be cut; what the test runner prints is none.
        let [what, session, which, at] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let (Ok(session), Ok(at)) = (session.parse(), at.parse().map(Duration::from_nanos)) else { continue };
        match what {
            _ if at >= ended => {}
            "acknowledged" => acknowledged.tails.push((session, which.parse().unwrap())),
            "kept" => acknowledged.contents.push((session, which.to_owned())),
            _ => {}
        }
    }
    acknowledged
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut contents = 0;
    for round in 0..20 {
        let acknowledged = killed_after(dir.path(), 40 + round * 61, || ());
        contents += check_acknowledged(dir.path(), &acknowledged, &format!("round {round}"));
    }
    assert!(contents > 0, "none was large");
}

/// All of it is there, in whole batches, and nothing has a gap. Returns how many large contents were looked at.
pub(super) fn check_acknowledged(dir: &Path, acknowledged: &AcknowledgedWrites, when: &str) -> usize {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (session, name) in &acknowledged.contents {
        let content = runtime.block_on(store.content(*session, name, 0, usize::MAX)).unwrap();
        let content = content.unwrap_or_else(|| panic!("{when}: content `{name}` is gone"));
        assert!(content.bytes == large(name), "{when}: content `{name}` is not what was written");
    }
    for (session, tail) in &acknowledged.tails {
        let found = from_log(&store, *session).unwrap();
        assert!(found.len() as u64 >= *tail, "{when}: {} of {tail}", found.len());
        assert_same(&found, &expected(*session, found.len() as u64), when);
        assert_eq!(found.len() % 3, 0, "{when}: half a batch");
    }
    acknowledged.contents.len()
}

/// A log of one segment, the index gone, cut at `keep` bytes, with so many zeros behind: what is left of it, which must be a
/// prefix.
fn check_cut(log: &[u8], sessions: &[SessionId], keep: usize, prepared: usize) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    // What was prepared behind it is there, as a kill leaves it.
    let mut left = log[..keep].to_vec();
    left.resize(keep + prepared, 0);
    fs::write(dir.path().join("log/00000001.log"), left).unwrap();
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
    let record = 2 * super::super::frame::FRAME_HEADER_LEN + 1 + 8 + last.kind.len() + last.json.len();
    for lost in 0..=record {
        check_cut(&log, &sessions, log.len() - lost, lost * 7);
    }
}

/// They have the beginning and the checksum of a header, and a version that is none of today's.
const WORDS_LIKE_A_FRAME: &str = "GRAAxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx0010|6k4";

#[tokio::test]
async fn a_journal_opens_whatever_an_agent_says_in_a_record_that_is_torn_or_damaged() {
    let looks = FrameHeader::decode(WORDS_LIKE_A_FRAME.as_bytes().first_chunk().unwrap());
    assert!(matches!(looks, Err(HeaderError::Newer)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log/00000001.log");
    let store = LocalStore::open(dir.path()).unwrap();
    let (session, epoch) = claimed(&store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 5)).await.unwrap();
    let began = store.shared.state().end.offset as usize;
    let json = format!(r#"{{"content":"{WORDS_LIKE_A_FRAME}"}}"#).into();
    let said = JournalEvent { kind: "think".into(), json };
    store.append(session, epoch, 5, AppendBatch { events: vec![said], ..AppendBatch::default() }).await.unwrap();
    drop(store);
    let log = fs::read(&path).unwrap();
    let check = |log: &[u8], what: &str| {
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        fs::write(&path, log).unwrap();
        let store = LocalStore::open(dir.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
        check_whole(&store, session, 5, what);
    };
    for len in began..log.len() {
        check(&log[..len], &format!("cut at {len}"));
    }
    let mut without_headers = log.clone();
    without_headers[began + 8] ^= 1;
    *without_headers.last_mut().unwrap() ^= 1;
    check(&without_headers, "its header and its footer are damaged");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    /// A power cut leaves any pages of the commit that was being written over what was prepared.
    #[test]
    fn of_a_commit_that_lost_pages_nothing_is_left_and_all_before_it(lost in any::<u16>()) {
        const PAGE: usize = 4096;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log/00000001.log");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        let (session, epoch) = runtime.block_on(claimed(&store, "a"));
        let append = |at, count| runtime.block_on(store.append(session, epoch, at, events(session, at, count))).unwrap();
        append(0, 20);
        let began = store.shared.state().end.offset as usize;
        append(20, 400);
        drop(store);
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        let mut log = fs::read(&path).unwrap();
        let end = log.len();
        let pages = (began / PAGE..=end / PAGE).enumerate().filter(|(n, _)| lost & (1 << (n % 16)) != 0);
        let mut any = false;
        for (_, page) in pages {
            let bytes = &mut log[(page * PAGE).max(began)..((page + 1) * PAGE).min(end)];
            any |= !bytes.is_empty();
            bytes.fill(0);
        }
        log.resize(end + 100_000, 0);
        fs::write(&path, log).unwrap();
        let store = LocalStore::open(dir.path()).unwrap();
        check_whole(&store, session, if any { 20 } else { 420 }, &format!("pages {lost:b}"));
    }

    #[test]
    fn a_log_cut_anywhere_is_a_prefix_and_goes_on(share in 0.0..1.0f64, prepared in 0usize..100_000) {
        let (log, sessions) = two_sessions();
        check_cut(&log, &sessions, (log.len() as f64 * share) as usize, prepared);
    }
}

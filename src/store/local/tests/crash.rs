//! Tests of a kill at any moment, also during compaction: acknowledged writes stay, and no gap
//! appears.

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
/// Makes the process leave the journal time to preallocate, so it writes over zeros.
const UNHURRIED: &str = "GREENROOM_TEST_JOURNAL_UNHURRIED";
const SESSIONS: usize = 50;

/// Runs as the process that other tests kill, and prints what was acknowledged.
///
/// Without the environment variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_process_appends_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let unhurried = std::env::var_os(UNHURRIED).is_some();
    let roomy =
        StoreSizes { segment: SegmentSizes { max_bytes: 1 << 20, preallocate_bytes: 256 << 10 }, ..small_sizes() };
    let sizes = if unhurried { roomy } else { small_sizes() };
    let store = std::sync::Arc::new(LocalStore::open_with(Path::new(&dir), sizes).unwrap());
    let mut sessions: Vec<SessionId> = store.mine().await.unwrap().iter().map(|it| it.record.id).collect();
    while sessions.len() < SESSIONS {
        sessions.push(store.create(record("a")).await.unwrap().into_snapshot().record.id);
    }
    let claims = futures::future::join_all(sessions.iter().map(|session| store.claim(*session))).await;
    let claims: Vec<_> = claims.into_iter().map(Result::unwrap).collect();
    let (content_store, owner, epoch) = (store.clone(), sessions[0], claims[0].0);
    let writing_contents = tokio::spawn(async move {
        loop {
            let single = SessionId::generate().to_string();
            content_store.restore_content(owner, epoch, &single, large(&single)).await.unwrap();
            let grown = SessionId::generate().to_string();
            let (first, rest) = (large(&grown).slice(..3000), large(&grown).slice(3000..));
            content_store.extend_content(owner, epoch, &grown, ContentPiece { offset: 0, bytes: first }).await.unwrap();
            content_store
                .extend_content(owner, epoch, &grown, ContentPiece { offset: 3000, bytes: rest })
                .await
                .unwrap();
            assert!(content_store.finish_content(owner, epoch, &grown).await.unwrap());
            let now = now().as_nanos() as u64;
            writeln!(std::io::stdout(), "kept {owner} {single} {now}\nkept {owner} {grown} {now}").unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let appending = sessions.into_iter().zip(claims).map(|(session, (epoch, snapshot))| {
        let store = store.clone();
        tokio::spawn(async move {
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
    let (_, _, written) =
        futures::future::join3(futures::future::join_all(appending), compacting, writing_contents).await;
    written.unwrap();
}

/// Returns the content that belongs to this name.
fn large(name: &str) -> Bytes {
    name.repeat(300).into()
}

/// Returns the time of the clock that all processes of this machine share.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

/// Writes that a process saw acknowledged.
#[derive(Default)]
pub(super) struct AcknowledgedWrites {
    /// Sessions with their newest acknowledged event.
    tails: Vec<(SessionId, u64)>,
    contents: Vec<(SessionId, String)>,
}

/// Lets another process write for a while, kills it, and returns what it saw acknowledged.
///
/// `end` runs right before the kill. Acknowledgements after that do not count: a disk without power
/// acknowledges nothing. The kernel, however, lives on here and may complete a sync that `end`
/// overtook.
pub(super) fn killed_after(dir: &Path, lines: usize, end: impl FnOnce()) -> AcknowledgedWrites {
    let test = format!("{}::child_process_appends_until_killed", module_path!().split_once("::").unwrap().1);
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Alternates, because the callers' numbers alternate between odd and even.
    if lines.is_multiple_of(2) {
        command.env(UNHURRIED, "");
    }
    let mut child = command
        .args([&test, "--exact", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        // Errors after the loss of its disk are expected.
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut lines_printed: Vec<String> = Vec::new();
    let appends =
        |lines_printed: &[String]| lines_printed.iter().filter(|line| line.starts_with("acknowledged")).count();
    while appends(&lines_printed) < lines {
        lines_printed.push(output.next().expect("the process writes until it is killed"));
    }
    std::thread::sleep(Duration::from_micros(lines as u64 * 37 % 900));
    let ended = now();
    end();
    child.kill().unwrap();
    lines_printed.extend(output);
    child.wait().unwrap();
    let mut acknowledged = AcknowledgedWrites::default();
    for line in lines_printed {
        // The last line may be incomplete, and the test runner prints other lines.
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
fn acknowledged_writes_survive_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut contents = 0;
    for round in 0..12 {
        let acknowledged = killed_after(dir.path(), 40 + round * 101, || ());
        contents += check_acknowledged(dir.path(), &acknowledged, &format!("round {round}"));
    }
    assert!(contents > 0, "no large content was written");
}

/// Checks that all acknowledged writes are there, in complete batches and without a gap.
///
/// Returns the number of large contents that were checked.
pub(super) fn check_acknowledged(dir: &Path, acknowledged: &AcknowledgedWrites, when: &str) -> usize {
    let store = LocalStore::open_with(dir, small_sizes()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (session, name) in &acknowledged.contents {
        let content = runtime.block_on(store.content(*session, name, 0, usize::MAX)).unwrap();
        let content = content.unwrap_or_else(|| panic!("{when}: content `{name}` is missing"));
        assert!(content.bytes == large(name), "{when}: content `{name}` differs from what was written");
    }
    for (session, tail) in &acknowledged.tails {
        let found = from_log(&store, *session).unwrap();
        assert!(found.len() as u64 >= *tail, "{when}: {} of {tail}", found.len());
        assert_same(&found, &expected(*session, found.len() as u64), when);
        assert_eq!(found.len() % 3, 0, "{when}: half a batch");
    }
    acknowledged.contents.len()
}

/// Cuts a log at `keep` bytes, appends `prepared` zeros, and checks that a prefix of it is left.
///
/// The log has one segment and no index.
fn check_cut(log: &[u8], sessions: &[SessionId], keep: usize, prepared: usize) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    // Preallocated zeros, as a kill leaves them.
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
fn torn_last_frame_is_cut() {
    let (log, sessions) = two_sessions();
    let last = event(sessions[1], 20);
    let record = 2 * super::super::frame::FRAME_HEADER_LEN + 1 + 8 + last.kind.len() + last.json.len();
    for lost in 0..=record {
        check_cut(&log, &sessions, log.len() - lost, lost * 7);
    }
}

/// Text with the beginning and the checksum of a frame header, and an unknown version.
const TEXT_LIKE_A_FRAME: &str = "GRAAxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx0010|6k4";

#[tokio::test]
async fn agent_text_like_a_frame_does_not_prevent_opening() {
    let decoded = FrameHeader::decode(TEXT_LIKE_A_FRAME.as_bytes().first_chunk().unwrap());
    assert!(matches!(decoded, Err(HeaderError::Newer)));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log/00000001.log");
    let store = LocalStore::open(dir.path()).unwrap();
    let (session, epoch) = claimed(&store, "a").await;
    store.append(session, epoch, 0, events(session, 0, 5)).await.unwrap();
    let began = store.shared.state().end.offset as usize;
    let json = format!(r#"{{"content":"{TEXT_LIKE_A_FRAME}"}}"#).into();
    let agent_text = JournalEvent { kind: "think".into(), json };
    store.append(session, epoch, 5, AppendBatch { events: vec![agent_text], ..AppendBatch::default() }).await.unwrap();
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
    check(&without_headers, "header and footer are damaged");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    /// A power cut leaves any pages of a commit that was being written over zeros.
    #[test]
    fn commit_with_lost_pages_is_cut_completely(lost in any::<u16>()) {
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
    fn log_cut_anywhere_keeps_prefix_and_continues(share in 0.0..1.0f64, prepared in 0usize..100_000) {
        let (log, sessions) = two_sessions();
        check_cut(&log, &sessions, (log.len() as f64 * share) as usize, prepared);
    }
}

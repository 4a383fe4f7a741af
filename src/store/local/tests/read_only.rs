//! Test of a journal that is opened for reading only, as on a read-only disk.

use std::{collections::BTreeMap, path::PathBuf};

use super::{damage::filled, *};

/// Returns the files below `dir` with their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let below = entries.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => BTreeMap::from([(path.clone(), fs::read(&path).unwrap())]),
    });
    below.collect()
}

#[tokio::test]
async fn read_only_journal_reads_everything_and_changes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut sessions = filled(dir.path()).await;
    let store = LocalStore::open_with(dir.path(), small_sizes()).unwrap();
    let content = store.put_content(sessions[0], 1, "kept".into()).await.unwrap();
    store.forget(sessions.remove(3), 1).await.unwrap();
    store.compact().await.unwrap();
    drop(store);
    // Leftovers that a normal start would remove.
    fs::write(dir.path().join("log/00000002.part"), "half").unwrap();
    fs::write(dir.path().join("contents").join(sessions[0].to_string()).join("half.part"), "half").unwrap();
    for what in ["with an index", "without"] {
        let before = files(dir.path());
        let store = LocalStore::open_to_read(dir.path()).unwrap();
        sessions.iter().for_each(|session| check_whole(&store, *session, 60, what));
        assert_eq!(store.list(SessionQuery::default()).await.unwrap().total, sessions.len(), "{what}");
        let found = store.content(sessions[0], &content, 0, 9).await.unwrap().map(|part| part.bytes);
        assert_eq!(found.as_deref(), Some(&b"kept"[..]));
        let rejected = store.append(sessions[0], 1, 60, events(sessions[0], 60, 1)).await.unwrap_err();
        assert!(matches!(rejected, AppendError::NotWritten(_)), "{rejected}");
        assert!(store.check().await.is_err());
        let second = LocalStore::open(dir.path()).unwrap_err();
        assert!(matches!(second, OpenError::InUse { .. }), "{second}");
        drop(store);
        assert!(files(dir.path()) == before, "{what}: a file has changed");
        let _once = fs::remove_dir_all(dir.path().join("index"));
    }
}

//! Limits of a store.

use bytesize::ByteSize;

use super::*;

#[tokio::test]
async fn oldest_checkpoints_are_merged_and_the_first_stays() {
    let fixture = Fixture::with(|config| config.keep = 4);
    for turn in 1..=9 {
        fixture.write("a", format!("{turn}\n"));
        fixture.write(&format!("only-{turn}"), format!("content of {turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    assert_eq!(fixture.names().await, ["turn-1", "turn-7", "turn-8", "turn-9"]);
    assert_eq!(fixture.file("turn-1", "a").await.expect("the first is kept"), b"1\n");
    assert_eq!(fixture.file("turn-7", "only-3").await.expect("its files are kept"), b"content of 3\n");
    fixture.file("turn-4", "a").await.expect_err("the checkpoint is dropped");
    assert_eq!(fixture.diff("turn-1", "turn-9").await.files.len(), 9);
    assert_eq!(in_words(&fixture.diff("turn-8", "turn-9").await), ["modified a +1 -1", "created only-9 +1 -0"]);
}

#[tokio::test]
async fn size_on_disk_stays_within_the_limit() {
    let fixture = Fixture::with(|config| config.disk = ByteSize::kib(64));
    let mut random = 7_u64;
    for turn in 1..=20 {
        let noise: Vec<u8> = (0..8 << 10)
            .map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                random.to_be_bytes()[0]
            })
            .collect();
        fixture.write("noise", noise);
        fixture.capture(&format!("turn-{turn}")).await;
        let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
        assert!(list.stored_bytes <= ByteSize::kib(64).as_u64(), "{turn}: {}", list.stored_bytes);
        assert_eq!(list.damage, None);
    }
    let names = fixture.names().await;
    assert_eq!(
        (names.first().map(String::as_str), names.last().map(String::as_str)),
        (Some("turn-1"), Some("turn-20"))
    );
    assert_eq!(fixture.file("turn-1", "noise").await.expect("the first is kept").len(), 8 << 10);
}

#[tokio::test]
async fn checkpoint_beyond_the_limit_fails_and_names_it() {
    let fixture = Fixture::with(|config| config.disk = ByteSize::b(40));
    fixture.write("a", (0..=255).collect::<Vec<u8>>());
    let error = fixture.try_capture("turn-1").await.expect_err("the content is too large").to_string();
    assert!(error.contains("checkpoints.disk"), "{error}");
    assert_eq!(fixture.names().await, [""; 0]);
}

#[tokio::test]
async fn limits_spare_what_a_restore_needs() {
    let fixture = Fixture::with(|config| config.keep = 2);
    for turn in 1..=3 {
        fixture.write("a", format!("{turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    assert_eq!(fixture.names().await, ["turn-1", "turn-3"]);
    fixture.write("a", "4\n");
    fixture.restore("turn-3", None).await.expect("the workspace is restored");
    assert_eq!(fixture.read("a").as_deref(), Some("3\n"));
    assert_eq!(fixture.names().await, ["turn-1", "before-restore-2", "restore-2"]);
    assert_eq!(fixture.file("before-restore-2", "a").await.expect("the way back is kept"), b"4\n");

    // The next server takes up a restore that its server did not end.
    fixture.write("a", "5\n");
    fixture.capture("before-restore-X").await;
    fixture.write("a", "6\n");
    fixture.capture("restore-X").await;
    assert_eq!(fixture.file("before-restore-X", "a").await.expect("the way back is kept"), b"5\n");
}

#[tokio::test]
async fn open_store_stays_readable_while_limits_apply() {
    let fixture = Fixture::with(|config| config.keep = 2);
    fixture.write("a", "1\n");
    fixture.capture("turn-1").await;
    fixture.write("a", "2\n");
    fixture.capture("turn-2").await;
    let reader = CheckpointStore::open(&fixture.store()).expect("the store opens");
    for turn in 3..=9 {
        fixture.write("a", format!("{turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    assert!(!fixture.store().join("00000002.pack").exists(), "the content is removed");
    let tree = reader.tree_at(reader.point("turn-2").expect("it was there")).expect("the deltas are open");
    let file = tree.values().next().expect("one file");
    assert_eq!(reader.blobs.content(&file.hash).expect("the pack is open"), b"2\n");
}

/// Readers beside a writer whose limits drop and move everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_find_a_consistent_store_at_any_time() {
    let fixture = Fixture::with(|config| config.keep = 2);
    fixture.write("a", "0\n");
    fixture.capture("turn-0").await;
    let (checkpoints, session, done) = (fixture.checkpoints.clone(), fixture.session, CancellationToken::new());
    let until = done.clone();
    let reads = tokio::spawn(async move {
        let mut reads = 0;
        while !until.is_cancelled() || reads == 0 {
            let path = InnerPath::parse("a", PathForm::Plain).expect("a valid path");
            let list = checkpoints.list(session).await.expect("the store is readable");
            assert_eq!(list.damage, None);
            let first = checkpoints.file(session, "turn-0".to_owned(), path).await;
            assert_eq!(first.expect("the first checkpoint is kept"), b"0\n");
            reads += 1;
        }
    });
    for turn in 1..=60 {
        fixture.write("a", format!("{turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    done.cancel();
    reads.await.expect("each read has succeeded");
}

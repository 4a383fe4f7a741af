//! Damaged stores, and captures that servers did not complete.

use greenroom_testkit::disk::TestDisk;

use super::{
    super::sealed::{Durability, write_sealed},
    *,
};

/// Changes one byte in the middle of a file.
fn damage(path: &Path) {
    let mut content = fs::read(path).expect("the file is readable");
    let middle = content.len() / 2;
    content[middle] ^= 0xff;
    fs::write(path, content).expect("the file is written");
}

async fn three_turns() -> Fixture {
    let fixture = Fixture::new();
    for turn in 1..=3 {
        fixture.write("a", format!("turn {turn}\n"));
        fixture.write(&format!("only-{turn}"), "x\n");
        fixture.capture(&format!("turn-{turn}")).await;
    }
    fixture
}

async fn damage_of(fixture: &Fixture) -> String {
    let list = fixture.checkpoints.list(fixture.session).await.expect("a damaged store is listed");
    list.damage.expect("the damage is named")
}

#[tokio::test]
async fn damaged_delta_is_named_and_the_others_stay() {
    let fixture = three_turns().await;
    damage(&fixture.store().join("00000002.delta"));
    assert!(damage_of(&fixture).await.contains("00000002.delta"));
    assert_eq!(fixture.names().await, ["turn-1", "turn-3"]);
    assert_eq!(fixture.file("turn-1", "a").await.expect("the checkpoint is intact"), b"turn 1\n");
    assert_eq!(fixture.file("turn-3", "a").await.expect("the index has its files"), b"turn 3\n");
    assert_eq!(in_words(&fixture.diff("turn-1", "turn-3").await).len(), 3);
    fixture.write("a", "turn 4\n");
    fixture.capture("turn-4").await;
    assert_eq!(in_words(&fixture.diff("turn-3", "turn-4").await), ["modified a +1 -1"]);
}

#[tokio::test]
async fn capture_begins_again_if_no_way_is_left() {
    let fixture = three_turns().await;
    damage(&fixture.store().join("00000002.delta"));
    damage(&fixture.store().join("index"));
    let error = fixture.file("turn-3", "a").await.expect_err("nothing leads to its files");
    assert!(matches!(error, CheckpointError::Damaged(_)), "{error}");
    fixture.capture("turn-4").await;
    assert_eq!(fixture.file("turn-4", "a").await.expect("the new checkpoint has all files"), b"turn 3\n");
    fixture.write("a", "x\n");
    fixture.restore("turn-4", None).await.expect("the workspace is restored");
    assert_eq!(fixture.read("a").as_deref(), Some("turn 3\n"));
}

#[tokio::test]
async fn damaged_index_is_computed_again() {
    let fixture = three_turns().await;
    damage(&fixture.store().join("index"));
    assert_eq!(in_words(&fixture.diff("turn-3", "now").await), [""; 0]);
    fs::remove_file(fixture.store().join("index")).expect("the file is removed");
    fixture.capture("turn-4").await;
    assert_eq!(in_words(&fixture.diff("turn-3", "turn-4").await), [""; 0]);
}

#[tokio::test]
async fn damaged_content_is_named_and_restores_the_rest() {
    let fixture = three_turns().await;
    // The first bytes are contents, and the table is intact.
    let pack = fixture.store().join("00000001.pack");
    let mut content = fs::read(&pack).expect("the pack is readable");
    content[0] ^= 0xff;
    content[8] ^= 0xff;
    fs::write(&pack, content).expect("the pack is written");
    let outcome = fixture.restore("turn-1", None).await.expect("the rest is restored");
    assert!(outcome.files.failed.iter().all(|failed| failed.reason.contains("damaged")), "{outcome:?}");
}

#[tokio::test]
async fn lost_pack_is_named_and_its_present_contents_are_stored_again() {
    let fixture = three_turns().await;
    damage_trailer(&fixture.store().join("00000001.pack"));
    assert!(damage_of(&fixture).await.contains("00000001.pack"));
    fixture.capture("turn-4").await;
    assert_eq!(fixture.file("turn-4", "only-1").await.expect("the content is stored again"), b"x\n");
}

fn damage_trailer(path: &Path) {
    let mut content = fs::read(path).expect("the file is readable");
    let last = content.len() - 1;
    content[last] ^= 0xff;
    fs::write(path, content).expect("the file is written");
}

/// Each prefix of the files that a capture writes, as a killed server leaves them.
#[tokio::test]
async fn capture_of_a_killed_server_is_taken_again() {
    for left in ["pack.tmp", "00000002.pack", "00000002.delta.tmp", "index.tmp"] {
        let fixture = Fixture::new();
        fixture.write("a", "1\n");
        fixture.capture("turn-1").await;
        fs::write(fixture.store().join(left), "half a file").expect("the file is written");
        fixture.write("a", "2\n");
        let next = fixture.reopened();
        next.capture("turn-2").await;
        assert_eq!(in_words(&next.diff("turn-1", "turn-2").await), ["modified a +1 -1"], "{left}");
    }
    // Killed after the delta and before the index.
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.capture("turn-1").await;
    let index = fs::read(fixture.store().join("index")).expect("the index is readable");
    fixture.write("b", "2\n");
    fixture.capture("turn-2").await;
    fs::write(fixture.store().join("index"), index).expect("the index is written");
    let next = fixture.reopened();
    assert_eq!(in_words(&next.diff("turn-2", "now").await), [""; 0]);
    assert_eq!(in_words(&next.diff("turn-1", "now").await), ["created b +1 -0"]);
}

#[tokio::test]
async fn cancelled_capture_leaves_the_store_as_it_was() {
    let fixture = Fixture::new();
    for name in 0..200 {
        fixture.write(&name.to_string(), "x");
    }
    fixture.checkpoints.cancel_all();
    let error = fixture.try_capture("turn-1").await.expect_err("the server is shutting down");
    assert!(matches!(error, CheckpointError::Cancelled), "{error}");
    assert_eq!(fs::read_dir(fixture.store()).expect("the store is readable").count(), 1, "only the start");
}

#[tokio::test]
async fn full_disk_fails_the_capture_and_keeps_the_others() {
    let mut fixture = Fixture::new();
    let root = fixture.dir.path().join("disk");
    fs::create_dir(&root).expect("the directory is created");
    let Some(disk) = TestDisk::mount(&root) else {
        eprintln!("skipped: mounting a file system needs root");
        return;
    };
    let Checkpoints { dirs, config, writer, .. } = &*fixture.checkpoints;
    fixture.checkpoints = Checkpoints::new(dirs.clone(), root.join("c"), config.clone(), writer.clone());
    fixture.mark_start(StartState::Empty);
    fixture.write("a", "1\n");
    fixture.capture("turn-1").await;
    let noise: Vec<u8> = (0..4_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fixture.write("noise", noise);
    disk.fill();
    let error = fixture.try_capture("turn-2").await.expect_err("the disk is full");
    assert!(matches!(error, CheckpointError::DiskFull), "{error}");
    assert_eq!(fixture.names().await, ["turn-1"]);
    disk.make_room();
    fixture.capture("turn-2").await;
    assert_eq!(fixture.file("turn-1", "a").await.expect("the checkpoint is kept"), b"1\n");
}

/// Damages all contents of a pack. Its table stays intact.
fn damage_contents(path: &Path) {
    let mut content = fs::read(path).expect("the pack is readable");
    let trailer = content.len() - 40;
    let table = u64::from_le_bytes(content[trailer..trailer + 8].try_into().expect("eight bytes"));
    let end = usize::try_from(table).expect("a small pack");
    content[..end].iter_mut().for_each(|byte| *byte ^= 0xff);
    fs::write(path, content).expect("the pack is written");
}

#[tokio::test]
async fn damaged_contents_that_the_workspace_has_are_stored_again() {
    let fixture = three_turns().await;
    let pack = fixture.store().join("00000001.pack");
    damage_contents(&pack);
    fixture.capture("turn-4").await;
    for turn in ["turn-1", "turn-4"] {
        assert_eq!(fixture.file(turn, "only-1").await.expect("the content is stored again"), b"x\n");
    }
    assert_eq!(fixture.file("turn-4", "a").await.expect("the other packs are intact"), b"turn 3\n");
    let error = fixture.file("turn-1", "a").await.expect_err("only the damaged pack had the content");
    assert!(matches!(error, CheckpointError::Damaged(_)), "{error}");
    assert!(damage_of(&fixture).await.contains("00000001.pack"));
    // A lost content comes back with the workspace.
    fixture.write("a", "turn 1\n");
    fixture.capture("turn-5").await;
    assert_eq!(fixture.file("turn-1", "a").await.expect("the content is stored again"), b"turn 1\n");
}

/// The limits drop checkpoints around a damaged delta. What is still listed has its own files, and
/// no content that only the damaged delta names is removed.
#[tokio::test]
async fn limits_never_merge_over_damage() {
    for (damaged, has_index) in (1..=4).flat_map(|turn| [(turn, true), (turn, false)]) {
        let fixture = Fixture::with(|config| config.keep = 4);
        let turn = async |turn: u32| {
            fixture.write("a", format!("turn {turn}\n"));
            fixture.write(&format!("only-{turn}"), format!("content of {turn}\n"));
            fixture.capture(&format!("turn-{turn}")).await;
        };
        for number in 1..=4 {
            turn(number).await;
        }
        damage(&fixture.store().join(format!("0000000{damaged}.delta")));
        if !has_index {
            damage(&fixture.store().join("index"));
        }
        for number in 5..=14 {
            turn(number).await;
            for name in fixture.names().await {
                let of: u32 = name.trim_start_matches("turn-").parse().expect("a number");
                for (path, content) in (1..=of)
                    .map(|n| (format!("only-{n}"), format!("content of {n}\n")))
                    .chain([("a".to_owned(), format!("turn {of}\n"))])
                {
                    match fixture.file(&name, &path).await {
                        Ok(found) => assert_eq!(String::from_utf8_lossy(&found), content, "{name}: {path}"),
                        Err(CheckpointError::Damaged(_)) if !has_index && (damaged..5).contains(&of) => {}
                        Err(error) => panic!("{damaged}, {has_index}, {number}: `{path}` of {name}: {error}"),
                    }
                }
            }
        }
        let list = fixture.checkpoints.list(fixture.session).await.expect("the store is readable");
        assert_eq!((list.items.len() <= 5, list.damage), (true, None), "the damage is dropped with its neighbours");
    }
}

#[tokio::test]
async fn lost_delta_is_damage() {
    let fixture = three_turns().await;
    fs::remove_file(fixture.store().join("00000002.delta")).expect("the file is removed");
    assert!(damage_of(&fixture).await.contains("00000002.delta"));
    fixture.write("a", "turn 4\n");
    fixture.capture("turn-4").await;
    // Independent of the index: the capture has made it so.
    fs::remove_file(fixture.store().join("index")).expect("the file is removed");
    assert_eq!(fixture.file("turn-3", "a").await.expect("its files are kept"), b"turn 3\n");
    assert_eq!(fixture.file("turn-4", "only-2").await.expect("its files are kept"), b"x\n");
}

#[tokio::test]
async fn failed_limits_fail_no_capture() {
    let fixture = Fixture::with(|config| config.keep = 3);
    for turn in 1..=3 {
        fixture.write("a", format!("turn {turn}\n"));
        fixture.capture(&format!("turn-{turn}")).await;
    }
    let path = fixture.store().join("00000002.delta");
    let record =
        fs::read(&path).expect("the delta is readable")[65..].split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec);
    let body = [record.expect("a line"), b"\nno list".to_vec()].concat();
    write_sealed(&fixture.store(), "00000002.delta", &body, Durability::Synced).expect("it is written");
    fixture.write("a", "turn 4\n");
    fixture.capture("turn-4").await;
    assert_eq!(fixture.file("turn-4", "a").await.expect("the checkpoint exists"), b"turn 4\n");
}

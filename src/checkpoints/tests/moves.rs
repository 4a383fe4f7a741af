//! Moved and edited files.

use super::*;

fn lines(range: std::ops::Range<u32>) -> String {
    range.map(|line| format!("this is line {line}\n")).collect()
}

#[tokio::test]
async fn moved_and_edited_file_is_one_change() {
    let fixture = Fixture::new();
    fixture.write("src/old.rs", lines(0..100));
    fixture.write("short", lines(0..10));
    fixture.capture("turn-1").await;
    fixture.remove("src/old.rs");
    fixture.remove("short");
    fixture.write("lib/new.rs", lines(0..80) + "changed\n");
    fixture.write("other", lines(1_000..1_010));
    let expected = ["moved lib/new.rs from src/old.rs +1 -20", "created other +10 -0", "deleted short +0 -10"];
    assert_eq!(in_words(&fixture.diff("turn-1", "now").await), expected);
    let taken = fixture.capture("turn-2").await.observations();
    let Some(ObservationKind::Changes(changes)) = taken.get(1) else { panic!("{taken:?}") };
    assert_eq!((changes.files[0].from.as_deref(), changes.added, changes.removed), (Some("src/old.rs"), 11, 30));
    let back = ["created short +10 -0", "moved src/old.rs from lib/new.rs +20 -1"];
    let words = in_words(&fixture.diff("turn-2", "turn-1").await);
    assert!(back.iter().all(|line| words.contains(&(*line).to_owned())), "{words:?}");
}

#[tokio::test]
async fn most_similar_file_is_the_source() {
    let fixture = Fixture::new();
    fixture.write("a", lines(0..60) + &lines(200..240));
    fixture.write("b", lines(0..90) + &lines(200..210));
    fixture.capture("turn-1").await;
    fixture.remove("a");
    fixture.remove("b");
    fixture.write("c", lines(0..100));
    let words = in_words(&fixture.diff("turn-1", "now").await);
    assert_eq!(words, ["deleted a +0 -100", "moved c from b +10 -10"]);
}

#[tokio::test]
async fn many_files_are_paired_by_their_names() {
    let fixture = Fixture::new();
    for name in 0..300 {
        fixture.write(&format!("old/{name:03}"), lines(name * 100..name * 100 + 10));
    }
    fixture.write("old/named", lines(90_000..90_020));
    fixture.capture("turn-1").await;
    fs::remove_dir_all(fixture.workspace().join("old")).expect("the directory is removed");
    for name in 0..300 {
        fixture.write(&format!("new/x{name:03}"), lines(name * 100..name * 100 + 11));
    }
    fixture.write("new/named", lines(90_000..90_019));
    let words = in_words(&fixture.diff("turn-1", "now").await);
    let moved: Vec<_> = words.iter().filter(|line| line.starts_with("moved")).collect();
    assert_eq!(moved, ["moved new/named from old/named +0 -1"]);
}

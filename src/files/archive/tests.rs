//! Archives of hostile trees.

use std::{
    collections::BTreeMap,
    fs,
    io::Cursor,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use flate2::read::GzDecoder;
use futures::StreamExt;

use super::*;
use crate::files::tests::{FilesFixture, make_fifo};

async fn bytes_of(fixture: &FilesFixture, path: &str, format: ArchiveFormat) -> io::Result<Vec<u8>> {
    let mut stream = fixture.files.archive(fixture.target(path), format).await.expect("the archive begins");
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes)
}

/// Returns the entries of a tar archive: name, kind, and content or target.
fn untar(bytes: &[u8]) -> BTreeMap<String, (EntryType, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(bytes));
    let entries = archive.entries().expect("a tar archive").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        let mut text =
            entry.link_name_bytes().map(|link| String::from_utf8_lossy(&link).into_owned()).unwrap_or_default();
        entry.read_to_string(&mut text).expect("text");
        (name, (kind, text))
    });
    entries.collect()
}

fn unzip(bytes: Vec<u8>) -> BTreeMap<String, String> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("a zip archive");
    let entries = (0..archive.len()).map(|at| {
        let mut entry = archive.by_index(at).expect("an entry");
        let mut text = String::new();
        entry.read_to_string(&mut text).expect("text");
        (entry.name().expect("the name is text").into_owned(), text)
    });
    entries.collect()
}

fn hostile_tree(fixture: &FilesFixture) {
    let at = |name: &str| fixture.dir.join(name);
    fs::create_dir_all(at("dir/empty")).expect("directories");
    for name in ["dir/file", "dir/..\\..\\evil", "dir/C:evil", "dir/-rf", "dir/line\nbreak", "dir/ä"] {
        fs::write(at(name), name).expect("a file");
    }
    fs::write(at("dir").join(std::ffi::OsStr::from_bytes(b"bad\xff")), "bad").expect("a file");
    make_fifo(&at("dir/fifo"));
    let links = [
        ("dir/in", "file"),
        ("dir/empty/up", "../file"),
        ("dir/absolute", "/etc/passwd"),
        ("dir/out", "../secret"),
        ("dir/far", "../../../etc/passwd"),
        ("dir/through", "empty/../../secret"),
        ("dir/self", "."),
        ("dir/chain", "self/../secret"),
    ];
    for (name, target) in links {
        symlink(target, at(name)).expect("a link");
    }
    fs::write(at("secret"), "outside of the archive").expect("a file");
}

#[tokio::test]
async fn tar_has_files_and_inner_links_under_one_directory() {
    let fixture = FilesFixture::new();
    hostile_tree(&fixture);
    let entries = untar(&bytes_of(&fixture, "dir", ArchiveFormat::TarGz).await.expect("the archive is complete"));
    let names: Vec<&str> = entries.keys().map(String::as_str).collect();
    let expected = [
        "dir",
        "dir/-rf",
        "dir/..\\..\\evil",
        "dir/C:evil",
        "dir/bad\u{fffd}",
        "dir/empty",
        "dir/empty/up",
        "dir/file",
        "dir/in",
        "dir/line\nbreak",
        "dir/self",
        "dir/ä",
    ];
    assert_eq!(names, expected);
    assert_eq!(entries["dir/file"], (EntryType::Regular, "dir/file".to_owned()));
    assert_eq!(entries["dir/in"], (EntryType::Symlink, "file".to_owned()));
    assert_eq!(entries["dir/empty/up"], (EntryType::Symlink, "../file".to_owned()));
    let whole = untar(&bytes_of(&fixture, "", ArchiveFormat::TarGz).await.expect("the archive is complete"));
    assert!(whole.keys().all(|name| name == "workspace" || name.starts_with("workspace/")), "{whole:?}");
    // The whole workspace contains what a link of `dir` leaves it for.
    assert!(whole.contains_key("workspace/secret") && whole.contains_key("workspace/dir/out"));
    assert!(!whole.contains_key("workspace/dir/far") && !whole.contains_key("workspace/dir/absolute"));
    let single = untar(&bytes_of(&fixture, "dir/file", ArchiveFormat::TarGz).await.expect("the archive is complete"));
    assert_eq!(single.into_keys().collect::<Vec<_>>(), ["file"]);
}

#[tokio::test]
async fn zip_has_no_links_and_names_that_no_program_misreads() {
    let fixture = FilesFixture::new();
    hostile_tree(&fixture);
    let entries = unzip(bytes_of(&fixture, "dir", ArchiveFormat::Zip).await.expect("the archive is complete"));
    let names: Vec<&str> = entries.keys().map(String::as_str).collect();
    let expected = [
        "dir/",
        "dir/-rf",
        "dir/..%5C..%5Cevil",
        "dir/C%3Aevil",
        "dir/bad%FF",
        "dir/empty/",
        "dir/file",
        "dir/line%0Abreak",
        "dir/ä",
    ];
    assert_eq!(names, expected);
    assert_eq!(entries["dir/file"], "dir/file");
}

#[tokio::test]
async fn zip_with_too_many_entries_is_rejected_before_it_begins() {
    let fixture = FilesFixture::new();
    fs::create_dir(fixture.dir.join("many")).expect("a directory");
    for n in 0..MAX_ZIP_ENTRIES {
        fs::File::create(fixture.dir.join(format!("many/{n}"))).expect("a file");
    }
    let target = || fixture.target("many");
    let error = fixture.files.archive(target(), ArchiveFormat::Zip).await.err().expect("too many entries").to_string();
    assert!(error.contains("`many`") && error.contains("50000") && error.contains("format=tar.gz"), "{error}");
    fs::remove_file(fixture.dir.join("many/0")).expect("an own file");
    assert!(fixture.files.archive(target(), ArchiveFormat::Zip).await.is_ok());
}

#[tokio::test]
async fn file_that_changes_is_archived_or_ends_the_archive_with_an_error() {
    let fixture = FilesFixture::new();
    // Noise does not compress, so the writer waits for the reader.
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(4 << 20).collect();
    fs::write(fixture.dir.join("log"), &noise).expect("a file");
    let log = fs::OpenOptions::new().write(true).open(fixture.dir.join("log")).expect("a file");
    for (size, is_complete) in [(8 << 20, true), (1000, false)] {
        let mut stream = fixture.files.archive(fixture.target("log"), ArchiveFormat::TarGz).await.expect("it begins");
        let first = stream.next().await.expect("a piece").expect("the file is readable");
        log.set_len(size).expect("the file changes");
        let mut bytes = first.to_vec();
        let mut is_failed = false;
        while let Some(piece) = stream.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(e) => is_failed = e.to_string().contains("shrank"),
            }
        }
        assert_eq!(is_failed, !is_complete, "{size}");
        if is_complete {
            let mut archive = tar::Archive::new(GzDecoder::new(&bytes[..]));
            let mut entry = archive.entries().expect("a tar archive").next().expect("an entry").expect("an entry");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("the content is complete");
            assert!(content == noise, "{} bytes", content.len());
        }
    }
}

#[tokio::test]
async fn archive_ends_when_its_client_leaves() {
    let fixture = FilesFixture::new();
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(4 << 20).collect();
    fs::write(fixture.dir.join("noise"), &noise).expect("a file");
    for format in [ArchiveFormat::TarGz, ArchiveFormat::Zip] {
        let mut left = Vec::new();
        for _ in 0..8 {
            let mut stream = fixture.files.archive(fixture.target("noise"), format).await.expect("it begins");
            stream.next().await.expect("a piece").expect("the file is readable");
            left.push(stream);
        }
        let rejected = fixture.files.archive(fixture.target("noise"), format).await;
        assert!(matches!(rejected.err(), Some(FileError::Busy(8))), "each place is taken");
        drop(left);
        let all = fixture.files.archives.acquire_many(8).await.expect("each place is free again");
        drop(all);
    }
}

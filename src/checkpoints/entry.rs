//! Captured files: mode, hash of the content, and the stamp that shows that a file is unchanged.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::files::InnerPath;

/// Age below which a change of a file is not trusted: another one may have the same time. The
/// kernel's times advance every 10 ms at most.
const TIME_GRANULARITY: Duration = Duration::from_millis(50);

/// SHA-256 of a file's content, or of a link's target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContentHash(pub [u8; 32]);

/// Kind of a captured file, with the one permission that is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CaptureMode {
    #[serde(rename = "f")]
    Plain,
    #[serde(rename = "x")]
    Executable,
    #[serde(rename = "l")]
    Link,
}

/// File or link of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(CaptureMode, u64, ContentHash)", into = "(CaptureMode, u64, ContentHash)")]
pub(super) struct CapturedFile {
    pub mode: CaptureMode,
    /// Size of the content, bytes.
    pub size: u64,
    pub hash: ContentHash,
}

/// Inode, size, and times of the last changes of content and of inode, seconds and nanoseconds.
///
/// A process can set the first time, but not the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStamp([i64; 6]);

/// Captured file of the newest checkpoint. The stamp is `None` if the file must be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedFile {
    pub file: CapturedFile,
    pub stamp: Option<FileStamp>,
}

/// Files of a checkpoint.
pub(super) type CaptureTree = BTreeMap<InnerPath, CapturedFile>;
/// Files of the newest checkpoint, with stamps.
pub(super) type FileIndex = BTreeMap<InnerPath, IndexedFile>;

impl ContentHash {
    pub(super) fn of(content: &[u8]) -> ContentHash {
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let mut hash = [0; 32];
        hash.copy_from_slice(digest.as_ref());
        ContentHash(hash)
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ContentHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_hex(&text).map(ContentHash).ok_or_else(|| de::Error::custom("no hash"))
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for nibble in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
    }
    text
}

fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut hash = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = digit(pair.first()?)? << 4 | digit(pair.get(1)?)?;
    }
    Some(hash)
}

impl CaptureMode {
    /// Returns the mode of a file or a link.
    pub(super) fn of(stat: &Stat) -> CaptureMode {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => CaptureMode::Link,
            _ if stat.st_mode & 0o111 != 0 => CaptureMode::Executable,
            _ => CaptureMode::Plain,
        }
    }

    /// Returns the mode as git writes it.
    pub(super) fn git_mode(self) -> &'static str {
        match self {
            CaptureMode::Plain => "100644",
            CaptureMode::Executable => "100755",
            CaptureMode::Link => "120000",
        }
    }

    pub(super) fn is_link(self) -> bool {
        self == CaptureMode::Link
    }
}

impl From<(CaptureMode, u64, ContentHash)> for CapturedFile {
    fn from((mode, size, hash): (CaptureMode, u64, ContentHash)) -> CapturedFile {
        CapturedFile { mode, size, hash }
    }
}

impl From<CapturedFile> for (CaptureMode, u64, ContentHash) {
    fn from(CapturedFile { mode, size, hash }: CapturedFile) -> (CaptureMode, u64, ContentHash) {
        (mode, size, hash)
    }
}

impl FileStamp {
    pub(super) fn of(stat: &Stat) -> FileStamp {
        let number = |value: u64| value.cast_signed();
        FileStamp([
            number(stat.st_ino),
            stat.st_size,
            stat.st_mtime,
            number(stat.st_mtime_nsec),
            stat.st_ctime,
            number(stat.st_ctime_nsec),
        ])
    }

    /// Returns true if the file changed too recently: another change may have the same stamp.
    pub(super) fn is_recent(&self) -> bool {
        let [.., seconds, nanoseconds] = self.0;
        is_recent(seconds, nanoseconds)
    }

    /// Returns true if the content is the same as at an earlier stamp, although the name may have
    /// changed: a rename sets the time of the inode.
    pub(super) fn keeps_content_of(&self, earlier: &FileStamp) -> bool {
        let [inode, size, seconds, nanoseconds, ..] = self.0;
        earlier.0[..4] == [inode, size, seconds, nanoseconds] && !is_recent(seconds, nanoseconds)
    }
}

/// Returns true for a time after which another change may have the same time.
fn is_recent(seconds: i64, nanoseconds: i64) -> bool {
    let parts = (u64::try_from(seconds), u32::try_from(nanoseconds));
    let (Ok(seconds), Ok(nanoseconds)) = parts else { return true };
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    // A time in the future is not trusted either: the clock may have been set back.
    SystemTime::now().duration_since(changed).map_or(true, |age| age < TIME_GRANULARITY)
}

/// Returns the files without their stamps.
pub(super) fn without_stamps(index: &FileIndex) -> CaptureTree {
    index.iter().map(|(path, indexed)| (path.clone(), indexed.file)).collect()
}

//! Archive of a part of a workspace: tar with gzip, or zip. Written as a stream, with bounded
//! memory.
//!
//! Contains regular files and directories. Devices, FIFOs and sockets are left out, and so is what
//! the server may not read. A tar archive keeps a link that stays inside the archive; a zip archive
//! has no links.

use std::{
    borrow::Cow,
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use rustix::fs::Stat;
use tar::{EntryType, Header};
use zip::{
    CompressionMethod, ZipWriter,
    result::{ZipError, ZipResult},
    write::{SimpleFileOptions, StreamWriter},
};

use super::{
    byte_pipe::PipeWriter,
    entry::FileKind,
    error::FileError,
    path::InnerPath,
    tree::WorkspaceTree,
    walk::{IsCancelled, Walk, WalkStep, examine},
};

/// Entries of a zip archive. Its directory stays in memory until the end.
pub const MAX_ZIP_ENTRIES: usize = 50_000;
/// Size up to which a file is read before its header is written, bytes.
const SMALL_FILE: u64 = 1 << 20;
/// Size from which a zip entry needs 64-bit sizes, with room for a file that compresses badly.
const LARGE_ZIP_FILE: u64 = 0xf000_0000;
/// ASCII characters that an encoded name in a zip archive does not contain.
const ZIP_ENCODED: &AsciiSet = &CONTROLS.add(b'\\').add(b':').add(b'%');
/// Name of the topmost directory in an archive of the whole workspace.
const WHOLE: &[u8] = b"workspace";

/// Format of an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArchiveFormat {
    #[default]
    TarGz,
    Zip,
}

/// Sink of an archive's entries. Names are paths below the topmost directory, which they contain.
trait ArchiveSink {
    fn directory(&mut self, name: &[u8], stat: &Stat) -> io::Result<()>;
    fn link(&mut self, name: &[u8], target: &[u8], stat: &Stat) -> io::Result<()>;
    /// Adds a file of exactly `size` bytes.
    fn file(&mut self, name: &[u8], stat: &Stat, size: u64, content: &mut dyn Read) -> io::Result<()>;
}

/// Returns the name of the topmost directory, or of the only file.
pub fn top_name(path: &InnerPath) -> &[u8] {
    if path.is_root() { WHOLE } else { path.name() }
}

/// Returns true if a zip archive can hold all entries below `path`.
///
/// # Errors
/// The directory is too large to be read, or the client is gone.
pub(super) fn fits_into_zip(
    tree: &WorkspaceTree,
    path: &InnerPath,
    is_cancelled: IsCancelled<'_>,
) -> Result<bool, FileError> {
    let (_, stat) = tree.locate(path)?;
    if FileKind::of(&stat) != FileKind::Directory {
        return Ok(true);
    }
    let (mut walk, mut entries) = (Walk::new(tree, path.clone()), 1);
    loop {
        match walk.step() {
            WalkStep::End => return Ok(true),
            WalkStep::Scan => walk.scan(is_cancelled)?,
            WalkStep::Entry(_) => entries += 1,
        }
        if entries > MAX_ZIP_ENTRIES {
            return Ok(false);
        }
    }
}

/// Writes the archive of `path` into the pipe. A failure reaches the reader as an error.
pub(super) fn write_archive(tree: &WorkspaceTree, path: &InnerPath, format: ArchiveFormat, mut pipe: PipeWriter) {
    let is_abandoned = pipe.abandonment();
    let written = match format {
        ArchiveFormat::TarGz => write_tar(tree, path, &is_abandoned, &mut pipe),
        ArchiveFormat::Zip => write_zip(tree, path, &is_abandoned, &mut pipe),
    };
    pipe.finish(written);
}

fn write_tar(
    tree: &WorkspaceTree,
    path: &InnerPath,
    is_abandoned: IsCancelled<'_>,
    pipe: &mut PipeWriter,
) -> io::Result<()> {
    let mut builder = tar::Builder::new(GzEncoder::new(pipe, Compression::fast()));
    add_all(tree, path, is_abandoned, &mut builder)?;
    builder.into_inner()?.finish()?;
    Ok(())
}

fn write_zip(
    tree: &WorkspaceTree,
    path: &InnerPath,
    is_abandoned: IsCancelled<'_>,
    pipe: &mut PipeWriter,
) -> io::Result<()> {
    let mut writer = ZipWriter::new_stream(pipe);
    add_all(tree, path, is_abandoned, &mut writer)?;
    writer.finish()?;
    Ok(())
}

fn add_all(
    tree: &WorkspaceTree,
    path: &InnerPath,
    is_abandoned: IsCancelled<'_>,
    sink: &mut impl ArchiveSink,
) -> io::Result<()> {
    let top = top_name(path);
    let below = |entry: &InnerPath| {
        let rest = &entry.as_bytes()[path.as_bytes().len()..];
        match rest.strip_prefix(b"/").unwrap_or(rest) {
            b"" => top.to_vec(),
            rest => [top, b"/", rest].concat(),
        }
    };
    let Some((kind, stat)) = examine(tree, path) else { return Err(io::ErrorKind::NotFound.into()) };
    add(tree, path, &below(path), (kind, &stat), sink)?;
    if kind != FileKind::Directory {
        return Ok(());
    }
    let mut walk = Walk::new(tree, path.clone());
    loop {
        match walk.step() {
            WalkStep::End => return Ok(()),
            WalkStep::Scan => walk.scan(is_abandoned).map_err(io::Error::other)?,
            WalkStep::Entry(_) if is_abandoned() => return Err(io::ErrorKind::BrokenPipe.into()),
            WalkStep::Entry(entry) => {
                if let Some((kind, stat)) = examine(tree, &entry) {
                    add(tree, &entry, &below(&entry), (kind, &stat), sink)?;
                }
            }
        }
    }
}

fn add(
    tree: &WorkspaceTree,
    path: &InnerPath,
    name: &[u8],
    (kind, stat): (FileKind, &Stat),
    sink: &mut impl ArchiveSink,
) -> io::Result<()> {
    match kind {
        FileKind::Directory => sink.directory(name, stat),
        FileKind::Other => Ok(()),
        FileKind::Link => match tree.read_link(path) {
            Ok(target) if stays_inside(name, &target) => sink.link(name, &target, stat),
            Ok(_) | Err(_) => Ok(()),
        },
        FileKind::File => match tree.open_file(path) {
            Ok(file) => add_file(file, name, stat, sink),
            // Gone, replaced or closed meanwhile.
            Err(_) => Ok(()),
        },
    }
}

fn add_file(mut file: File, name: &[u8], stat: &Stat, sink: &mut impl ArchiveSink) -> io::Result<()> {
    let size = file.metadata()?.size();
    if size <= SMALL_FILE {
        // Such a file may grow or shrink while it is read.
        let mut content = Vec::new();
        file.take(SMALL_FILE).read_to_end(&mut content)?;
        return sink.file(name, stat, content.len() as u64, &mut content.as_slice());
    }
    sink.file(name, stat, size, &mut ExactContent { file: &mut file, left: size })
}

/// Content of a file that has its size in the archive already. Growth is not read.
struct ExactContent<'a> {
    file: &'a mut File,
    left: u64,
}

impl Read for ExactContent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..wanted])?;
        if read == 0 && wanted > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a file shrank while it was archived"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

/// Returns true if a link stays inside the archive, whatever other links the archive has.
///
/// `..` may stand only at the start: after a name, it could leave the target of another link.
fn stays_inside(name: &[u8], target: &[u8]) -> bool {
    let mut depth = name.iter().filter(|byte| **byte == b'/').count();
    let mut has_name = false;
    if target.is_empty() || target.starts_with(b"/") {
        return false;
    }
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            // The topmost directory itself stays.
            b".." if has_name || depth <= 1 => return false,
            b".." => depth -= 1,
            _ => has_name = true,
        }
    }
    true
}

impl<W: Write> ArchiveSink for tar::Builder<W> {
    fn directory(&mut self, name: &[u8], stat: &Stat) -> io::Result<()> {
        self.append_data(&mut tar_header(stat, EntryType::Directory, 0), as_path(name), io::empty())
    }

    fn link(&mut self, name: &[u8], target: &[u8], stat: &Stat) -> io::Result<()> {
        self.append_link(&mut tar_header(stat, EntryType::Symlink, 0), as_path(name), as_path(target))
    }

    fn file(&mut self, name: &[u8], stat: &Stat, size: u64, content: &mut dyn Read) -> io::Result<()> {
        self.append_data(&mut tar_header(stat, EntryType::Regular, size), as_path(name), content)
    }
}

fn tar_header(stat: &Stat, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(stat.st_mtime.try_into().unwrap_or(0));
    header
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl<W: Write> ArchiveSink for ZipWriter<StreamWriter<W>> {
    fn directory(&mut self, name: &[u8], stat: &Stat) -> io::Result<()> {
        skip_repeated(self.add_directory(zip_name(name), zip_options(stat, 0))).map(|_| ())
    }

    fn link(&mut self, _: &[u8], _: &[u8], _: &Stat) -> io::Result<()> {
        Ok(())
    }

    fn file(&mut self, name: &[u8], stat: &Stat, size: u64, content: &mut dyn Read) -> io::Result<()> {
        if skip_repeated(self.start_file(zip_name(name), zip_options(stat, size)))? {
            io::copy(content, self)?;
        }
        Ok(())
    }
}

/// Returns false if the archive has the name already: two names may have the same encoded form.
fn skip_repeated(added: ZipResult<()>) -> io::Result<bool> {
    match added {
        Ok(()) => Ok(true),
        Err(ZipError::InvalidArchive(reason)) if reason.starts_with("Duplicate filename") => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn zip_options(stat: &Stat, size: u64) -> SimpleFileOptions {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(1))
        .unix_permissions(stat.st_mode & 0o777)
        .large_file(size >= LARGE_ZIP_FILE);
    match zip_time(stat.st_mtime) {
        Some(time) => options.last_modified_time(time),
        None => options,
    }
}

fn zip_time(seconds: i64) -> Option<zip::DateTime> {
    let time = jiff::Timestamp::from_second(seconds).ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let part = |value: i8| u8::try_from(value).ok();
    let (month, day, hour) = (part(time.month())?, part(time.day())?, part(time.hour())?);
    let year = u16::try_from(time.year()).ok()?;
    zip::DateTime::from_date_and_time(year, month, day, hour, part(time.minute())?, part(time.second())?).ok()
}

/// Returns a name that is harmless for each unpacking program.
///
/// Some programs take `\` and `:` for parts of a path. Such names, names that are no UTF-8 and
/// names with control characters are percent-encoded.
fn zip_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.contains(|c: char| c.is_control() || matches!(c, '\\' | ':')) => text.into(),
        Ok(_) | Err(_) => percent_encode(name, ZIP_ENCODED).to_string().into(),
    }
}

#[cfg(test)]
mod tests;

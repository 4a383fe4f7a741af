//! Types of files, judged by their content.

use crate::config::{FileTypePattern, FilesConfig};

/// Bytes at the start of a file that its type is judged by.
pub const HEAD_BYTES: usize = 8 << 10;

/// Formats of pictures that a browser may show: the first bytes, and the bytes after the eighth.
///
/// Source: the specifications of PNG, JPEG, GIF and WebP. A picture cannot run scripts in these
/// formats, unlike SVG.
const PICTURES: [(&str, &[u8], &[u8]); 5] = [
    ("image/png", b"\x89PNG\r\n\x1a\n", b""),
    ("image/jpeg", b"\xff\xd8\xff", b""),
    ("image/gif", b"GIF87a", b""),
    ("image/gif", b"GIF89a", b""),
    ("image/webp", b"RIFF", b"WEBP"),
];

/// Type under which a download is sent. A browser runs none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadType {
    /// Picture that a browser may show, with its media type.
    Picture(&'static str),
    /// UTF-8 without zero bytes, as far as the head shows.
    Text,
    Binary,
}

/// Upload whose type the configuration does not allow. The text is shown to the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TypeDenied {
    #[error("`{file}` is of the type `{pattern}`, which `files.denied_types` rejects; remove the type from that list")]
    Denied { file: String, pattern: String },
    #[error(
        "`{file}` has no extension of `files.allowed_types`, which allows {allowed}; rename the file, or add its type"
    )]
    ExtensionNotAllowed { file: String, allowed: String },
    #[error("`{file}` has the type `{found}`, and `files.allowed_types` allows {allowed}; add the type to that list")]
    TypeNotAllowed { file: String, found: String, allowed: String },
}

impl DownloadType {
    /// Judges a file by its first bytes.
    pub fn of(head: &[u8]) -> DownloadType {
        let picture = PICTURES.iter().find(|(_, start, form)| {
            head.starts_with(start) && (form.is_empty() || head.get(8..).is_some_and(|rest| rest.starts_with(form)))
        });
        match picture {
            Some((media_type, ..)) => DownloadType::Picture(media_type),
            None if is_text(head) => DownloadType::Text,
            None => DownloadType::Binary,
        }
    }

    pub fn media_type(self) -> &'static str {
        match self {
            DownloadType::Picture(media_type) => media_type,
            DownloadType::Text => "text/plain; charset=utf-8",
            DownloadType::Binary => "application/octet-stream",
        }
    }
}

/// Returns true for UTF-8 without zero bytes. The last character may be cut off.
fn is_text(head: &[u8]) -> bool {
    let is_utf8 = match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(e) => head.len() == HEAD_BYTES && e.error_len().is_none(),
    };
    is_utf8 && !head.contains(&0)
}

/// Checks the name of an upload. `name` is in the client's spelling.
///
/// # Errors
/// The configuration does not allow the extension.
pub fn check_extension(config: &FilesConfig, name: &str) -> Result<(), TypeDenied> {
    check(config, name, &|pattern| pattern.matches_name(name), true, || TypeDenied::ExtensionNotAllowed {
        file: name.to_owned(),
        allowed: list(&config.allowed_types, true),
    })
}

/// Checks the content of an upload by its first bytes.
///
/// # Errors
/// The configuration does not allow the type that the content shows.
pub fn check_content(config: &FilesConfig, name: &str, head: &[u8]) -> Result<(), TypeDenied> {
    let found = media_type(head);
    check(config, name, &|pattern| pattern.matches_media_type(found), false, || TypeDenied::TypeNotAllowed {
        file: name.to_owned(),
        found: found.to_owned(),
        allowed: list(&config.allowed_types, false),
    })
}

fn check(
    config: &FilesConfig,
    name: &str,
    matches: &dyn Fn(&FileTypePattern) -> bool,
    by_extension: bool,
    not_allowed: impl FnOnce() -> TypeDenied,
) -> Result<(), TypeDenied> {
    if let Some(pattern) = config.denied_types.iter().find(|pattern| matches(pattern)) {
        return Err(TypeDenied::Denied { file: name.to_owned(), pattern: pattern.to_string() });
    }
    let mut allowed = config.allowed_types.iter().filter(|pattern| pattern.is_extension() == by_extension).peekable();
    match allowed.peek().is_none() || allowed.any(matches) {
        true => Ok(()),
        false => Err(not_allowed()),
    }
}

/// Returns the media type that the content shows.
fn media_type(head: &[u8]) -> &'static str {
    match infer::get(head) {
        Some(kind) => kind.mime_type(),
        None if is_text(head) => "text/plain",
        None => "application/octet-stream",
    }
}

fn list(patterns: &[FileTypePattern], extensions: bool) -> String {
    let listed = patterns.iter().filter(|pattern| pattern.is_extension() == extensions);
    listed.map(|pattern| format!("`{pattern}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_type_follows_from_content() {
        let cut = [&b"a"[..], "ä".repeat(HEAD_BYTES).as_bytes()].concat();
        let check = |head: &[u8], expected: &str| assert_eq!(DownloadType::of(head).media_type(), expected);
        check(b"\x89PNG\r\n\x1a\n", "image/png");
        check(b"RIFF\0\0\0\0WEBPVP8 ", "image/webp");
        check(b"RIFF\0\0\0\0WAVE", "application/octet-stream");
        check(b"<svg><script/></svg>", "text/plain; charset=utf-8");
        check(b"", "text/plain; charset=utf-8");
        check(&cut[..HEAD_BYTES], "text/plain; charset=utf-8");
        check(b"a\xff", "application/octet-stream");
        check(b"a\0b", "application/octet-stream");
    }

    #[test]
    fn types_are_allowed_by_extension_and_content() {
        let parse = |text: &[&str]| text.iter().map(|one| one.parse().expect("a pattern")).collect::<Vec<_>>();
        let check = |allowed: &[&str], denied: &[&str], name: &str, head: &[u8], expected: Option<&str>| {
            let config = FilesConfig { max_files: 1, allowed_types: parse(allowed), denied_types: parse(denied) };
            let found = check_extension(&config, name).and_then(|()| check_content(&config, name, head));
            match expected {
                None => assert_eq!(found, Ok(()), "{name} {allowed:?} {denied:?}"),
                Some(part) => {
                    let error = found.expect_err(name).to_string();
                    assert!(error.contains(part) && error.contains(name), "{error}");
                }
            }
        };
        let (png, elf) = (b"\x89PNG\r\n\x1a\n", [&b"\x7fELF"[..], &[1; 64]].concat());
        let elf = &elf[..];
        check(&[], &[], "a", elf, None);
        check(&[], &["application/x-executable"], "a.png", elf, Some("`files.denied_types`"));
        check(&[], &[".png"], "A.PNG", png, Some("`.png`"));
        check(&["image/*"], &[], "a.txt", png, None);
        check(&["image/*"], &[], "a.png", b"text", Some("`text/plain`"));
        check(&[".png", "image/*"], &[], "a.txt", png, Some("`files.allowed_types`"));
        check(&[".png", "image/*"], &[], "a.png", png, None);
        check(&[".png"], &[], "a.png", elf, None);
        check(&["image/*"], &["image/png"], "a.png", png, Some("`image/png`"));
    }
}

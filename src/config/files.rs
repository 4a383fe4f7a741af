//! Section `files`: limits of uploads into a workspace.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// Limits of uploads into a workspace. `server.max_upload` limits the size of each file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Files in one upload.
    pub max_files: usize,
    /// Types that may be uploaded. Empty: each type.
    pub allowed_types: Vec<FileTypePattern>,
    /// Types that may not be uploaded. Wins over `allowed_types`.
    pub denied_types: Vec<FileTypePattern>,
}

/// Pattern for types of files: `.exe` by extension, `application/pdf` or `image/*` by content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileTypePattern {
    /// Extension in lower case, with its dot. Matches the end of a name.
    Extension(String),
    /// Media type in lower case. Matches the type that the content shows.
    MediaType(String),
    /// First half of a media type in lower case, with its slash, such as `image/`.
    MediaTypeGroup(String),
}

/// Text that is no pattern for types of files.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no type of a file; write an extension such as `.exe`, a media type such as `application/pdf`, or a group \
     such as `image/*`"
)]
pub struct InvalidFileTypePattern(String);

impl FilesConfig {
    /// Highest value of `max_files`. Each file of an upload in progress holds a descriptor.
    pub const MAX_FILES_LIMIT: usize = 1000;
}

impl FileTypePattern {
    pub fn matches_name(&self, name: &str) -> bool {
        match self {
            FileTypePattern::Extension(extension) => {
                let name = name.to_lowercase();
                name.len() > extension.len() && name.ends_with(extension)
            }
            FileTypePattern::MediaType(_) | FileTypePattern::MediaTypeGroup(_) => false,
        }
    }

    pub fn matches_media_type(&self, media_type: &str) -> bool {
        match self {
            FileTypePattern::Extension(_) => false,
            FileTypePattern::MediaType(own) => own == media_type,
            FileTypePattern::MediaTypeGroup(group) => media_type.starts_with(group),
        }
    }

    pub fn is_extension(&self) -> bool {
        matches!(self, FileTypePattern::Extension(_))
    }
}

impl FromStr for FileTypePattern {
    type Err = InvalidFileTypePattern;

    fn from_str(text: &str) -> Result<FileTypePattern, InvalidFileTypePattern> {
        let is_token = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        let lower = text.to_lowercase();
        match (lower.strip_prefix('.'), lower.split_once('/')) {
            (Some(extension), None) if !extension.is_empty() && !extension.chars().any(char::is_whitespace) => {
                Ok(FileTypePattern::Extension(lower))
            }
            (None, Some((group, "*"))) if is_token(group) => Ok(FileTypePattern::MediaTypeGroup(format!("{group}/"))),
            (None, Some((group, kind))) if is_token(group) && is_token(kind) => Ok(FileTypePattern::MediaType(lower)),
            _ => Err(InvalidFileTypePattern(text.to_owned())),
        }
    }
}

impl fmt::Display for FileTypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileTypePattern::Extension(text) | FileTypePattern::MediaType(text) => f.write_str(text),
            FileTypePattern::MediaTypeGroup(group) => write!(f, "{group}*"),
        }
    }
}

impl<'de> Deserialize<'de> for FileTypePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FileTypePattern, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_types() {
        let check = |pattern: &str, name: &str, media_type: &str, expected: (bool, bool)| {
            let parsed: FileTypePattern = pattern.parse().expect(pattern);
            assert_eq!((parsed.matches_name(name), parsed.matches_media_type(media_type)), expected, "{pattern}");
        };
        check(".exe", "a.EXE", "image/png", (true, false));
        check(".tar.gz", "a.tar.gz", "application/gzip", (true, false));
        check(".exe", ".exe", "image/png", (false, false));
        check("image/*", "a.png", "image/png", (false, true));
        check("Image/PNG", "a.png", "image/png", (false, true));
        check("image/*", "a.png", "imagery/png", (false, false));
        for invalid in ["", ".", "exe", "*/*", "image/", "/png", "a/b/c", ". x"] {
            let error = invalid.parse::<FileTypePattern>().expect_err(invalid).to_string();
            assert!(error.contains("write an extension"), "{error}");
        }
    }
}

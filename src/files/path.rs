//! Paths inside a workspace, as bytes. An agent can give a file any name that the kernel permits.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::api_schema::{api_schema, text};

/// Longest path inside a workspace, bytes. Source: `PATH_MAX` of Linux without the final zero.
const PATH_BYTES: usize = 4095;
/// Longest part of a path inside a workspace, bytes. Source: `NAME_MAX` of Linux.
const PART_BYTES: usize = 255;

api_schema! {
    pub(crate) WorkspacePathSchema as "WorkspacePath" = text()
        .description(Some(format!(
            "Path inside a workspace: at most {PATH_BYTES} bytes of UTF-8 in parts of at most {PART_BYTES} bytes, \
             without `..`, `.`, empty parts and control characters. With `encoded=true`, `%` and two digits stand for \
             a byte, and each byte but 0 is permitted."
        )))
        .max_length(Some(PATH_BYTES))
        .pattern(Some(format!("^{PART}(/{PART})*$")));
}

/// Pattern of one part of a path.
const PART: &str = concat!(
    r"([^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*",
    r"|\.[^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*",
    r"|\.\.[^/\u0000-\u001f\u007f-\u009f]+)"
);

/// ASCII characters that an encoded path does not contain. Other bytes are always encoded.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Path inside a workspace. Contains names only, and cannot lead out of the workspace. Empty: the
/// workspace itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InnerPath(Vec<u8>);

/// Form in which a client writes a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PathForm {
    /// Text without control characters.
    #[default]
    Plain,
    /// Text in which `%` and two digits stand for a byte.
    Encoded,
}

/// Path in the form that a client reads and sends back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathText {
    pub text: String,
    /// True if `text` is percent-encoded: the name is no UTF-8 or has control characters.
    pub encoded: bool,
}

/// Rejected path, in the client's spelling, with control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no path inside the workspace; write it like `notes/todo.md`, without `..`, `.`, empty parts and control \
     characters"
)]
pub struct InvalidInnerPath(String);

impl PathForm {
    pub fn of(encoded: bool) -> PathForm {
        if encoded { PathForm::Encoded } else { PathForm::Plain }
    }
}

impl InnerPath {
    /// Parses the path of an entry.
    ///
    /// # Errors
    /// The path is empty, absolute or too long, or has a part that is no name.
    pub fn parse(text: &str, form: PathForm) -> Result<InnerPath, InvalidInnerPath> {
        let invalid = || {
            let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
            InvalidInnerPath(text.chars().map(escaped).collect())
        };
        let bytes = match form {
            PathForm::Plain if text.chars().any(char::is_control) => return Err(invalid()),
            PathForm::Plain => text.as_bytes().to_vec(),
            PathForm::Encoded => percent_decode_str(text).collect(),
        };
        InnerPath::from_bytes(bytes).ok_or_else(invalid)
    }

    /// Parses the path of an entry, or an empty text as the workspace itself.
    ///
    /// # Errors
    /// As for [`InnerPath::parse`].
    pub fn parse_or_root(text: &str, form: PathForm) -> Result<InnerPath, InvalidInnerPath> {
        if text.is_empty() { Ok(InnerPath::default()) } else { InnerPath::parse(text, form) }
    }

    fn from_bytes(bytes: Vec<u8>) -> Option<InnerPath> {
        let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && part.len() <= PART_BYTES;
        let is_path =
            bytes.len() <= PATH_BYTES && !bytes.contains(&0) && bytes.split(|byte| *byte == b'/').all(is_name);
        is_path.then_some(InnerPath(bytes))
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the last part of the path. Empty for the workspace itself.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Returns the directory that contains the entry. The workspace contains itself.
    pub fn parent(&self) -> InnerPath {
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        InnerPath(self.0[..end].to_vec())
    }

    /// Returns the path of an entry of this directory. `None` if the path would be too long.
    pub fn join(&self, name: &[u8]) -> Option<InnerPath> {
        let mut bytes = self.0.clone();
        if !self.is_root() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        InnerPath::from_bytes(bytes)
    }

    /// Returns the parts of the path below `ancestor`. `None` if the path is not below it.
    pub fn parts_below(&self, ancestor: &InnerPath) -> Option<Vec<&[u8]>> {
        let rest = match ancestor.is_root() {
            true => self.as_bytes(),
            false => self.0.strip_prefix(ancestor.as_bytes())?.strip_prefix(b"/")?,
        };
        (!rest.is_empty()).then(|| rest.split(|byte| *byte == b'/').collect())
    }

    /// Returns true if `path` is this path or below it.
    pub fn has_inside(&self, path: &InnerPath) -> bool {
        self.is_root() || path == self || path.parts_below(self).is_some()
    }

    pub fn text(&self) -> PathText {
        PathText::of(&self.0)
    }

    /// Returns the path percent-encoded, whether it needs that or not.
    pub fn encoded_text(&self) -> String {
        percent_encode(&self.0, ENCODED).to_string()
    }
}

impl std::fmt::Display for InnerPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text().text)
    }
}

/// Writes the path percent-encoded, so that it is text in any case.
impl Serialize for InnerPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&percent_encode(&self.0, ENCODED))
    }
}

impl<'de> Deserialize<'de> for InnerPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<InnerPath, D::Error> {
        InnerPath::parse_or_root(&String::deserialize(deserializer)?, PathForm::Encoded).map_err(de::Error::custom)
    }
}

impl PathText {
    /// Returns the form of a path or a name that a client can send back.
    pub fn of(bytes: &[u8]) -> PathText {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.chars().any(char::is_control) => PathText { text: text.to_owned(), encoded: false },
            Ok(_) | Err(_) => PathText { text: percent_encode(bytes, ENCODED).to_string(), encoded: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_out_are_rejected() {
        for path in ["a", "a/b.txt", "uploads/ä ö.txt", "..a", "a..", ".hidden", "x/".repeat(40).trim_end_matches('/')]
        {
            assert!(InnerPath::parse(path, PathForm::Plain).is_ok(), "{path}");
        }
        let (long, long_part) = ("x/".repeat(2048) + "y", "x".repeat(256));
        let outside = ["", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\0b", "a\nb"];
        for path in outside.into_iter().chain([long.as_str(), &long_part]) {
            let error = InnerPath::parse(path, PathForm::Plain).expect_err(path).to_string();
            assert!(error.contains("inside the workspace"), "{error}");
        }
        for path in ["%2e%2e/a", "..", "a%2f..%2fb", "%2fetc", "a%00b", "a%2f", ""] {
            InnerPath::parse(path, PathForm::Encoded).expect_err(path);
        }
    }

    #[test]
    fn any_name_comes_back_as_it_went_out() {
        for name in [&b"a.txt"[..], b"a\xff\n%41.txt", b"\x1b]52;c", "ä%20 ".as_bytes(), b"-rf", b"\\..\\x"] {
            let path = InnerPath::default().join(b"dir").and_then(|dir| dir.join(name)).expect("a valid name");
            let PathText { text, encoded } = path.text();
            assert_eq!(InnerPath::parse(&text, PathForm::of(encoded)), Ok(path.clone()), "{text}");
            assert!(!text.chars().any(char::is_control), "{text}");
            assert_eq!((path.name(), path.parent().as_bytes()), (name, &b"dir"[..]));
        }
        assert!(!InnerPath::parse("a%FF", PathForm::Plain).expect("a valid name").text().encoded);
    }
}

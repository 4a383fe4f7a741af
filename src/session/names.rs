//! Limits of the names that clients give: titles, models, images and directories.

use super::request_error::RequestError;
use crate::api_schema::{FILLED_LINE, NO_CONTROL_CHARACTERS, api_schema, text};

/// Longest title that a client may give, in characters.
///
/// Every session list contains the title, and memory holds it as long as the session is known.
const MAX_TITLE_CHARS: usize = 200;
/// Longest other name that a client may give, in bytes. The reasons are those of
/// [`MAX_TITLE_CHARS`].
const MAX_NAME_BYTES: usize = 1024;

api_schema! {
    pub(crate) TitleSchema as "Title" = text()
        .description(Some("Title of a session, without control characters."))
        .max_length(Some(MAX_TITLE_CHARS))
        .pattern(Some(NO_CONTROL_CHARACTERS));
    pub(crate) NameSchema as "Name" = text()
        .description(Some(format!("Name of at most {MAX_NAME_BYTES} bytes of UTF-8, without control characters.")))
        .max_length(Some(MAX_NAME_BYTES))
        .pattern(Some(NO_CONTROL_CHARACTERS));
    pub(crate) ModelNameSchema as "ModelName" = text()
        .description(Some(format!("Model, from `GET /api/options`, in at most {MAX_NAME_BYTES} bytes of UTF-8.")))
        .max_length(Some(MAX_NAME_BYTES))
        .pattern(Some(FILLED_LINE));
    pub(crate) DirectorySchema as "Directory" = text()
        .description(Some(format!("Absolute path without `..`, of at most {MAX_NAME_BYTES} bytes of UTF-8.")))
        .max_length(Some(MAX_NAME_BYTES))
        .pattern(Some(DIRECTORY));
}

/// Pattern of an absolute path. A part is empty, `.`, or no dots alone, or more than two of them.
const DIRECTORY: &str = concat!(
    r"^(/([^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*",
    r"|\.([^./\u0000-\u001f\u007f-\u009f][^/\u0000-\u001f\u007f-\u009f]*)?",
    r"|\.\.[^/\u0000-\u001f\u007f-\u009f]+)?)+$"
);

/// Checks a title.
///
/// # Errors
/// Returns [`RequestError::BadArgs`] for a title of more than 200 characters, or with a control
/// character.
pub fn check_title(title: Option<&str>) -> Result<(), RequestError> {
    let title = title.unwrap_or_default();
    match title.chars().count() {
        0..=MAX_TITLE_CHARS => check_characters("title", title),
        count => Err(RequestError::BadArgs(format!("`title` has {count} characters; it may have {MAX_TITLE_CHARS}"))),
    }
}

/// Checks the name that is given for the argument `what`.
///
/// # Errors
/// Returns [`RequestError::BadArgs`] for a name of more than 1,024 bytes, or with a control
/// character.
pub fn check_name(what: &str, name: &str) -> Result<(), RequestError> {
    match name.len() {
        0..=MAX_NAME_BYTES => check_characters(what, name),
        bytes => Err(RequestError::BadArgs(format!("`{what}` has {bytes} bytes; it may have {MAX_NAME_BYTES}"))),
    }
}

/// Checks the working directory of a new session. The path is shown to people and stored with each
/// command, so a single plain path is required.
///
/// # Errors
/// Returns [`RequestError::BadArgs`] for a relative path, a `..`, or a path that is no name.
pub fn check_directory(directory: &str) -> Result<(), RequestError> {
    check_name("directory", directory)?;
    let reason = if !directory.starts_with('/') {
        format!("`directory` must be an absolute path inside the sandbox, not `{directory}`")
    } else if directory.split('/').any(|part| part == "..") {
        format!("`directory` must not contain `..`, but is `{directory}`; give the resolved path")
    } else {
        return Ok(());
    };
    Err(RequestError::BadArgs(reason))
}

/// Rejects control characters: they act on a terminal that shows the text, and split lines of a
/// log. The text itself is left out of the error.
fn check_characters(what: &str, text: &str) -> Result<(), RequestError> {
    match text.chars().any(char::is_control) {
        true => {
            Err(RequestError::BadArgs(format!("`{what}` has a control character, such as a line break; remove it")))
        }
        false => Ok(()),
    }
}

//! Pictures that the user attached: from a file of the workspace to an image block of a request.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use greenroom_protocol::{Observation, ObservationKind};
use greenroom_provider::request::UserPart;
use rustix::fs::OFlags;

use super::{
    TurnContext,
    conversation::{AgentConversation, UserInput, join},
};
use crate::{clock, threads::off_thread};

/// Size limit of one picture, in bytes. Anthropic accepts 5 MiB in base64.
const PICTURE_LIMIT: u64 = 15 * 1024 * 1024 / 4;
/// Size limit of all pictures in a request, in bytes of base64.
const PICTURES_LIMIT: usize = 16 * 1024 * 1024;
/// Number of pictures in a request.
const PICTURES_COUNT: usize = 20;
/// Size of a picture within the budget of the conversation, in bytes: about 1,600 tokens.
const PICTURE_SIZE: usize = 6 * 1024;
/// Time limit for a file system that does not answer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

const TAKES_NO_IMAGES: &str = "the model takes no images";
const LEFT_OUT: &str = "it was left out to save room";

/// Source of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttachmentOrigin {
    /// Message that the agent has just received. The user reads why a picture is not shown.
    Message,
    /// Journal, after a restart of the agent.
    Journal,
}

/// File that the user attached.
#[derive(Debug, Clone)]
pub(super) struct AttachedFile {
    path: String,
    origin: AttachmentOrigin,
    state: AttachedState,
}

#[derive(Debug, Clone)]
enum AttachedState {
    Unread,
    /// Picture whose content was not needed yet.
    Recognized,
    Picture(Picture),
    /// Picture that is not shown to the model, for this reason.
    Withheld(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Picture {
    media_type: &'static str,
    base64: Arc<str>,
}

/// Content of an attached file.
#[derive(Debug, PartialEq, Eq)]
enum FileContent {
    NoPicture,
    /// Picture that was not read.
    Recognized,
    Picture(Picture),
}

impl AttachedFile {
    pub(super) fn new(path: &str, origin: AttachmentOrigin) -> AttachedFile {
        AttachedFile { path: path.to_owned(), origin, state: AttachedState::Unread }
    }

    /// Size within the budget of the conversation, in bytes.
    pub(super) fn size(&self) -> usize {
        if let AttachedState::Picture(_) = self.state { PICTURE_SIZE } else { 0 }
    }

    /// Returns true if the file must be read for the next request.
    fn needs_reading(&self, takes_images: bool) -> bool {
        match self.state {
            AttachedState::Unread => true,
            AttachedState::Recognized => takes_images,
            AttachedState::Picture(_) | AttachedState::Withheld(_) => false,
        }
    }
}

impl AgentConversation {
    /// Reads the attached files that were not read yet, and forgets those that are no pictures. An
    /// interrupt ends the reading.
    pub(super) async fn read_pictures(&mut self, workspace: &Path, takes_images: bool, context: &TurnContext) {
        for input in self.user_inputs() {
            for mut file in std::mem::take(&mut input.files) {
                if file.needs_reading(takes_images) {
                    match read_unless_stopped(workspace, &file.path, takes_images, context).await {
                        None => {}
                        Some(Ok(FileContent::NoPicture)) => continue,
                        Some(Ok(FileContent::Recognized)) => {
                            report_withheld(&file, TAKES_NO_IMAGES, context).await;
                            file.state = AttachedState::Recognized;
                        }
                        Some(Ok(FileContent::Picture(picture))) => file.state = AttachedState::Picture(picture),
                        Some(Err(reason)) => {
                            report_withheld(&file, &reason, context).await;
                            file.state = AttachedState::Withheld(reason);
                        }
                    }
                }
                input.files.push(file);
            }
        }
        self.limit_pictures();
    }

    /// Drops the oldest pictures until the conversation has at most `target` bytes.
    pub(super) fn drop_pictures(&mut self, target: usize) {
        let mut size = self.size();
        for file in self.user_inputs().flat_map(|input| &mut input.files) {
            if size <= target {
                return;
            }
            size -= file.size();
            file.leave_out();
        }
    }

    /// Keeps the newest pictures within the limits of a request.
    fn limit_pictures(&mut self) {
        let (mut count, mut bytes) = (0, 0);
        for file in self.user_inputs().rev().flat_map(|input| input.files.iter_mut().rev()) {
            if let AttachedState::Picture(picture) = &file.state {
                count += 1;
                bytes += picture.base64.len();
            }
            if count > PICTURES_COUNT || bytes > PICTURES_LIMIT {
                file.leave_out();
            }
        }
    }
}

impl AttachedFile {
    fn leave_out(&mut self) {
        if let AttachedState::Picture(_) = self.state {
            self.state = AttachedState::Withheld(LEFT_OUT.to_owned());
        }
    }
}

impl UserInput {
    /// Returns the parts of the input for a request: pictures, then the text. The text names each
    /// picture that the model cannot see, with the reason.
    pub(super) fn into_parts(self, takes_images: bool) -> Vec<UserPart> {
        let UserInput { mut text, files } = self;
        let mut parts = Vec::new();
        for AttachedFile { path, state, .. } in files {
            let reason = match state {
                AttachedState::Picture(Picture { media_type, base64 }) if takes_images => {
                    parts.push(UserPart::Image { media_type, base64 });
                    continue;
                }
                AttachedState::Unread => continue,
                AttachedState::Recognized | AttachedState::Picture(_) => TAKES_NO_IMAGES.to_owned(),
                AttachedState::Withheld(reason) => reason,
            };
            join(&mut text, &format!("[`{path}` is a picture that you cannot see: {reason}.]"));
        }
        parts.extend((!text.trim().is_empty()).then_some(UserPart::Text(text)));
        parts
    }
}

/// Tells the user why a picture of the message is not shown to the model.
async fn report_withheld(file: &AttachedFile, reason: &str, context: &TurnContext) {
    if file.origin == AttachmentOrigin::Message && matches!(file.state, AttachedState::Unread) {
        let detail = format!("the model does not see the picture `{}`: {reason}", file.path);
        let code = "picture_not_shown".to_owned();
        let kind = ObservationKind::Notice { code, detail, attempts: None, waited_ms: None };
        context.outgoing.event(None, Observation { kind, content: String::new() }).await;
    }
}

/// Reads an attached file. Returns `None` if an interrupt came first.
async fn read_unless_stopped(
    workspace: &Path,
    path: &str,
    whole: bool,
    context: &TurnContext,
) -> Option<Result<FileContent, String>> {
    let (root, file) = (workspace.to_owned(), workspace.join(path));
    tokio::select! {
        biased;
        () = context.stop.cancelled() => None,
        content = off_thread(move || read(&root, &file, whole)) => Some(content),
        () = clock::sleep(READ_TIMEOUT) => Some(Err("the file system did not answer".to_owned())),
    }
}

/// Reads a picture without following links out of the workspace. A file that is missing or cannot
/// be read is no picture: the model finds out when it opens the file.
fn read(workspace: &Path, file: &Path, whole: bool) -> Result<FileContent, String> {
    let (Ok(workspace), Ok(file)) = (fs::canonicalize(workspace), fs::canonicalize(file)) else {
        return Ok(FileContent::NoPicture);
    };
    if !file.starts_with(workspace) {
        return Err("its path leads out of the workspace".to_owned());
    }
    read_inside(&file, whole).unwrap_or(Ok(FileContent::NoPicture))
}

fn read_inside(file: &Path, whole: bool) -> io::Result<Result<FileContent, String>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut open = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(file)?;
    let metadata = open.metadata()?;
    let mut content = Vec::new();
    if metadata.is_file() {
        open.by_ref().take(16).read_to_end(&mut content)?;
    }
    let Some(media_type) = media_type(&content) else { return Ok(Ok(FileContent::NoPicture)) };
    if metadata.len() > PICTURE_LIMIT {
        let (size, limit) = (metadata.len(), PICTURE_LIMIT);
        return Ok(Err(format!("it has {size} bytes, and at most {limit} are sent")));
    }
    if !whole {
        return Ok(Ok(FileContent::Recognized));
    }
    open.take(PICTURE_LIMIT).read_to_end(&mut content)?;
    let base64 = BASE64_STANDARD.encode(content).into();
    Ok(Ok(FileContent::Picture(Picture { media_type, base64 })))
}

/// Returns the type of a picture by its first bytes, for the types that providers accept.
fn media_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::turn::UserMessage;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    #[test]
    fn type_is_recognized_by_content() {
        assert_eq!(media_type(PNG), Some("image/png"));
        assert_eq!(media_type(b"\xff\xd8\xff\xe0rest"), Some("image/jpeg"));
        assert_eq!(media_type(b"GIF89arest"), Some("image/gif"));
        assert_eq!(media_type(b"RIFF\0\0\0\0WEBPVP8 "), Some("image/webp"));
        for other in [&b"RIFF\0\0\0\0WAVEfmt "[..], b"<svg>", b"BM", b""] {
            assert_eq!(media_type(other), None, "{other:?}");
        }
    }

    #[test]
    fn picture_is_read_inside_workspace_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let (outside, workspace) = (dir.path().join("outside.png"), dir.path().join("work"));
        fs::create_dir(&workspace).expect("a directory");
        let at = |name: &str| workspace.join(name);
        for (file, content) in [(outside.clone(), PNG), (at("a.png"), PNG), (at("a.txt"), b"text"), (at("empty"), b"")]
        {
            fs::write(file, content).expect("a file");
        }
        symlink(&outside, at("out.png")).expect("a link");
        symlink("a.png", at("in.png")).expect("a link");
        let large = fs::File::create(at("large.png")).expect("a file");
        fs::write(at("large.png"), PNG).expect("a file");
        large.set_len(PICTURE_LIMIT + 1).expect("a sparse file");
        let picture = || FileContent::Picture(Picture { media_type: "image/png", base64: "iVBORw0KGgpyZXN0".into() });
        let read = |name: &str, whole| read(&workspace, &at(name), whole);
        assert_eq!(read("a.png", true), Ok(picture()));
        assert_eq!(read("in.png", true), Ok(picture()));
        assert_eq!(read("a.png", false), Ok(FileContent::Recognized));
        for name in ["a.txt", "empty", "none.png", "."] {
            assert_eq!(read(name, true), Ok(FileContent::NoPicture), "{name}");
        }
        for name in ["out.png", "../outside.png"] {
            assert_eq!(read(name, true), Err("its path leads out of the workspace".to_owned()), "{name}");
        }
        let reason = "it has 3932161 bytes, and at most 3932160 are sent";
        assert_eq!(read("large.png", true), Err(reason.to_owned()));
    }

    fn conversation_with_pictures(count: usize, bytes: usize) -> AgentConversation {
        let mut conversation = AgentConversation::default();
        for at in 0..count {
            let message = UserMessage { content: "see".into(), attachments: vec![format!("{at}.png")] };
            conversation.add_user_message(&message, AttachmentOrigin::Message);
        }
        for file in conversation.user_inputs().flat_map(|input| &mut input.files) {
            file.state = AttachedState::Picture(Picture { media_type: "image/png", base64: "A".repeat(bytes).into() });
        }
        conversation
    }

    /// Returns the number of pictures that a model receives, and the text beside them.
    fn sent(conversation: &mut AgentConversation, takes_images: bool) -> (usize, String) {
        let parts: Vec<UserPart> =
            conversation.user_inputs().flat_map(|input| std::mem::take(input).into_parts(takes_images)).collect();
        let text = parts.iter().filter_map(|part| match part {
            UserPart::Text(text) => Some(text.as_str()),
            UserPart::Image { .. } => None,
        });
        let text: String = text.collect();
        (parts.len() - usize::from(!text.is_empty()), text)
    }

    #[test]
    fn newest_pictures_within_limits_are_sent() {
        for (count, bytes, kept) in [(25, 4, PICTURES_COUNT), (8, PICTURES_LIMIT / 4, 4)] {
            let mut conversation = conversation_with_pictures(count, bytes);
            conversation.limit_pictures();
            let (pictures, text) = sent(&mut conversation, true);
            assert_eq!(pictures, kept);
            assert!(
                text.contains("[`0.png` is a picture that you cannot see: it was left out to save room.]"),
                "{text}"
            );
            assert!(!text.contains(&format!("[`{}.png` is", count - 1)), "{text}");
        }
    }

    #[test]
    fn old_pictures_are_dropped_before_texts() {
        let mut conversation = conversation_with_pictures(10, 4);
        let (size, texts) = (conversation.size(), conversation.size() - 10 * PICTURE_SIZE);
        conversation.fit(size - 1);
        assert!(conversation.size() < size && (conversation.size() - texts).is_multiple_of(PICTURE_SIZE));
        let (pictures, text) = sent(&mut conversation, true);
        assert!((1..10).contains(&pictures), "{pictures}");
        assert!(text.contains("[`0.png` is a picture") && !text.contains("[`9.png` is a picture"), "{text}");
    }

    #[test]
    fn model_without_images_reads_the_reason() {
        let (pictures, text) = sent(&mut conversation_with_pictures(1, 4), false);
        assert_eq!(pictures, 0);
        assert!(text.ends_with("[`0.png` is a picture that you cannot see: the model takes no images.]"), "{text}");
    }
}

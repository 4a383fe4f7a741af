//! Attached pictures reach a model that takes images; otherwise model and user read why not.

use greenroom_protocol::link::{AgentCommand, ProviderApi, WorkOutcome};
use serde_json::{Value, json};

use crate::{
    agent::AgentProcess,
    gateway::{ScriptedAnswer::Complete, text},
    session::AgentTestSession,
};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

/// Sends a message with these attachments, and returns the user's message in the request.
async fn ask_with(api: ProviderApi, takes_images: bool, attachments: &[&str]) -> (AgentTestSession, Value) {
    let mut agent = AgentProcess::start(vec![Complete(vec![text("Done.")])]);
    (agent.settings.api, agent.settings.takes_images) = (api, takes_images);
    let session = AgentTestSession::with_history(agent, Vec::new()).await;
    std::fs::write(session.agent.file("a.png"), PNG).expect("a file");
    std::fs::write(session.agent.file("notes.txt"), "text").expect("a file");
    std::fs::write(session.agent.dir.path().join("secret.png"), PNG).expect("a file");
    std::os::unix::fs::symlink("../secret.png", session.agent.file("link.png")).expect("a link");
    let mut session = session;
    let attachments = attachments.iter().map(|path| (*path).to_owned()).collect();
    session.send_command(AgentCommand::Prompt { turn: "t1".into(), content: "look".into(), attachments }).await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    let request = session.agent.gateway.requests().remove(0);
    let messages = request["messages"].as_array().expect("messages");
    let user = messages.iter().find(|message| message["role"] == "user").expect("the user's message").clone();
    (session, user)
}

#[tokio::test]
async fn picture_is_sent_as_image_block() {
    let (session, user) = ask_with(ProviderApi::Anthropic, true, &["a.png", "notes.txt"]).await;
    let source = json!({ "type": "base64", "media_type": "image/png", "data": "iVBORw0KGgpyZXN0" });
    assert_eq!(user["content"][0], json!({ "type": "image", "source": source }));
    assert_eq!(user["content"].as_array().map(Vec::len), Some(2));
    assert_eq!(session.events(), ["message _: Done."]);
    let (_, user) = ask_with(ProviderApi::Openai, true, &["a.png"]).await;
    assert_eq!(user["content"][0]["image_url"]["url"], "data:image/png;base64,iVBORw0KGgpyZXN0");
}

#[tokio::test]
async fn model_and_user_read_why_a_picture_is_not_shown() {
    for (takes_images, name, reason) in [
        (false, "a.png", "the model takes no images"),
        (true, "link.png", "its path leads out of the workspace"),
        (true, "../secret.png", "its path leads out of the workspace"),
    ] {
        let (session, user) = ask_with(ProviderApi::Openai, takes_images, &[name]).await;
        let content = user["content"].as_str().expect("a text alone");
        let expected = format!("[`{name}` is a picture that you cannot see: {reason}.]");
        assert!(content.ends_with(&expected), "{content}");
        let told = format!("notice _: the model does not see the picture `{name}`: {reason}");
        assert_eq!(session.events(), [told.as_str(), "message _: Done."]);
    }
}

#[tokio::test]
async fn other_files_are_only_named() {
    let (session, user) = ask_with(ProviderApi::Openai, false, &["notes.txt", "none.png"]).await;
    assert_eq!(user["content"], "look\n\n[Attached files, in the workspace: `notes.txt`, `none.png`]");
    assert_eq!(session.events(), ["message _: Done."]);
}

//! The main use case without a mouse.

use fantoccini::key::Key;
use greenroom_protocol::link::AgentCommand;
use serde_json::json;

use greenroom_testkit::chromium::{TestBrowser, devtools};

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn main_use_case_by_keyboard() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "60"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;

    page.css("textarea[aria-label=Task]").await;
    page.until("the field has the focus", "document.activeElement.getAttribute('aria-label') === 'Task'").await;
    page.type_text("write a bash script that prints hello").await;
    page.key(Key::Enter).await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    page.until("the message field has the focus", "document.activeElement.getAttribute('aria-label') === 'Message'")
        .await;

    // Shift+Enter breaks the line, Enter sends.
    page.type_text("slow: 4000").await;
    page.key(Key::Enter).await;
    page.says("1 2 3").await;
    page.type_text("one line").await;
    page.chord(&[Key::Shift], Key::Enter.into()).await;
    page.type_text("another").await;
    let text = page.js("return document.activeElement.value", &[]).await;
    assert_eq!(text, "one line\nanother");
    page.key(Key::Enter).await;
    page.shows("queued").await;

    // The queued message is removed, and the turn is stopped.
    page.tab_to("Remove").await;
    page.key(Key::Enter).await;
    page.until("the queue is empty", "!document.querySelector('.queue')").await;
    page.key(Key::Escape).await;
    page.says("Interrupted").await;
    page.state("Ready").await;

    // The workspace, opened while the user types: arrow keys move between its tabs and move its
    // divider.
    page.chord(&[Key::Control], 'j').await;
    page.css("[role=tab]").await;
    page.js("document.querySelector('[aria-label=Message]').focus()", &[]).await;
    page.tab_to("Plan").await;
    page.key(Key::Right).await;
    page.until(
        "the next tab",
        "document.querySelector('[role=tab][aria-selected=true]').textContent.startsWith('Commands')",
    )
    .await;
    page.tab_to("Command to run").await;
    page.type_text("echo by hand").await;
    page.key(Key::Enter).await;
    page.until("its output", "document.querySelector('.screen')?.textContent.includes('by hand')").await;
    // A begun command is still there when the workspace opens again. Typing anywhere in it
    // continues the command.
    page.type_text("ls").await;
    page.chord(&[Key::Control], 'j').await;
    page.until("it is closed", "!document.querySelector('[role=tab]')").await;
    page.chord(&[Key::Control], 'j').await;
    page.tab_to("Commands").await;
    page.type_text("a").await;
    let text = page.js("return document.activeElement.value", &[]).await;
    assert_eq!(text, "lsa");
    page.js("document.activeElement.blur()", &[]).await;
    let divider = "document.querySelector('[role=separator]')";
    let before = page.js(&format!("return {divider}.getAttribute('aria-valuenow')"), &[]).await;
    page.tab_to("Divider").await;
    page.key(Key::Left).await;
    page.until(
        "it moved",
        &format!("{divider}.getAttribute('aria-valuenow') !== '{}'", before.as_str().expect("a number")),
    )
    .await;

    page.chord(&[Key::Control], 'j').await;
    page.until("the workspace is closed", &format!("!{divider}")).await;

    // Typing without a focused element writes a message.
    page.js("document.activeElement.blur()", &[]).await;
    page.type_text("now what?").await;
    let text = page.js("return document.activeElement.value", &[]).await;
    assert_eq!(text, "now what?");
    page.chord(&[Key::Control, Key::Shift], 'O').await;
    page.css("textarea[aria-label=Task]").await;
    page.client.back().await.expect("the session");
    page.until(
        "what was written is still there",
        "document.querySelector('.composer textarea')?.value === 'now what?'",
    )
    .await;

    // The palette, and from it the sheet of shortcuts. Keys typed before the palette has opened
    // belong to it, Enter too.
    page.chord(&[Key::Control], 'k').await;
    page.type_text("keyboard").await;
    page.key(Key::Enter).await;
    page.shows("Use single-key shortcuts").await;
    page.key(Key::Escape).await;
    page.until("the sheet is closed", "!document.querySelector('dialog[open]')").await;

    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn remaining_actions_by_keyboard() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "60"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.css("textarea[aria-label=Task]").await;
    page.type_text("slow: 4000").await;
    page.key(Key::Enter).await;
    page.says("1 2 3").await;
    page.until("the message field has the focus", "document.activeElement.getAttribute('aria-label') === 'Message'")
        .await;

    // Steered in the middle, paused, resumed, and there after a reload.
    page.type_text("say it in one word").await;
    page.chord(&[Key::Control], Key::Enter.into()).await;
    page.shows("say it in one word").await;
    page.tab_to("Pause").await;
    page.key(Key::Enter).await;
    page.state("Paused").await;
    page.tab_to("Resume").await;
    page.key(Key::Enter).await;
    page.shows_no_more("Resume to continue").await;
    page.key(Key::Escape).await;
    page.says("Interrupted").await;
    // Copy, Retry and Fork load after the page.
    let is_over = "document.querySelectorAll('.row.turn .link').length === 3";
    page.until("the turn has its end", is_over).await;
    let text = "return document.querySelector('[role=log]').innerText";
    let before = page.js(text, &[]).await;
    page.client.refresh().await.expect("the page loads again");
    page.until("it is there again", is_over).await;
    assert_eq!(page.js(text, &[]).await, before);

    // Renamed, found, exported, archived and restored.
    let act = async |entry: &str| {
        page.tab_to("Actions for").await;
        page.key(Key::Enter).await;
        page.until("the menu has the focus", "document.activeElement.closest('.popover-panel')").await;
        page.tab_to(entry).await;
        page.key(Key::Enter).await;
    };
    act("Rename…").await;
    page.until("its field has the focus", "document.activeElement.getAttribute('aria-label') === 'Title'").await;
    page.chord(&[Key::Control], 'a').await;
    page.type_text("By hand").await;
    page.key(Key::Enter).await;
    page.until("the new title", "document.querySelector('.session-header h1').textContent === 'By hand'").await;
    page.until("the question is gone", "!document.querySelector('dialog[open]')").await;
    let focused = page.focused().await;
    assert!(focused.starts_with("Actions for"), "the focus is on `{focused}` instead of its earlier place");
    page.tab_to("Search the sessions").await;
    page.type_text("nothing like it").await;
    page.shows("No title matches").await;
    page.chord(&[Key::Control], 'a').await;
    page.type_text("by h").await;
    page.css(".session-item").await;
    page.chord(&[Key::Control], 'a').await;
    page.key(Key::Backspace).await;
    act("Export as Markdown").await;
    let exported = browser.downloaded("md").await;
    assert!(exported.contains("By hand") && exported.contains("say it in one word"), "{exported}");
    act("Archive").await;
    page.until("it leaves the list", "document.querySelectorAll('.session-item').length === 0").await;
    act("Unarchive").await;
    page.css(".session-item").await;

    // The palette offers the same actions, and the focus returns to its place.
    page.tab_to("Message").await;
    page.chord(&[Key::Control], 'k').await;
    page.type_text("rename").await;
    page.key(Key::Enter).await;
    page.chord(&[Key::Control], 'a').await;
    page.type_text("By palette").await;
    page.key(Key::Enter).await;
    page.until("the new title", "document.querySelector('.session-header h1').textContent === 'By palette'").await;
    page.until("the question is gone", "!document.querySelector('dialog[open]')").await;
    assert_eq!(page.focused().await, "Message");

    // One approval request is cancelled, another one answered.
    act("Delete…").await;
    page.shows("This cannot be undone").await;
    page.key(Key::Escape).await;
    page.until("the question is gone", "!document.querySelector('dialog[open]')").await;
    act("End…").await;
    page.shows("End this session?").await;
    page.key(Key::Tab).await;
    assert_eq!(page.focused().await, "End");
    page.key(Key::Enter).await;
    page.shows("This session has ended and is read-only").await;
    page.is_quiet().await;
    browser.close().await;
}

/// After a press in the dock its buttons disappear, and the next key belongs to the field.
#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn field_gets_focus_after_an_approval() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "By keyboard" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message("go").await;
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    let writes = "document.activeElement.getAttribute('aria-label') === 'Message'";

    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.is_asked().await;
    page.tab_to("Deny").await;
    page.key(Key::Enter).await;
    page.shows_no_more("Allow this action?").await;
    page.until("the message field has the focus", writes).await;
    let AgentCommand::Answer { .. } = agent.command().await else { panic!("an answer comes") };

    page.type_text("and then").await;
    page.key(Key::Enter).await;
    page.shows("queued").await;
    // Its button lies behind that of the first message.
    page.tab_to("Edit and resend").await;
    page.key(Key::Tab).await;
    page.tab_to("Edit").await;
    page.key(Key::Enter).await;
    page.until("it can be changed", "document.activeElement.getAttribute('aria-label') === 'Queued message'").await;
    page.key(Key::Escape).await;
    page.until("the message field has the focus", writes).await;
    page.tab_to("Remove").await;
    page.key(Key::Enter).await;
    page.until("the message field has the focus", writes).await;
    page.until("the queue is empty", "!document.querySelector('.queue')").await;
    page.is_quiet().await;
    browser.close().await;
}

/// Keys of an input method: Enter belongs to it until the text is chosen.
#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn input_method_keeps_its_enter() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.css("textarea[aria-label=Task]").await;
    let composes = async |text: &str| {
        let composed =
            json!({ "text": text, "selectionStart": text.chars().count(), "selectionEnd": text.chars().count() });
        devtools(&browser.client, "Input.imeSetComposition", composed).await;
    };
    for text in ["に", "にほ", "日本"] {
        composes(text).await;
    }
    page.until("it is composed", "document.activeElement.value === '日本'").await;
    // Chromium reports composition as `isComposing`; Safari as key code 229, after the composition
    // is over.
    for enter in [json!({ "isComposing": true }), json!({ "keyCode": 229 })] {
        let taken = "const event = new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true, ...arguments[0] });
            return document.activeElement.dispatchEvent(event)";
        assert_eq!(page.js(taken, &[enter]).await, true, "the page leaves it alone");
    }
    assert_eq!(page.js("return document.activeElement.value", &[]).await, "日本", "it is not sent yet");
    devtools(&browser.client, "Input.insertText", json!({ "text": "日本語で" })).await;
    page.until("the text is chosen", "document.activeElement.value === '日本語で'").await;
    page.key(Key::Enter).await;
    page.says("日本語で").await;
    page.state("Ready").await;
    page.is_quiet().await;
    browser.close().await;
}

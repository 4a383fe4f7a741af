//! Focus: its place after each step, and the effect of keys there.

use fantoccini::key::Key;
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::json;

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

const WRITES: &str = "document.activeElement.getAttribute('aria-label') === 'Message'";

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn escape_closes_panels_before_stopping_the_turn() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "At work" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message("go").await;
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    page.state("Working").await;

    // A click on plain text leaves no element focused; Escape still closes the panel.
    page.click("About this session").await;
    page.css(".facts dd").await.click().await.expect("there is text");
    page.until("nothing has the focus", "document.activeElement === document.body").await;
    page.key(Key::Escape).await;
    page.until("the panel is closed", "!document.querySelector('.popover-panel')").await;
    assert_eq!(page.focused().await, "About this session");
    page.state("Working").await;
    assert_eq!(server.rest.session(&session).await["state"], "running");

    page.open_workspace().await;
    page.click("Events").await;

    // In a field, Escape belongs to that field. A ticked checkbox has no use for it.
    page.css("[aria-label='Search the sessions']").await.click().await.expect("it takes the focus");
    page.key(Key::Escape).await;
    page.state("Working").await;
    page.click("Deltas").await;
    page.until("the box has the focus", "document.activeElement.type === 'checkbox'").await;
    page.key(Key::Escape).await;
    let AgentCommand::Cancel {} = agent.command().await else { panic!("it is stopped") };
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    page.state("Ready").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn work_beside_conversation_keeps_focus_and_shows_requests() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Beside it" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message("go").await;
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    agent.event(Some("r"), json!({ "action": "run", "args": { "command": "make" } })).await;
    page.says("make").await;

    // A plan arrives while the user types a command.
    page.open_workspace().await;
    page.tab_to("Command to run").await;
    page.type_text("git st").await;
    let extras = json!({ "path": "PLAN.md", "items": [{ "text": "Look", "done": false }] });
    agent.event(None, json!({ "observation": "plan", "content": "- [ ] Look\n", "extras": extras })).await;
    page.until("its tab says so", "document.querySelector('#tab-plan .count')?.textContent === '0/1'").await;
    page.type_text("atus").await;
    assert_eq!(page.js("return document.activeElement.value", &[]).await, "git status");

    // With the conversation folded away, an approval request is still visible.
    page.click("Hide the conversation").await;
    page.until("the log is hidden", "!document.querySelector('[role=log]').checkVisibility()").await;
    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.until("it is asked", "document.querySelector('.confirm')?.checkVisibility()").await;
    page.is_asked().await;
    page.click("Allow once").await;
    let AgentCommand::Answer { .. } = agent.command().await else { panic!("an answer comes") };

    // If a pressed button disappears, the message field gets the focus.
    for button in ["Close the workspace", "Pause", "Resume"] {
        page.tab_to(button).await;
        page.key(Key::Enter).await;
        page.until("the message field has the focus", WRITES).await;
    }

    // Not so if a draft has been begun that a stray Enter would send.
    page.type_text("half a").await;
    page.tab_to("Pause").await;
    page.key(Key::Enter).await;
    page.until("the button is gone", "!document.activeElement.matches('button, textarea')").await;
    page.key(Key::Enter).await;
    assert_eq!(page.js("return document.querySelector('.composer textarea').value", &[]).await, "half a");
    page.state("Paused").await;
    page.tab_to("Resume").await;
    page.key(Key::Enter).await;
    page.state("Running").await;

    // The palette saves a file as the menu does.
    page.chord(&[Key::Control], 'k').await;
    page.type_text("export as markdown").await;
    page.key(Key::Enter).await;
    assert!(browser.downloaded("md").await.contains("Beside it"));
    page.is_quiet().await;
    browser.close().await;
}

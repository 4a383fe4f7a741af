//! Two tabs on one session agree.

use fantoccini::key::Key;
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::json;

use greenroom_testkit::chromium::{TestBrowser, devtools};

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn two_tabs_agree_on_queue_state_and_approvals() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Two tabs" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    let first = page.client.window().await.expect("a window");
    let second = page.client.new_window(true).await.expect("a tab").handle;
    page.client.switch_to_window(second.clone()).await.expect("the tab is there");
    page.go(&format!("{}/sessions/{session}", server.rest.link().split("/?").next().expect("an origin"))).await;
    page.state("Ready").await;
    let to = async |window| page.client.switch_to_window(window).await.expect("the tab is there");

    // A message from one tab starts both. A second message waits in both, and is removed in both.
    page.message("first").await;
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    page.message("second").await;
    page.shows("queued").await;
    to(first.clone()).await;
    page.says("first").await;
    page.shows("queued").await;
    page.click("Remove").await;
    page.until("the queue is empty", "!document.querySelector('.queue')").await;
    to(second.clone()).await;
    page.until("the queue is empty here too", "!document.querySelector('.queue')").await;

    // An approval request shows in both tabs. Answered in one, it is closed in both.
    let options = ["allow", "allow_always", "deny"];
    let extras = json!({ "request": "q1", "action": "rm -r build", "risk": "high", "options": options });
    let question = json!({ "observation": "confirm", "content": "It deletes what it did not make.", "extras": extras });
    agent.event(None, question).await;
    page.shows("Allow this action?").await;
    page.shot("confirm").await;
    page.until("the title says so", "document.title.startsWith('(1)')").await;
    to(first.clone()).await;
    page.shows("rm -r build").await;
    page.state("Waiting for you").await;
    page.is_asked().await;
    page.css("input[aria-label='Reason']").await.send_keys("not yet").await.expect("the field takes text");
    page.click("Deny").await;
    page.shows_no_more("Allow this action?").await;
    let AgentCommand::Answer { reason, .. } = agent.command().await else { panic!("an answer comes") };
    assert_eq!(reason.as_deref(), Some("not yet"));
    to(second).await;
    page.shows_no_more("Allow this action?").await;
    page.says("Denied by Chrome on Linux: not yet").await;
    page.says("rm -r build").await;
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    page.state("Ready").await;
    to(first).await;
    page.state("Ready").await;
    page.is_quiet().await;
    browser.close().await;
}

/// Replaces the browser's own notifications, which need a person's permission.
const NOTIFICATIONS: &str = "window.shown = []; window.Notification = class {
    static permission = 'granted';
    static requestPermission = async () => 'granted';
    constructor(title) { window.shown.push(title); }
}";

/// Opens the page of a server with a session `Far away`, and switches notifications on.
pub(crate) async fn page_with_notifications<'a>(browser: &'a TestBrowser, server: &TestServer) -> BrowserPage<'a> {
    let source = json!({ "source": NOTIFICATIONS });
    devtools(&browser.client, "Page.addScriptToEvaluateOnNewDocument", source).await;
    let page = BrowserPage::signed_in(browser, server).await;
    page.shows("Far away").await;
    page.click("Settings").await;
    page.click("Notifications").await;
    page.until("it is on", "document.querySelector('.settings [aria-pressed=true][title*=waits]')").await;
    page
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn hidden_tab_gets_notifications() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Far away" })).await;
    let browser = TestBrowser::open().await;
    let page = page_with_notifications(&browser, &server).await;
    page.key(Key::Escape).await;
    let message = json!({ "content": "go" });
    server.rest.post(&format!("/api/sessions/{session}/messages"), message).await.expect(202);
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    page.until("the list says so", "document.querySelector('.session-item .dot-working')").await;
    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.until("a notification", "window.shown.length === 1").await;
    page.until("the tab says so", "document.title.startsWith('(1)')").await;
    page.until("its icon too", "document.querySelector('link[rel=icon]').href.endsWith('waiting.svg')").await;
    page.shows("waits for you").await;
    let answer = json!({ "action": "confirm", "args": { "request": "q1", "decision": "allow" } });
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send(answer).await;
    page.until("it works on", "document.querySelector('.session-item .dot-working')").await;
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    page.until("a second notification", "window.shown.length === 2").await;
    assert_eq!(page.js("return window.shown", &[]).await, json!(["Far away waits for you", "Far away is done"]));
    page.is_quiet().await;
    browser.close().await;
}

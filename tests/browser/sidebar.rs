//! List of sessions, hidden on a wide screen.

use fantoccini::key::Key;
use greenroom_protocol::link::AgentCommand;
use serde_json::json;

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

const IS_AWAY: &str = "!document.querySelector('.sidebar').checkVisibility({ visibilityProperty: true })";

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn hidden_sidebar_stays_hidden_and_signals_waiting_sessions() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (asking, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Asking" })).await;
    let other = server.rest.create(json!({ "title": "Another" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{other}")).await;
    page.state("Ready").await;

    page.click("Hide the session list").await;
    page.until("the list is hidden", IS_AWAY).await;
    assert_eq!(page.focused().await, "Show the session list");
    page.client.refresh().await.expect("the page loads again");
    page.state("Ready").await;
    page.until("it still is", IS_AWAY).await;
    // The served page has the mark already: the first picture need not wait for the script.
    let script = "return fetch(location.href).then((answer) => answer.text()).then((text) => /<html[^>]* data-sidebar=\"away\"/.test(text))";
    assert_eq!(page.js(script, &[]).await, json!(true));

    server.rest.post(&format!("/api/sessions/{asking}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.css("[aria-label='Show the session list, 1 waits for you'] .attention").await;
    page.shot("list-away").await;

    // Every page shows the list again, by its button and by a key.
    let pages = [
        ("/sessions", "What should be done?"),
        ("/admin", "Actors and sandboxes"),
        ("/api/docs", "REST API"),
        ("/sessions?replay", "Open a recording"),
        ("/sessions/01J00000000000000000000000", "Session not found"),
    ];
    for (path, says) in pages {
        page.visit(path).await;
        page.shows(says).await;
        page.click("Show the session list").await;
        page.until("it is back", &format!("!({IS_AWAY})")).await;
        page.chord(&[Key::Control], 'b').await;
        page.until("the list is hidden again", IS_AWAY).await;
    }
    // A narrow screen shows the list over the page, as before.
    page.size(390, 844).await;
    page.until("the list is hidden", IS_AWAY).await;
    page.click("Show the session list").await;
    page.until("it is open", &format!("!({IS_AWAY})")).await;
    page.is_quiet().await;
    browser.close().await;
}

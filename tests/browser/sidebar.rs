//! The list of sessions, put away on a wide screen.

use fantoccini::key::Key;
use greenroom_protocol::link::AgentCommand;
use serde_json::json;

use super::{chromium::TestBrowser, page::BrowserPage};
use crate::harness::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

const IS_AWAY: &str = "!document.querySelector('.sidebar').checkVisibility({ visibilityProperty: true })";

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn put_away_it_stays_so_and_says_that_somebody_is_waited_for() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (asking, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Asking" })).await;
    let other = server.rest.create(json!({ "title": "Another" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{other}")).await;
    page.state("Ready").await;

    page.click("Hide the session list").await;
    page.until("it is out of sight", IS_AWAY).await;
    assert_eq!(page.focused().await, "Show the session list");
    page.client.refresh().await.expect("the page loads again");
    page.state("Ready").await;
    page.until("it still is", IS_AWAY).await;
    // The page says so itself: its first picture need not wait for the script.
    let told = "return fetch(location.href).then((answer) => answer.text()).then((text) => /<html[^>]* data-sidebar=\"away\"/.test(text))";
    assert_eq!(page.js(told, &[]).await, json!(true));

    server.rest.post(&format!("/api/sessions/{asking}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.css("[aria-label='Show the session list, 1 waits for you'] .attention").await;
    page.shot("list-away").await;

    // Every page brings it back, by its button and by a key.
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
        page.until("it is put away again", IS_AWAY).await;
    }
    // A narrow screen has it over the page, as ever.
    page.size(390, 844).await;
    page.until("it is not in the way", IS_AWAY).await;
    page.click("Show the session list").await;
    page.until("it is open", &format!("!({IS_AWAY})")).await;
    page.is_quiet().await;
    browser.close().await;
}

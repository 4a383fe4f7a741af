//! Two tabs on one session agree.

use greenroom_protocol::link::{Command, Outcome, Report};
use serde_json::json;

use super::{chromium::Browser, page::Page};
use crate::harness::{
    driver::Driver,
    puppet::Puppet,
    server::{Options, Server},
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn two_tabs_agree_about_queue_state_and_confirmations() {
    let server = Server::start(Options::new(Driver::Process)).await;
    let session = server.rest.create(json!({ "title": "Two tabs" })).await;
    server.rest.until_state(&session, "idle").await;
    let mut agent = Puppet::take_over(&server, &session).await;
    let browser = Browser::open().await;
    let page = Page::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    let first = page.client.window().await.expect("a window");
    let second = page.client.new_window(true).await.expect("a tab").handle;
    page.client.switch_to_window(second.clone()).await.expect("the tab is there");
    page.go(&format!("{}/sessions/{session}", server.rest.link().split("/?").next().expect("an origin"))).await;
    page.state("Ready").await;
    let to = async |window| page.client.switch_to_window(window).await.expect("the tab is there");

    // A message from one starts both; a second one waits in both, and is taken away in both.
    page.message("first").await;
    let Command::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    page.message("second").await;
    page.shows("queued").await;
    to(first.clone()).await;
    page.says("first").await;
    page.shows("queued").await;
    page.click("Remove").await;
    page.until("the queue is empty", "!document.querySelector('.queue')").await;
    to(second.clone()).await;
    page.until("the queue is empty here too", "!document.querySelector('.queue')").await;

    // A question stands in both; answered in one, it is closed in both.
    let options = ["allow", "allow_always", "deny"];
    let extras = json!({ "request": "q1", "action": "rm -r build", "risk": "high", "options": options });
    let question = json!({ "observation": "confirm", "content": "It deletes what it did not make.", "extras": extras });
    agent.event(None, question).await;
    page.shows("May it do this?").await;
    page.shot("confirm").await;
    page.until("the title says so", "document.title.startsWith('(1)')").await;
    to(first.clone()).await;
    page.shows("rm -r build").await;
    page.state("Waiting for you").await;
    page.css("input[aria-label='Why not']").await.send_keys("not yet").await.expect("the field takes text");
    page.click("Deny").await;
    page.shows_no_more("May it do this?").await;
    let Command::Answer { reason, .. } = agent.command().await else { panic!("an answer comes") };
    assert_eq!(reason.as_deref(), Some("not yet"));
    to(second).await;
    page.shows_no_more("May it do this?").await;
    page.says("You denied it").await;
    agent.report(Report::TurnEnded { turn, outcome: Outcome::Done }).await.expect("the server listens");
    page.state("Ready").await;
    to(first).await;
    page.state("Ready").await;
    page.is_quiet().await;
    browser.close().await;
}

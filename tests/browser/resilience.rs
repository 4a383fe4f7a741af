//! An open page while the server dies, returns, or rejects its token.

use fantoccini::key::Key;
use greenroom_protocol::link::AgentCommand;
use rustix::process::Signal;
use serde_json::json;

use greenroom_testkit::chromium::{TestBrowser, devtools};

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::{ScriptedModel, ScriptedRule},
    puppet::PuppetAgent,
    server::{TestServer, TestServerHome, TestServerOptions},
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn page_survives_server_kill() {
    let model = ScriptedModel::play("work");
    // The server returns at the same address.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound").port();
    let options = TestServerOptions::anthropic(TestDriver::Process, &model).bind(&format!("127.0.0.1:{port}"));
    let server = TestServer::start(options).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("say something").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("All right.").await;
    page.state("Ready").await;
    page.message("tick into a file").await;
    page.state("Running").await;
    page.css("textarea[aria-label=Message]").await.send_keys("half a thought").await.expect("the field takes text");

    let killed = server.kill9().await;
    page.shows("Connection lost").await;
    page.says("All right.").await;
    let draft = "return document.querySelector('textarea[aria-label=Message]').value";
    assert_eq!(page.js(draft, &[]).await, "half a thought");
    page.shot("lost").await;

    let server = killed.restart().await;
    page.until("it is back", "/Caught up, \\d+ event|Connected again/.test(document.body.innerText)").await;
    page.state("Running").await;
    server.rest.post(&format!("/api/sessions/{session}/interrupt"), json!({})).await.expect(200);
    page.says("Interrupted").await;
    page.state("Ready").await;
    assert_eq!(page.js(draft, &[]).await, "half a thought");
    let twice = "const keys = [...document.querySelectorAll('[role=log] .row')].map((row) => row.innerText);
        return keys.filter((text) => text === 'say something').length";
    assert_eq!(page.js(twice, &[]).await, 1, "nothing came twice");

    // A draft outlives the page, too.
    page.client.refresh().await.expect("the page loads again");
    page.says("Interrupted").await;
    assert_eq!(page.js(draft, &[]).await, "half a thought");

    // After the token is replaced, the page shows it and names the way out.
    server.renew_token().await;
    page.shows("Open the link that greenroom printed").await;
    page.shot("signed-out").await;
    page.is_quiet().await;
    browser.close().await;
}

/// New events are announced, and the reader's position stays.
#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn reading_position_stays_while_events_arrive() {
    let paragraph = "Some words of a paragraph.\n\n".to_owned();
    let long = ScriptedRule {
        when: Some("long".into()),
        say: Some(paragraph),
        times: 300,
        every_ms: 3,
        ..ScriptedRule::default()
    };
    let model = ScriptedModel::with(vec![
        long,
        ScriptedRule { say: Some("All right.".into()), times: 1, ..ScriptedRule::default() },
    ]);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("long").await;
    page.visit(&format!("/sessions/{session}")).await;
    let log = "document.querySelector('[role=log]')";
    page.until("the log is scrollable", &format!("{log}?.scrollHeight > {log}?.clientHeight + 600")).await;
    page.js(&format!("{log}.scrollTop = 40; {log}.dispatchEvent(new Event('scroll'))"), &[]).await;
    page.shows("Latest").await;
    let before = page.js(&format!("return [{log}.scrollTop, {log}.scrollHeight]"), &[]).await;
    page.state("Ready").await;
    let after = page.js(&format!("return [{log}.scrollTop, {log}.scrollHeight]"), &[]).await;
    assert_eq!(before[0], after[0], "the reading position moved");
    assert!(after[1].as_f64() > before[1].as_f64(), "no new row arrived: {before} {after}");
    page.shows("New events").await;
    page.click("New events").await;
    let at_its_end = format!("{log}.scrollHeight - {log}.scrollTop - {log}.clientHeight < 48");
    page.until("its end", &at_its_end).await;
    // The end also stays in view when the window is resized.
    page.size(700, 600).await;
    page.until("its end", &at_its_end).await;
    page.shows_no_more("Latest").await;
    page.is_quiet().await;
    browser.close().await;
}

/// A session longer than the mounted part: each new row replaces a row at the other end.
#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn end_of_long_session_stays_in_view() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Long" })).await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    // Higher than the distance that still counts as the end.
    let say = |n: usize| json!({ "observation": "message", "content": format!("Row {n}.\n\n- one\n- two\n- three"), "extras": {} });
    for n in 0..200 {
        agent.event(None, say(n)).await;
    }
    agent.until_acknowledged().await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("Row 199.").await;
    page.until("the rows are mounted", "document.querySelector('.earlier')?.hidden === false").await;
    for n in 200..220 {
        agent.event(None, say(n)).await;
        page.says(&format!("Row {n}.")).await;
        let at_its_end =
            "(log => log.scrollHeight - log.scrollTop - log.clientHeight < 48)(document.querySelector('[role=log]'))";
        page.until("its end is in sight", at_its_end).await;
    }
    page.shows_no_more("New events").await;
    page.is_quiet().await;
    browser.close().await;
}

/// A suspended server sends nothing about it: the page notices only its silence.
#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn silent_connection_is_detected_and_restored() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.create(json!({ "title": "Asleep" })).await;
    server.rest.until_state(&session, "idle").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    server.signal(Signal::STOP);
    page.shows("Connection lost").await;
    server.signal(Signal::CONT);
    page.until("it is back", "/Caught up|Connected again/.test(document.body.innerText)").await;
    page.message("run: echo awake").await;
    page.says("The command has ended").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn full_or_failed_disk_is_shown_and_unsent_text_kept() {
    let Some(home) = TestServerHome::on_a_disk() else {
        eprintln!("skipped: mounting a file system needs root");
        return;
    };
    let server = TestServer::start_in(home, TestServerOptions::new(TestDriver::Process)).await;
    let disk = server.disk().expect("the data are on a disk of their own");
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("write a bash script that prints hello").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;

    disk.fill();
    // More text than fits into the last block of the disk.
    let pasted = "const field = document.querySelector('textarea[aria-label=Message]');
        field.focus();
        document.execCommand('insertText', false, arguments[0])";
    page.js(pasted, &[json!("what is in there? ".repeat(600))]).await;
    page.key(Key::Enter).await;
    page.shows("No space left on device").await;
    page.shot("full-disk").await;
    disk.make_room();
    let ready = || async { server.rest.get("/readyz").await.status == 200 };
    eventually("the server to be ready", ready).await;
    page.state("Ready").await;
    page.click("Send again").await;
    page.until("its answer", "document.querySelectorAll('.row.notice.good').length >= 2").await;
    page.until("no notice any more", "!document.querySelector('.problem')").await;
    page.state("Ready").await;

    disk.fail();
    page.message("and now?").await;
    page.shows("Read-only file system").await;
    // A new client sees the existing events, and the reason for the missing ones.
    page.client.refresh().await.expect("the page loads again");
    page.says("(Played by the demo model.)").await;
    page.shows("Read-only file system").await;
    page.shot("failed-disk").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn lazy_bundle_loads_once_it_is_reachable() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    devtools(&browser.client, "Network.enable", json!({})).await;
    devtools(&browser.client, "Network.setBlockedURLs", json!({ "urls": ["*/part-lazyBundle-*"] })).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.css("[aria-label='Open the workspace']").await.click().await.expect("it opens");
    page.css(".workspace .skeleton").await;
    devtools(&browser.client, "Network.setBlockedURLs", json!({ "urls": [] })).await;
    page.css("[role=tab]").await;
    browser.close().await;
}

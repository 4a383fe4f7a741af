//! Forks: edit and resend of a message, a fork from the end of a turn, the tree, and the ways back.

use fantoccini::key::Key;
use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};
use serde_json::{Value, json};

use super::{axe, page::BrowserPage};

const TASK: &str = "write a bash script that prints hello";

/// Opens a new page on a session that has ended one turn. Returns the id of the session.
async fn open_after_one_turn(server: &TestServer, page: &BrowserPage<'_>) -> String {
    let session = server.rest.start(TASK).await;
    server.rest.until_state(&session, "idle").await;
    page.size(1440, 900).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("(Played by the demo model.)").await;
    session
}

/// Waits until the page shows another session than this one. Returns its session object.
async fn forked_from(server: &TestServer, page: &BrowserPage<'_>, session: &str) -> Value {
    let path = "location.pathname";
    page.until("the fork", &format!("{path}.startsWith('/sessions/') && {path} !== '/sessions/{session}'")).await;
    let path = page.js("return location.pathname", &[]).await;
    let id = path.as_str().and_then(|path| path.rsplit('/').next()).expect("the page of a session").to_owned();
    let fork = server.rest.session(&id).await;
    assert_eq!(fork["parent"]["id"], json!(session));
    fork
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn edited_message_is_sent_in_a_fork_by_keyboard() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = open_after_one_turn(&server, &page).await;

    page.css(".edit-message").await;
    page.js("document.querySelector('.edit-message').focus()", &[]).await;
    page.key(Key::Enter).await;
    let field = "document.querySelector('dialog textarea')";
    page.until(
        "the old text with the focus",
        &format!("{field}?.value === '{TASK}' && document.activeElement === {field}"),
    )
    .await;
    axe::check_in_all_looks(&page, "fork-message").await;
    page.key(Key::Escape).await;
    page.until("it is closed", "!document.querySelector('dialog[open]')").await;
    page.until("its button has the focus", "document.activeElement?.matches('.edit-message')").await;

    page.key(Key::Enter).await;
    page.until("the field has the focus", &format!("document.activeElement === {field}")).await;
    page.chord(&[Key::Control], 'a').await;
    page.key(Key::Backspace).await;
    page.until("an empty text is not sent", "document.querySelector('dialog .primary').disabled").await;
    page.type_text("write a bash script that prints bye").await;
    page.key(Key::Enter).await;
    let fork = forked_from(&server, &page, &session).await;
    let id = fork["id"].as_str().expect("an id");
    server.rest.until_state(id, "idle").await;
    page.says("(Played by the demo model.)").await;
    let messages = page.js("return [...document.querySelectorAll('.bubble')].map((it) => it.textContent)", &[]).await;
    assert_eq!(messages, json!(["write a bash script that prints bye"]), "the old text stays with its session");
    page.until("the note", &format!("document.querySelector('.fork-note a').textContent === '{TASK}'")).await;
    axe::check_in_all_looks(&page, "fork-from-message").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn fork_from_a_turn_stands_below_its_session_and_links_back() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = open_after_one_turn(&server, &page).await;

    page.click("Fork from here").await;
    page.css("dialog .primary").await.click().await.expect("the question can be answered");
    let fork = forked_from(&server, &page, &session).await;
    assert_eq!(fork["state"], "stopped", "nothing starts without a message");
    let (id, seq) = (fork["id"].as_str().expect("an id"), &fork["parent"]["seq"]);
    let files = format!("/api/sessions/{id}/files/hello.sh");
    assert!(server.rest.get(&files).await.text.starts_with("#!"), "the files of the turn");
    let branch = format!(
        "document.querySelector('li:has(> .session-item > [href=\"/sessions/{session}\"]) > .session-forks > li > \
         .session-item.current > [href=\"/sessions/{id}\"]')"
    );
    page.until("the tree", &branch).await;
    let address = format!("/sessions/{session}?at={seq}");
    page.until("the note", &format!("document.querySelector('.fork-note a').getAttribute('href') === '{address}'"))
        .await;
    axe::check_in_all_looks(&page, "fork").await;
    page.size(1440, 900).await;

    page.css(".fork-parent").await.click().await.expect("the header leads back");
    page.until("the event", &format!("location.pathname + location.search === '{address}'")).await;
    page.css(".revealed").await;
    page.is_quiet().await;

    // Without its parent, the fork stands at the top and says so.
    assert!(server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await.status.is_success());
    page.visit(&format!("/sessions/{id}")).await;
    page.says("Forked from a deleted session").await;
    page.until(
        "the top level",
        &format!("document.querySelector('.list-group > ul > li > .session-item > [href=\"/sessions/{id}\"]')"),
    )
    .await;
    browser.close().await;
}

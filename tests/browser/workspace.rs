//! Workspace beside the conversation: its divider, its folded parts, and its downloads.

use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use serde_json::{Value, json};

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

/// Opens a session whose first task is done.
async fn at_a_session<'a>(browser: &'a TestBrowser, server: &TestServer) -> (BrowserPage<'a>, String) {
    let page = BrowserPage::signed_in(browser, server).await;
    let session = server.rest.start("write a bash script that prints hello").await;
    server.rest.until_state(&session, "idle").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("(Played by the demo model.)").await;
    page.open_workspace().await;
    (page, session)
}

/// Returns the width of the conversation in per cent.
async fn share(page: &BrowserPage<'_>) -> i64 {
    let now = page.css("[role=separator]").await.attr("aria-valuenow").await.expect("the page answers");
    now.and_then(|now| now.parse().ok()).expect("a number")
}

/// Drags the divider by so many pixels.
async fn drag(page: &BrowserPage<'_>, by: f64) {
    let middle = "const it = document.querySelector('[role=separator]').getBoundingClientRect();
        return [it.left + it.width / 2, it.top + it.height / 2]";
    let middle = page.js(middle, &[]).await;
    let (x, y) = (middle[0].as_f64().expect("a place"), middle[1].as_f64().expect("a place"));
    let to = |x| PointerAction::MoveTo { duration: None, x, y };
    let mouse = MouseActions::new("mouse".to_owned())
        .then(to(x))
        .then(PointerAction::Down { button: MOUSE_BUTTON_LEFT })
        .then(to(x + by / 2.0))
        .then(to(x + by))
        .then(PointerAction::Up { button: MOUSE_BUTTON_LEFT });
    page.client.perform_actions(mouse).await.expect("there is a mouse");
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn workspace_layout_is_kept() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, _) = at_a_session(&browser, &server).await;

    let before = share(&page).await;
    drag(&page, -150.0).await;
    let dragged = share(&page).await;
    assert!(dragged <= before - 8, "{before} to {dragged}");
    drag(&page, 300.0).await;
    let widest = share(&page).await;
    assert!((60..100).contains(&widest), "neither side may disappear: {widest}");
    drag(&page, -200.0).await;
    let kept = share(&page).await;
    page.client.refresh().await.expect("the page loads again");
    page.says("(Played by the demo model.)").await;
    assert_eq!(share(&page).await, kept, "over a reload");

    page.click("Hide the conversation").await;
    page.until("the log is hidden", "!document.querySelector('[role=log]').checkVisibility()").await;
    page.client.refresh().await.expect("the page loads again");
    page.css("[role=tab]").await;
    page.until("it still is", "!document.querySelector('[role=log]').checkVisibility()").await;
    page.click("Show the conversation").await;
    page.until("it is back", "document.querySelector('[role=log]').checkVisibility()").await;
    assert_eq!(share(&page).await, kept, "as wide as before");
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn raw_frames_are_filtered_opened_and_downloaded() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, session) = at_a_session(&browser, &server).await;
    page.click("Events").await;
    page.css(".frame").await;
    page.click("Download these frames as JSONL").await;
    let kept = browser.downloaded("jsonl").await;
    let frames: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let journal = server.rest.events(&session).await;
    let kept: Vec<&Value> = frames.iter().map(|line| &line["frame"]).filter(|it| it.get("at").is_some()).collect();
    // A browser writes 0 if the server writes 0.0, so texts are compared.
    let fields = |event: &Value| (event["seq"].as_u64(), event["at"].clone(), event["message"].clone());
    let journal: Vec<_> = journal.iter().map(fields).collect();
    assert_eq!(kept.into_iter().map(fields).collect::<Vec<_>>(), journal, "every event as it came");

    let filter = page.css("input[aria-label='Filter the frames']").await;
    filter.send_keys("finish").await.expect("the field takes text");
    page.until("fewer are shown", "document.querySelectorAll('.frame').length < 10").await;
    page.open_a_frame().await;
    page.until("the answer is complete", "document.querySelector('.frame-opened pre').textContent.includes('finish')")
        .await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn model_is_changed_mid_session_and_keyless_model_rejected() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process)
            .env("LLM_MODEL", "openai/other")
            .env("LLM_BASE_URL", "http://127.0.0.1:9/v1"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.until("it says what is missing", "[...document.querySelectorAll('.model-choice option:disabled')].some((it) => it.textContent === 'claude-sonnet-4-5 (needs ANTHROPIC_API_KEY)')").await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.click("Model: openai/other. Change").await;
    page.until("it says so here too", "[...document.querySelectorAll('.menu-entry:disabled')].some((it) => it.textContent.includes('needs ANTHROPIC_API_KEY'))").await;
    page.shot("model-menu").await;
    page.click("Plays a script").await;
    page.css("[aria-label^='Model: scripted demo']").await;
    page.message("write a bash script that prints hello").await;
    page.says("(Played by the demo model.)").await;
    page.is_quiet().await;
    browser.close().await;
}

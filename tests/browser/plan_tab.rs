//! Plan tab: steps ticked by mouse and keyboard, the editor, and a second tab that follows.

use fantoccini::key::Key;

use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

use super::{axe, page::BrowserPage};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn plan_is_ticked_and_edited_and_another_window_follows() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("write a bash script that prints hello").await;
    server.rest.until_state(&session, "idle").await;
    let address = format!("/sessions/{session}");
    let progress = |text: &str| format!("document.querySelector('.plan-progress')?.textContent.includes('{text}')");

    page.size(1440, 900).await;
    page.visit(&address).await;
    page.open_workspace().await;
    page.until("the plan is done", &progress("3 of 3")).await;
    let first = page.client.window().await.expect("a window");

    // A click and the space bar.
    page.css(".plan-step input").await.click().await.expect("the box can be pressed");
    page.until("the step is open again", &progress("2 of 3")).await;
    page.key(Key::Tab).await;
    page.type_text(" ").await;
    page.until("two steps are open", &progress("1 of 3")).await;
    let plan = format!("/api/sessions/{session}/files/.greenroom/plan.md");
    page.until("both are in the journal", "document.querySelector('#tab-plan .count')?.textContent === '1/3'").await;
    let saved = server.rest.get(&plan).await.text;
    assert!(saved.starts_with("- [ ] ") && saved.matches("- [x]").count() == 1, "{saved}");
    axe::check_in_all_looks(&page, "plan").await;
    page.touched(false).await;

    // The editor, with the keyboard alone.
    page.size(1440, 900).await;
    page.tab_to("Edit").await;
    page.key(Key::Enter).await;
    let field = page.css("textarea[aria-label='Text of .greenroom/plan.md']").await;
    field.send_keys("- [~] begun by me\n").await.expect("the field takes text");
    axe::check_in_all_looks(&page, "plan-editor").await;
    page.touched(false).await;
    page.size(1440, 900).await;
    page.chord(&[Key::Control], 's').await;
    page.shows("begun by me").await;
    page.until("the focus is back", "document.activeElement?.textContent === 'Edit'").await;

    // Another window shows the plan, and a change made there comes back.
    let second = page.client.new_window(true).await.expect("a window").handle;
    page.client.switch_to_window(second).await.expect("the window exists");
    page.go(&server.rest.url(&address)).await;
    page.shows("begun by me").await;
    page.css(".plan-step input").await.click().await.expect("the box can be pressed");
    page.until("the step is done", &progress("2 of 4")).await;
    page.is_quiet().await;
    page.client.switch_to_window(first).await.expect("the window exists");
    page.until("the first window follows", &progress("2 of 4")).await;
    page.is_quiet().await;
    browser.close().await;
}

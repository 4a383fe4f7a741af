//! A newcomer's whole way, with the demo model.

use fantoccini::Locator;

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn newcomer_goes_from_printed_link_to_end_of_session() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "40"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;

    // An inviting page with one field.
    let task = page.css("textarea[aria-label=Task]").await;
    let address = page.client.current_url().await.expect("an address");
    assert!(!address.as_str().contains("token"), "{address}");
    page.shows("No sessions yet").await;
    assert_eq!(page.focused().await, "Task", "the field has the focus");

    // A task; tokens, thinking and tool calls.
    task.send_keys("write a bash script that prints hello\u{e007}").await.expect("the field takes text");
    page.css("[role=log] .row.thinking").await;
    page.css("[role=log] .row.tool").await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    page.open_workspace().await;
    page.until("the plan is done", "document.querySelector('.plan-progress')?.textContent.includes('3 of 3')").await;

    // A message during the turn: queued, edited, carried out.
    page.message("slow: 1000").await;
    page.says("1 2 3").await;
    page.message("and which files are there?").await;
    page.shows("queued").await;
    page.click("Edit").await;
    let queued = page.css("textarea[aria-label='Queued message']").await;
    queued.send_keys(" All of them.\u{e007}").await.expect("the field takes text");
    page.until(
        "the change",
        "document.querySelector('.queue-text')?.textContent === 'and which files are there? All of them.'",
    )
    .await;

    // Steered, and stopped with a receipt; the queued message is sent on Resume.
    let field = page.css("textarea[aria-label=Message]").await;
    field.send_keys("be brief").await.expect("the field takes text");
    field.send_keys("\u{e009}\u{e007}\u{e000}").await.expect("the field takes keys");
    page.until(
        "the steered message is on its way",
        "document.querySelector('textarea[aria-label=Message]').value === ''",
    )
    .await;
    page.click("Interrupt").await;
    page.until("the receipt", r"/Interrupted .+ in \d+ ms/.test(document.querySelector('[role=log]').textContent)")
        .await;
    page.until("all is carried out", "[...document.querySelectorAll('.row.notice.good')].length >= 2 || document.querySelector('.state-text').textContent === 'Queue paused'").await;
    if page.js("return document.querySelector('.state-text').textContent", &[]).await == "Queue paused" {
        page.click("Resume").await;
    }
    page.says("and which files are there? All of them.").await;
    page.state("Ready").await;

    // Paused in the middle, and resumed.
    page.message("slow: 240").await;
    page.says("1 2 3 4 5").await;
    page.click("Pause").await;
    page.state("Paused").await;
    page.click("Resume").await;
    page.says("239 240").await;
    page.state("Ready").await;

    // After closing and opening the tab, nothing is missing.
    let text = "return document.querySelector('[role=log]').innerText";
    reload(&page).await;
    let first = page.js(text, &[]).await;
    reload(&page).await;
    assert_eq!(page.js(text, &[]).await, first, "the same screen each time");

    housekeeping(&browser, &page).await;
    page.is_quiet().await;
    browser.close().await;
}

/// Reloads the page and waits until the conversation is complete, with the buttons on its code.
async fn reload(page: &BrowserPage<'_>) {
    page.client.refresh().await.expect("the page loads again");
    page.says("write a bash script that prints hello").await;
    page.says("239 240").await;
    page.state("Ready").await;
    page.is_dressed().await;
}

/// Rename, archive, search, export, end, delete.
async fn housekeeping(browser: &TestBrowser, page: &BrowserPage<'_>) {
    let menu = async |entry: &str| {
        page.css(".session-header .popover [aria-label^='Actions for']").await.click().await.expect("the menu opens");
        page.click(entry).await;
    };
    menu("Rename…").await;
    let title = page.css("dialog input[aria-label=Title]").await;
    title.clear().await.expect("the field is emptied");
    title.send_keys("Hello, renamed\u{e007}").await.expect("the field takes text");
    page.until("the new title", "document.querySelector('.session-header h1').textContent === 'Hello, renamed'").await;
    page.until("the tab's title", "document.title.includes('Hello, renamed')").await;

    let search = page.css("input[aria-label='Search the sessions']").await;
    search.send_keys("nothing like it").await.expect("the field takes text");
    page.shows("No title matches").await;
    let emptied = "\u{e009}a\u{e000}\u{e017}";
    search.send_keys(emptied).await.expect("the field is emptied");
    search.send_keys("renamed").await.expect("the field takes text");
    page.find(Locator::Css(".session-item")).await;
    search.send_keys(emptied).await.expect("the field is emptied");
    page.find(Locator::Css(".session-item")).await;

    menu("Export as Markdown").await;
    let markdown = browser.downloaded("md").await;
    assert!(markdown.contains("Hello, renamed") && markdown.contains("hello.sh"), "{markdown}");
    page.css(".session-header .popover [aria-label^='Actions for']").await.click().await.expect("the menu opens");
    page.click("Archive").await;
    page.until("it leaves the list", "document.querySelectorAll('.session-item').length === 0").await;
    page.click("Archived sessions").await;
    page.until("the archived list", "document.querySelector('.sidebar .list-kind')?.innerText === 'Archived sessions'")
        .await;
    page.find(Locator::Css(".session-item")).await;

    menu("End…").await;
    page.shows("End this session?").await;
    page.css("dialog .danger").await.click().await.expect("it is pressed");
    page.shows("This session has ended and is read-only").await;
    menu("Delete…").await;
    page.shows("This cannot be undone").await;
    page.css("dialog .danger").await.click().await.expect("it is pressed");
    page.css("textarea[aria-label=Task]").await;
    page.shows("No archived sessions").await;
}

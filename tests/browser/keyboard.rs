//! The same way without a mouse.

use fantoccini::key::Key;

use super::{chromium::Browser, page::Page};
use crate::harness::{
    driver::Driver,
    server::{Options, Server},
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn the_whole_way_by_keyboard_alone() {
    let server =
        Server::start(Options::new(Driver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "60")).await;
    let browser = Browser::open().await;
    let page = Page::signed_in(&browser, &server).await;

    page.css("textarea[aria-label=Task]").await;
    page.until("the field has the focus", "document.activeElement.getAttribute('aria-label') === 'Task'").await;
    page.type_text("write a bash script that prints hello").await;
    page.key(Key::Enter).await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    page.until("the message field has the focus", "document.activeElement.getAttribute('aria-label') === 'Message'")
        .await;

    // Shift and Enter break the line, Enter sends.
    page.type_text("slow: 300").await;
    page.key(Key::Enter).await;
    page.says("1 2 3").await;
    page.type_text("one line").await;
    page.chord(Key::Shift, Key::Enter.into()).await;
    page.type_text("another").await;
    let text = page.js("return document.activeElement.value", &[]).await;
    assert_eq!(text, "one line\nanother");
    page.key(Key::Enter).await;
    page.shows("queued").await;

    // What waits is taken away, and the turn is stopped.
    page.tab_to("Remove").await;
    page.key(Key::Enter).await;
    page.until("the queue is empty", "!document.querySelector('.queue')").await;
    page.key(Key::Escape).await;
    page.says("Stopped").await;
    page.state("Ready").await;

    // The workspace: its tabs by arrow keys, its divider too.
    page.js("document.activeElement.blur()", &[]).await;
    page.tab_to("Plan").await;
    page.key(Key::Right).await;
    page.until(
        "the next tab",
        "document.querySelector('[role=tab][aria-selected=true]').textContent.startsWith('Commands')",
    )
    .await;
    page.tab_to("Command to run").await;
    page.type_text("echo by hand").await;
    page.key(Key::Enter).await;
    page.until("its output", "document.querySelector('.screen')?.textContent.includes('by hand')").await;
    page.js("document.activeElement.blur()", &[]).await;
    let divider = "document.querySelector('[role=separator]')";
    let before = page.js(&format!("return {divider}.getAttribute('aria-valuenow')"), &[]).await;
    page.tab_to("Divider").await;
    page.key(Key::Left).await;
    page.until(
        "it moved",
        &format!("{divider}.getAttribute('aria-valuenow') !== '{}'", before.as_str().expect("a number")),
    )
    .await;

    // Single keys, the palette, the sheet.
    page.type_text("w").await;
    page.until("the workspace is closed", &format!("!{divider}")).await;
    page.chord(Key::Control, 'k').await;
    page.css("dialog [role=combobox]").await;
    page.type_text("shortcuts").await;
    page.key(Key::Enter).await;
    page.shows("Single keys act").await;
    page.key(Key::Escape).await;
    page.until("the sheet is closed", "!document.querySelector('dialog[open]')").await;

    // The session's menu, a dialog, and out.
    page.js("document.activeElement.blur()", &[]).await;
    page.chord(Key::Control, 'k').await;
    page.css("dialog [role=combobox]").await;
    page.type_text("new session").await;
    page.key(Key::Enter).await;
    page.css("textarea[aria-label=Task]").await;
    page.key(Key::Escape).await;
    page.js("document.activeElement.blur()", &[]).await;
    page.tab_to("What to do with").await;
    page.key(Key::Enter).await;
    page.until("the menu has the focus", "document.activeElement.closest('.popover-panel')").await;
    page.tab_to("Delete…").await;
    page.key(Key::Enter).await;
    page.shows("This cannot be undone").await;
    page.key(Key::Escape).await;
    page.until("the question is gone", "!document.querySelector('dialog[open]')").await;
    page.shows("write a bash script").await;
    page.is_quiet().await;
    browser.close().await;
}

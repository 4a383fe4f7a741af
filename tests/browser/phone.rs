//! Session on a phone: 390 pixels wide, with a touch screen.

use greenroom_protocol::link::AgentCommand;
use serde_json::json;

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

/// Returns the visible controls that are too small for a finger, and the fields that a phone would
/// zoom into.
const TOO_SMALL: &str = "
    const seen = (part) => part.checkVisibility({ visibilityProperty: true, opacityProperty: true })
        && part.getBoundingClientRect().right > 0 && part.getBoundingClientRect().left < innerWidth;
    const controls = [...document.querySelectorAll('button, select, textarea, summary, input:not([type=checkbox])')].filter(seen);
    const small = controls.filter((part) => {
        const { width, height } = part.getBoundingClientRect();
        return height < 43.5 || width < 43.5;
    });
    const zoomed = controls.filter((part) => part.matches('input, select, textarea') && parseFloat(getComputedStyle(part).fontSize) < 16);
    return [...small, ...zoomed].map((part) => part.outerHTML.slice(0, 160))";

async fn on_a_phone<'a>(browser: &'a TestBrowser, server: &TestServer) -> (BrowserPage<'a>, String, PuppetAgent) {
    let title = json!({ "title": "A title that is longer than any phone is wide" });
    let (session, mut agent) = PuppetAgent::in_a_new_session(server, title).await;
    let page = BrowserPage::signed_in(browser, server).await;
    page.size(390, 844).await;
    page.touched(true).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message("go").await;
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    page.state("Working").await;
    (page, session, agent)
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn steer_and_interrupt_are_beside_queue() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, _, mut agent) = on_a_phone(&browser, &server).await;
    agent.event(Some("r"), json!({ "action": "run", "args": { "command": "make" } })).await;
    page.says("make").await;
    for theme in ["light", "dark"] {
        page.scheme(theme).await;
        page.click("Queue, steer or interrupt").await;
        page.css(".send-more[aria-expanded=true]").await;
        assert_eq!(page.js(TOO_SMALL, &[]).await, json!([]), "in {theme}");
        let inside =
            "const { left, top, right, bottom } = document.querySelector('.popover-panel').getBoundingClientRect();
            return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight";
        assert_eq!(page.js(inside, &[]).await, json!(true), "in {theme}");
        page.shot(&format!("{theme}-390/27-split-button")).await;
        page.click("Queue, steer or interrupt").await;
        page.until("it is closed", "!document.querySelector('.popover-panel')").await;
    }

    let write = async |text: &str| {
        page.css("textarea[aria-label=Message]").await.send_keys(text).await.expect("the field takes text");
        page.click("Queue, steer or interrupt").await;
    };
    write("be brief").await;
    page.click("Steer").await;
    let AgentCommand::Steer { .. } = agent.command().await else { panic!("it is steered") };
    write("and then sweep").await;
    page.css(".popover-panel .menu-entry").await.click().await.expect("it queues");
    page.shows("and then sweep").await;
    page.until("it is queued", "document.querySelector('.queue-text')?.textContent === 'and then sweep'").await;
    assert_eq!(page.js(TOO_SMALL, &[]).await, json!([]), "with a queued message");
    page.click("Queue, steer or interrupt").await;
    page.css(".popover-panel .danger").await.click().await.expect("it interrupts");
    let AgentCommand::Cancel {} = agent.command().await else { panic!("it is interrupted") };
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn workspace_is_a_sheet_that_escape_and_back_close() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, session, mut agent) = on_a_phone(&browser, &server).await;
    let address = page.client.current_url().await.expect("an address");

    // The title comes before the model.
    let header = "const [title, model] = ['.session-header h1', '.badge.model'].map((part) => document.querySelector(part)?.getBoundingClientRect());
        return title.width >= 100 && (!model || (model.left >= title.right && model.width < title.width))";
    assert_eq!(page.js(header, &[]).await, json!(true));

    let opened = "document.querySelector('dialog.workspace-sheet[open]')";
    let open = async || {
        page.js("document.querySelector(\"[aria-label='Open the workspace']\").focus()", &[]).await;
        page.open_workspace().await;
        page.until("the sheet is open", opened).await;
    };
    let closed = async || {
        page.until("the sheet is closed", &format!("!{opened}")).await;
        page.until("the earlier entry", "history.state?.sheet !== true").await;
        page.until("the focus is back", "document.activeElement.getAttribute('aria-label') === 'Open the workspace'")
            .await;
        assert_eq!(page.client.current_url().await.expect("an address"), address);
        assert_eq!(server.rest.session(&session).await["state"], "running", "the turn goes on");
    };
    open().await;
    let whole = "const { width, height } = document.querySelector('.workspace-sheet').getBoundingClientRect();
        return width === innerWidth && height === innerHeight";
    assert_eq!(page.js(whole, &[]).await, json!(true), "it covers the page");
    for tab in ["plan", "commands", "events"] {
        page.css(&format!("#tab-{tab}")).await.click().await.expect("a tab");
        page.css("#tab-panel > *").await;
        assert_eq!(page.js(TOO_SMALL, &[]).await, json!([]), "in {tab}");
    }
    page.shot("light-390/28-sheet").await;
    // The focus stays inside.
    for _ in 0..20 {
        page.key(fantoccini::key::Key::Tab).await;
        let inside = "return document.activeElement === document.body || Boolean(document.activeElement.closest('.workspace-sheet'))";
        assert_eq!(page.js(inside, &[]).await, json!(true), "{}", page.focused().await);
    }
    page.css("#tab-plan").await.click().await.expect("a tab");
    page.key(fantoccini::key::Key::Escape).await;
    closed().await;
    open().await;
    page.client.back().await.expect("the browser goes back");
    closed().await;
    open().await;
    page.css(".workspace-sheet [aria-label='Close the workspace']").await.click().await.expect("it closes");
    closed().await;

    // A request for approval closes the sheet that would hide it.
    open().await;
    let extras = json!({ "request": "q1", "action": "ls", "risk": "low", "options": ["allow", "deny"] });
    agent.event(None, json!({ "observation": "confirm", "content": "", "extras": extras })).await;
    page.until("it is asked", &format!("!{opened} && document.querySelector('.confirm')?.checkVisibility()")).await;
    assert_eq!(page.js(TOO_SMALL, &[]).await, json!([]), "with a question");

    // Opened again, the session shows its conversation.
    open().await;
    page.client.refresh().await.expect("the page loads again");
    page.css(".composer textarea").await;
    page.until("no sheet", &format!("!{opened}")).await;
    page.is_quiet().await;
    browser.close().await;
}

//! Terminal tab: a shell in the sandbox, its tabs, its states, and the page's policy.

use fantoccini::key::Key;
use serde_json::json;

use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

use super::{axe, page::BrowserPage};

/// Text of the visible lines.
const SCREEN: &str = "document.querySelector('.xterm-rows')?.textContent.replaceAll('\\u00a0', ' ')";

struct TerminalPage<'a> {
    page: BrowserPage<'a>,
    session: String,
}

impl<'a> TerminalPage<'a> {
    async fn open(browser: &'a TestBrowser, server: &TestServer) -> TerminalPage<'a> {
        let page = BrowserPage::signed_in(browser, server).await;
        let session = server.rest.start("run: printf '\\033[32mgreen\\033[0m\\n'").await;
        server.rest.until_state(&session, "idle").await;
        page.size(1440, 900).await;
        page.visit(&format!("/sessions/{session}")).await;
        page.state("Ready").await;
        page.open_workspace().await;
        page.css("#tab-terminal").await.click().await.expect("the tab opens");
        let terminal = TerminalPage { page, session };
        terminal.line("echo ready-$((40+2))", "ready-42").await;
        terminal
    }

    /// Types a line once the shell is there, and waits for a text on the screen.
    async fn line(&self, line: &str, expected: &str) {
        self.page.until("a shell", &format!("{SCREEN}?.trim().length > 0")).await;
        self.page.css(".xterm-screen").await.click().await.expect("the terminal can be pressed");
        self.page.type_text(line).await;
        self.page.key(Key::Enter).await;
        self.screen(expected).await;
    }

    async fn screen(&self, text: &str) {
        self.page.until(text, &format!("{SCREEN}?.includes({})", json!(text))).await;
    }
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn shell_works_under_the_content_policy() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let terminal = TerminalPage::open(&browser, &server).await;
    let page = &terminal.page;
    terminal.line("printf '\\033[38;2;10;200;30mexact\\033[0m \\033[31mred\\033[0m\\n'", "exact red").await;
    let coloured = "[...document.querySelectorAll('.xterm-rows span')].some((it) => it.textContent === 'exact'
        && getComputedStyle(it).color !== getComputedStyle(document.querySelector('.xterm-rows')).color)";
    page.until("exact colours are applied", coloured).await;
    let styled = "document.querySelector('.xterm adopted-style') && !document.querySelector('.xterm style')
        && getComputedStyle(document.querySelector('.xterm-rows span')).display === 'inline-block'";
    page.until("the emulator's styles are in force", styled).await;
    terminal.line("printf '\\033]0;stolen\\007\\033]52;c;ZXZpbA==\\007quiet\\n'", "quiet").await;
    page.until("the title is the session's", "!document.title.includes('stolen')").await;
    terminal.line("echo see https://example.org/page", "see https://example.org/page").await;
    axe::check_in_all_looks(page, "terminal").await;
    page.touched(false).await;

    // The last screen comes back after a reload.
    page.client.refresh().await.expect("the page loads again");
    terminal.screen("see https://example.org/page").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn terminals_are_opened_renamed_ended_and_closed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let terminal = TerminalPage::open(&browser, &server).await;
    let page = &terminal.page;
    page.click("New terminal").await;
    page.css(".terminal-strip .tab[aria-selected=true]").await;
    terminal.line("echo second-$((1+1))", "second-2").await;
    page.click("Actions for this terminal").await;
    page.click("Rename…").await;
    let field = page.css("dialog input").await;
    field.clear().await.expect("the field can be emptied");
    field.send_keys("build").await.expect("the field takes text");
    page.key(Key::Enter).await;
    page.until(
        "it is renamed",
        "document.querySelector('.terminal-strip [aria-selected=true]').textContent === 'build'",
    )
    .await;
    terminal.screen("second-2").await;
    let listed = server.rest.get(&format!("/api/sessions/{}/terminals", terminal.session)).await.expect(200);
    let names: Vec<_> = listed["items"].as_array().expect("items").iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, [json!("main"), json!("build")]);

    page.css(".xterm-screen").await.click().await.expect("the terminal can be pressed");
    page.type_text("exit 3").await;
    page.key(Key::Enter).await;
    page.shows("The shell ended with code 3.").await;
    page.click("New shell").await;
    terminal.line("echo third-$((1+2))", "third-3").await;
    page.click("Actions for this terminal").await;
    page.click("Close…").await;
    page.css("dialog .button.danger").await.click().await.expect("it can be pressed");
    page.until("one is left", "document.querySelectorAll('.terminal-strip .tab').length === 1").await;
    terminal.screen("ready-42").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn command_of_the_agent_is_typed_and_shown_in_a_terminal() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let terminal = TerminalPage::open(&browser, &server).await;
    let page = &terminal.page;
    page.css("#tab-commands").await.click().await.expect("the tab opens");
    page.click("Run this in a terminal").await;
    terminal.screen("[32mgreen").await;
    page.key(Key::Enter).await;
    let green = "[...document.querySelectorAll('.xterm-rows > div')].filter((it) => it.textContent.trim() === 'green')";
    page.until("it runs after Enter", &format!("{green}.length === 1")).await;
    page.css("#tab-commands").await.click().await.expect("the tab opens");
    page.click("Open the output in a terminal view").await;
    page.shows("Output of a command, read-only").await;
    page.until("its output is there", &format!("{green}.length === 1")).await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn ended_session_has_no_terminal() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let terminal = TerminalPage::open(&browser, &server).await;
    let page = &terminal.page;
    server.rest.delete(&format!("/api/sessions/{}", terminal.session)).await.expect(200);
    page.shows("The session has ended").await;
    page.is_quiet().await;
    browser.close().await;
}

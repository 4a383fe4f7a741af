//! The same state on every surface: pauses, a lost server, failures, unread marks, wrong clocks.

use fantoccini::Locator;
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::{Value, json};

use greenroom_testkit::chromium::{TestBrowser, devtools};

use super::{page::BrowserPage, tabs::page_with_notifications};
use greenroom_testkit::{
    driver::TestDriver,
    model::ScriptedModel,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Spinners that turn, clocks that run, and dots that breathe.
const MOVING: &str = "document.querySelectorAll('.spinner:not(.still), .clock, .dot.ticking, .state.busy:not(.still)')";

const LOOKS: [(&str, u32, u32); 4] =
    [("light", 1440, 900), ("dark", 1440, 900), ("light", 390, 844), ("dark", 390, 844)];

async fn look(page: &BrowserPage<'_>, (theme, width, height): (&str, u32, u32)) -> String {
    page.scheme(theme).await;
    page.size(width, height).await;
    format!("{theme}-{width}")
}

/// Returns the places of all parts that must not move.
async fn places(page: &BrowserPage<'_>) -> Value {
    let places = "const parts = [...document.querySelectorAll('.session-header, .chat, .dock, .state-line, .state-mark, .controls button, .composer')];
        return parts.map((part) => { const { x, y, width, height } = part.getBoundingClientRect(); return [part.className, x, y, width, height]; })";
    page.js(places, &[]).await
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn nothing_moves_while_the_session_is_paused_or_the_server_is_away() {
    let model = ScriptedModel::play("work");
    // The server returns at the same address.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound").port();
    let options = TestServerOptions::anthropic(TestDriver::Process, &model).bind(&format!("127.0.0.1:{port}"));
    let mut server = TestServer::start(options).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("tick into a file").await;
    page.visit(&format!("/sessions/{session}")).await;
    for size in LOOKS {
        let name = look(&page, size).await;
        page.state("Running").await;
        page.until("a clock runs", "document.querySelector('.tool-facts .clock')").await;
        page.until("the list agrees", "document.querySelector('.session-item .dot.ticking')").await;
        page.shot(&format!("status/{name}-running")).await;

        page.click("Pause").await;
        page.state("Paused").await;
        page.until("nothing moves", &format!("{MOVING}.length === 0")).await;
        page.shot(&format!("status/{name}-paused")).await;
        page.click("Resume").await;
        page.state("Running").await;
        page.says("Resumed").await;
        page.until("a clock runs again", "document.querySelector('.tool-facts .clock')").await;

        page.until("the notice of the return is over", "!document.querySelector('.connection')").await;
        let before = places(&page).await;
        let killed = server.kill9().await;
        page.state("Last known: working").await;
        page.until("it says so", "document.querySelector('.connection.lost')").await;
        page.until("nothing moves", &format!("{MOVING}.length === 0")).await;
        assert_eq!(places(&page).await, before, "{name}: the layout shifted");
        let buttons = "[...document.querySelectorAll('.controls button')]";
        page.until(
            "the controls are off",
            &format!("{buttons}.length === 2 && {buttons}.every((one) => one.disabled)"),
        )
        .await;
        page.until("the title is plain", "!/^[●✗(]/.test(document.title)").await;
        assert_eq!(page.is_covered(".connection.lost button").await, json!(false), "{name}: no way to retry");
        page.shot(&format!("status/{name}-away")).await;
        let wide = page.js("return document.documentElement.scrollWidth > innerWidth", &[]).await;
        assert_eq!(wide, json!(false), "{name}: scrolls sideways");
        server = killed.restart().await;
        page.state("Running").await;
    }
    page.click("Interrupt").await;
    page.says("Interrupted the command").await;
    page.state("Ready").await;
    page.until("the turn has its end", "document.querySelector('.row.turn.interrupted')").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn failed_turn_shows_everywhere_and_is_retried_with_its_files() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Broken build" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.shows("Broken build").await;
    let messages = format!("/api/sessions/{session}/messages");
    let message = json!({ "content": "Mend the build.", "attachments": ["uploads/log.txt"] });
    server.rest.post(&messages, message).await.expect(202);
    let AgentCommand::Prompt { turn, content, attachments } = agent.command().await else { panic!("a turn begins") };
    page.until("the list says so", "document.querySelector('.session-item .dot-working')").await;
    let outcome = WorkOutcome::Failed { code: "model_error".into(), detail: "the provider is overloaded".into() };
    agent.report(AgentReport::TurnEnded { turn, outcome }).await.expect("the server listens");
    page.until("the list has the failure", "document.querySelector('.session-item .dot-turn_failed')").await;
    page.until(
        "with its text",
        "document.querySelector('.session-facts')?.innerText.includes('the provider is overloaded')",
    )
    .await;
    page.until("the session is unread", "document.querySelector('.session-item.unread')").await;

    page.visit(&format!("/sessions/{session}")).await;
    for size in LOOKS {
        let name = look(&page, size).await;
        page.state("Last turn failed").await;
        page.until("the title says so", "document.title.startsWith('✗ ')").await;
        page.until("its icon too", "document.querySelector('link[rel=icon]').href.endsWith('favicon-failed.svg')")
            .await;
        page.until("the header too", "document.querySelector('.session-header .dot-turn_failed')").await;
        page.until("the turn's end too", "document.querySelector('.row.turn.failed')?.innerText.includes('Retry')")
            .await;
        page.until("it is read", "!document.querySelector('.session-item.unread')").await;
        page.shot(&format!("status/{name}-failed")).await;
        let wide = page.js("return document.documentElement.scrollWidth > innerWidth", &[]).await;
        assert_eq!(wide, json!(false), "{name}: scrolls sideways");
    }

    // The user's own command is no turn: the failure stays.
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("run", json!({ "command": "ls" })).await;
    let AgentCommand::UserAction { user_action, .. } = agent.command().await else { panic!("a command begins") };
    page.state("Running").await;
    agent.report(AgentReport::UserActionEnded { user_action, outcome: WorkOutcome::Done }).await.expect("it listens");
    page.state("Last turn failed").await;

    page.find(Locator::Css(".controls .button")).await.click().await.expect("it is pressed");
    let AgentCommand::Prompt { turn, content: again, attachments: files } = agent.command().await else {
        panic!("the turn begins anew")
    };
    assert_eq!((again, files), (content, attachments));
    page.until("the title follows", "document.title.startsWith('● ')").await;
    agent.event(None, json!({ "observation": "message", "content": "It is mended.", "extras": {} })).await;
    agent.report(AgentReport::TurnEnded { turn, outcome: WorkOutcome::Done }).await.expect("the server listens");
    page.state("Ready").await;
    page.until("the turn has its end", "document.querySelector('.row.turn.finished')?.innerText.includes('Copy')")
        .await;
    page.until(
        "one Retry is left",
        "[...document.querySelectorAll('.row.turn .link')].filter((it) => it.textContent === 'Retry').length === 1",
    )
    .await;
    for size in LOOKS {
        let name = look(&page, size).await;
        page.shot(&format!("status/{name}-finished")).await;
    }
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn failed_turn_notifies_once() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Far away" })).await;
    let browser = TestBrowser::open().await;
    let page = page_with_notifications(&browser, &server).await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("a turn begins") };
    page.until("the list says so", "document.querySelector('.session-item .dot-working')").await;
    let outcome = WorkOutcome::Failed { code: "model_error".into(), detail: "busy".into() };
    agent.report(AgentReport::TurnEnded { turn, outcome }).await.expect("the server listens");
    page.until("a notification", "window.shown.length === 1").await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("run", json!({ "command": "ls" })).await;
    let AgentCommand::UserAction { user_action, .. } = agent.command().await else { panic!("a command begins") };
    page.until("the list says so", "document.querySelector('.session-item .dot-working')").await;
    agent.report(AgentReport::UserActionEnded { user_action, outcome: WorkOutcome::Done }).await.expect("it listens");
    page.until("the failure shows again", "document.querySelector('.session-item .dot-turn_failed')").await;
    assert_eq!(page.js("return window.shown", &[]).await, json!(["Far away has failed"]));
    page.is_quiet().await;
    browser.close().await;
}

/// Shifts the browser's clock by `{ms}` milliseconds.
fn shifted_clock(ms: i64) -> String {
    format!(
        "const Real = Date, real = Date.now.bind(Date);
        globalThis.Date = class extends Real {{
            constructor(...all) {{ if (all.length) super(...all); else super(real() + {ms}); }}
            static now() {{ return real() + {ms}; }}
        }};"
    )
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn durations_are_right_in_a_browser_whose_clock_is_wrong() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": "Clock" })).await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    agent.event(Some("c"), json!({ "action": "run", "args": { "command": "sleep 999" } })).await;
    for ms in [-3_600_000, 3_600_000] {
        let browser = TestBrowser::open().await;
        let source = json!({ "source": shifted_clock(ms) });
        devtools(&browser.client, "Page.addScriptToEvaluateOnNewDocument", source).await;
        let page = BrowserPage::signed_in(&browser, &server).await;
        page.visit(&format!("/sessions/{session}")).await;
        let clock = "document.querySelector('.tool-facts .clock')?.textContent";
        page.until("seconds", &format!("/^[1-9]\\d* s$/.test({clock})")).await;
        let first = page.js(&format!("return {clock}"), &[]).await;
        page.until("the clock goes on", &format!("/^[1-9]\\d* s$/.test({clock}) && {clock} !== {first}")).await;
        page.until("the list agrees", "document.querySelector('.session-item time')?.textContent === 'now'").await;
        page.is_quiet().await;
        browser.close().await;
    }
}

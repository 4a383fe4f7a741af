//! Every screen, in both themes, wide and narrow: pictures for people in `shots/`, and axe's
//! findings.

use std::path::Path;

use greenroom_protocol::link::AgentCommand;
use serde_json::json;

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    host,
    model::{ScriptedModel, ScriptedRule},
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

/// Runs axe on the page as it is. Returns the serious findings and wrong heading orders, with their
/// places.
const AXE: &str = r#"
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => done(violations
        .filter(({ id, impact }) => id === 'heading-order' || impact === 'serious' || impact === 'critical')
        .flatMap(({ id, help, nodes }) => nodes.map(({ target }) => `${id} (${help}): ${target}`))));
"#;

pub(super) struct ScreenGallery<'a> {
    page: &'a BrowserPage<'a>,
    look: String,
    axe: &'a str,
    pub(super) wrong: Vec<String>,
}

/// Themes with the width and height of the window.
pub(super) const LOOKS: [(&str, u32, u32); 4] =
    [("light", 1440, 900), ("light", 390, 844), ("dark", 1440, 900), ("dark", 390, 844)];

/// Returns the script of axe.
pub(super) fn axe_script() -> String {
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("static/node_modules/axe-core/axe.min.js");
    std::fs::read_to_string(axe).expect("axe-core is among the packages of the UI (`npm ci` in `static/`)")
}

impl<'a> ScreenGallery<'a> {
    /// Shows the page in a theme and a size. A narrow screen has touch.
    pub(super) async fn open(
        page: &'a BrowserPage<'a>,
        axe: &'a str,
        (theme, width, height): (&str, u32, u32),
    ) -> ScreenGallery<'a> {
        page.scheme(theme).await;
        page.size(width, height).await;
        page.touched(width < 800).await;
        ScreenGallery { page, look: format!("{theme}-{width}"), axe, wrong: Vec::new() }
    }

    /// Takes a picture of the page as it is, and checks it with axe.
    pub(super) async fn hang(&mut self, name: &str) {
        let titled = "document.querySelector('.session-header h1')?.textContent !== ''";
        let listed = "!document.querySelector('.session-list .skeleton')";
        self.page.until("its title and the list", &format!("{titled} && {listed}")).await;
        self.page.shot(&format!("{}/{name}", self.look)).await;
        self.page.js(self.axe, &[]).await;
        let found = self.page.client.execute_async(AXE, Vec::new()).await.expect("axe runs");
        let found = found.as_array().cloned().unwrap_or_default();
        self.wrong.extend(found.iter().map(|what| format!("{} {name}: {what}", self.look)));
        self.fits(name).await;
        if self.look.ends_with("390") {
            self.page.size(360, 740).await;
            self.fits(name).await;
            self.page.size(390, 844).await;
        }
    }

    async fn fits(&mut self, name: &str) {
        let wide = "const parts = [...document.querySelectorAll('html, .main, .main > *, .home, .sidebar, .split-pane, .chat, .dock, .workspace, dialog')];
            const wide = parts.filter((part) => part.scrollWidth > part.clientWidth + 1 && part.checkVisibility());
            return wide.map((part) => part.className || part.tagName).join(', ')";
        let wide = self.page.js(wide, &[]).await;
        if wide != json!("") {
            self.wrong.push(format!("{} {name}: scrolls sideways: {wide}", self.look));
        }
        let gone = self.page.out_of_sight(".composer .send, .button.stop").await;
        if gone != json!([]) {
            self.wrong.push(format!("{} {name}: out of sight: {gone}", self.look));
        }
    }
}

const PRICED: &str = "claude-sonnet-4-5";

/// Sessions that the screens show.
struct ScreenSessions {
    done: String,
    asking: String,
    busy: String,
    paused: String,
    lost: String,
    ended: String,
    _agents: [PuppetAgent; 2],
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn every_screen_in_both_themes_wide_and_narrow() {
    // A model that has a price, and has received nearly all that its context holds.
    let say = "It has a build directory and a README.".to_owned();
    let model = ScriptedModel::with(vec![ScriptedRule {
        say: Some(say),
        times: 1,
        input_tokens: Some(171_000),
        ..ScriptedRule::default()
    }]);
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_MODEL__DEFAULT", "demo")
        .env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "0")
        .env("GREENROOM_MODEL__ANTHROPIC__API_KEY", "key")
        .env("GREENROOM_MODEL__ANTHROPIC__BASE_URL", &model.url());
    let server = TestServer::start(options).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let axe = axe_script();
    let mut wrong = Vec::new();
    let mut sessions = None;
    for look in LOOKS {
        let mut gallery = ScreenGallery::open(&page, &axe, look).await;
        if sessions.is_none() {
            page.css("textarea[aria-label=Task]").await;
            page.shows("What should be done?").await;
            gallery.hang("01-first-page").await;
            sessions = Some(set_up(&server).await);
        }
        let sessions = sessions.as_ref().expect("they are set up");
        walk(&mut gallery, sessions).await;
        wrong.append(&mut gallery.wrong);
    }
    assert!(wrong.is_empty(), "{} things: {wrong:#?}", wrong.len());
    page.is_quiet().await;
    browser.close().await;
}

async fn set_up(server: &TestServer) -> ScreenSessions {
    let rest = &server.rest;
    // It is the only session yet, so every agent is its own.
    let lost = rest.start("run: echo the last words >&2").await;
    rest.until_state(&lost, "idle").await;
    for agent in host::agents(server.home()) {
        host::kill(agent.pid, rustix::process::Signal::KILL);
    }
    rest.until_state(&lost, "failed").await;
    let done = rest.start("write a bash script that prints hello").await;
    rest.until_state(&done, "idle").await;
    let paused = rest.start("slow: 200").await;
    rest.until_state(&paused, "running").await;
    rest.post(&format!("/api/sessions/{paused}/pause"), json!({})).await.expect(200);
    let ended = rest.start("run: printf '\\033[32mgreen\\033[0m and \\033[1;31mred\\033[0m\\n'; exit 3").await;
    rest.until_state(&ended, "idle").await;
    rest.delete(&format!("/api/sessions/{ended}")).await.expect(200);
    let wanted = json!({ "title": "Tidy the repository", "task": "What is in this repository?", "model": PRICED, "budget_usd": 0.6 });
    let asking = rest.create(wanted).await;
    rest.until_state(&asking, "idle").await;
    let mut agent = PuppetAgent::take_over(server, &asking).await;
    rest.post(
        &format!("/api/sessions/{asking}/messages"),
        json!({ "content": "Tidy the repository, and tell me what you find." }),
    )
    .await
    .expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    play(&mut agent).await;
    rest.post(&format!("/api/sessions/{asking}/messages"), json!({ "content": "Then write a changelog." }))
        .await
        .expect(202);
    let (busy, worker) = at_something_long(server).await;
    ScreenSessions { done, asking, busy, paused, lost, ended, _agents: [agent, worker] }
}

/// Creates a session whose command and whose queue are each longer than a line.
async fn at_something_long(server: &TestServer) -> (String, PuppetAgent) {
    let rest = &server.rest;
    let (session, mut agent) = PuppetAgent::in_a_new_session(server, json!({ "title": "Count everything" })).await;
    let messages = format!("/api/sessions/{session}/messages");
    rest.post(&messages, json!({ "content": "Count everything." })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    let command = json!({ "command": format!("./count --in={}", "x".repeat(200)) });
    agent.event(Some("c"), json!({ "action": "run", "args": command })).await;
    agent.until_acknowledged().await;
    rest.post(&messages, json!({ "content": "Then count it once more. ".repeat(20) })).await.expect(202);
    (session, agent)
}

/// Plays a task that shows every kind of row.
async fn play(agent: &mut PuppetAgent) {
    let say = |text: &str| json!({ "observation": "message", "content": text, "extras": {} });
    agent
        .event(
            None,
            json!({ "observation": "think", "content": "Old build files first, then the links.", "extras": {} }),
        )
        .await;
    agent.event(None, say("I look at the **build files** first:\n\n```rust\nfn main() {\n    println!(\"hello\");\n}\n```\n\n| File | Size |\n|---|---|\n| `build/` | 12 MB |\n\nSee <https://example.org>.")).await;
    let items = json!([{ "text": "Find what is old", "done": true }, { "text": "Remove it", "done": false }]);
    let plan = json!({ "path": "PLAN.md", "items": items });
    agent
        .event(
            None,
            json!({ "observation": "plan", "content": "- [x] Find what is old\n- [ ] Remove it\n", "extras": plan }),
        )
        .await;
    let edit = json!({ "path": "README.md", "change": "REPLACE", "line": 3, "lines": ["Build with `make`."] });
    agent.event(Some("e"), json!({ "action": "edit", "args": edit })).await;
    let diff =
        "--- a/README.md\n+++ b/README.md\n@@ -1,3 +1,3 @@\n # Tidy\n \n-Build with `old-make`.\n+Build with `make`.\n";
    let edited =
        json!({ "path": "README.md", "line": 3, "change": "REPLACE", "lines": ["Build with `make`."], "diff": diff });
    agent.event(Some("e"), json!({ "observation": "edit", "content": "", "extras": edited })).await;
    agent.event(Some("r"), json!({ "action": "run", "args": { "command": "cargo test" } })).await;
    let ran = json!({ "command": "cargo test", "exit_code": 101, "duration_ms": 8123 });
    agent.event(Some("r"), json!({ "observation": "run", "content": "\u{1b}[1;32m   Compiling\u{1b}[0m tidy v0.1.0\n\u{1b}[31mFAILED\u{1b}[0m tests::links\n", "extras": ran })).await;
    let options = ["allow", "allow_always", "deny"];
    let extras = json!({ "request": "q1", "action": "rm -r build", "risk": "high", "options": options });
    let question = json!({ "observation": "confirm", "content": "It deletes a directory that it did not make.", "extras": extras });
    agent.event(None, question).await;
    agent.until_acknowledged().await;
}

async fn walk(gallery: &mut ScreenGallery<'_>, sessions: &ScreenSessions) {
    let page = gallery.page;
    let narrow = gallery.look.ends_with("390");
    page.visit("/sessions").await;
    page.until("the list", "document.querySelectorAll('.session-item').length >= 5").await;
    page.click("More options").await;
    page.css(".task-options").await;
    gallery.hang("02-new-session").await;
    if narrow {
        page.css(".sidebar-button").await.click().await.expect("it opens");
        page.until("the list is open", "getComputedStyle(document.querySelector('.sidebar')).transform === 'none'")
            .await;
        gallery.hang("03-list").await;
    }
    page.click("Settings").await;
    page.css(".settings").await;
    gallery.hang("24-settings").await;

    let open = async |id: &str, says: &str| {
        page.visit(&format!("/sessions/{id}")).await;
        page.shows(says).await;
        page.until(
            "it is connected",
            "!/Connecting|Catching/.test(document.querySelector('.state-line')?.textContent ?? 'Connecting')",
        )
        .await;
    };
    let workspace = async |tab: &str| {
        if page.js("return Boolean(document.querySelector('.workspace'))", &[]).await == json!(false) {
            page.open_workspace().await;
        }
        page.css(&format!("#tab-{tab}")).await.click().await.expect("a tab");
        page.css("#tab-panel > *").await;
    };
    open(&sessions.done, "Played by the demo model").await;
    gallery.hang("04-done").await;
    if !narrow {
        page.chord(&[fantoccini::key::Key::Control], 'b').await;
        page.until("the list is hidden", "!document.querySelector('.sidebar').checkVisibility()").await;
        gallery.hang("25-list-away").await;
        page.chord(&[fantoccini::key::Key::Control], 'b').await;
    }
    workspace("plan").await;
    gallery.hang("05-plan").await;
    workspace("commands").await;
    gallery.hang("06-commands").await;
    workspace("events").await;
    page.open_a_frame().await;
    gallery.hang("07-events").await;
    page.css(".workspace [aria-label='Close the workspace']").await.click().await.expect("it closes");
    page.css(".session-header [aria-label^='Actions for']").await.click().await.expect("the menu opens");
    page.css(".menu-entry").await;
    gallery.hang("08-menu").await;
    page.click("Rename…").await;
    page.css("dialog").await;
    gallery.hang("09-rename").await;
    page.key(fantoccini::key::Key::Escape).await;
    page.css(".session-header [aria-label^='About']").await.click().await.expect("it opens");
    page.css(".facts").await;
    gallery.hang("10-about").await;
    page.chord(&[fantoccini::key::Key::Control], 'k').await;
    page.css("dialog [role=listbox]").await;
    gallery.hang("11-palette").await;
    page.key(fantoccini::key::Key::Escape).await;
    page.until("it is closed", "!document.querySelector('dialog[open]')").await;
    page.js("document.activeElement.blur()", &[]).await;
    page.type_text("?").await;
    page.shows("Use single-key shortcuts").await;
    gallery.hang("12-shortcuts").await;

    open(&sessions.asking, "Allow this action?").await;
    gallery.hang("13-asking").await;
    open(&sessions.busy, "queued").await;
    gallery.hang("14-busy").await;
    open(&sessions.paused, "Paused").await;
    gallery.hang("15-paused").await;
    open(&sessions.lost, "The sandbox").await;
    gallery.hang("16-lost").await;
    open(&sessions.ended, "read-only").await;
    workspace("commands").await;
    gallery.hang("17-ended").await;

    page.visit(&format!("/sessions?replay=/api/sessions/{}/export", sessions.done)).await;
    page.css(".player").await;
    page.says("Played by the demo model").await;
    gallery.hang("18-recording").await;
    page.visit("/sessions?replay").await;
    page.shows("Open a recording").await;
    gallery.hang("19-open-recording").await;
    page.visit("/admin").await;
    page.until("both tables", "document.querySelectorAll('.admin table').length === 2").await;
    gallery.hang("20-admin").await;
    page.visit("/api/docs").await;
    page.shows("Idempotency-Key").await;
    gallery.hang("21-docs").await;
    page.visit("/sessions/01J00000000000000000000000").await;
    page.shows("Session not found").await;
    gallery.hang("22-no-session").await;
    signed_out(gallery).await;
}

/// Shows the page without the cookie, then restores the cookie.
async fn signed_out(gallery: &mut ScreenGallery<'_>) {
    let client = gallery.page.client;
    let cookies: Vec<_> = client.get_all_cookies().await.expect("cookies");
    client.delete_all_cookies().await.expect("they are deleted");
    gallery.page.visit("/sessions").await;
    gallery.page.shows("Open the link that greenroom printed").await;
    gallery
        .page
        .until("there is no list to show", "!document.querySelector('.sidebar-button')?.checkVisibility()")
        .await;
    gallery.hang("23-signed-out").await;
    for cookie in cookies {
        client.add_cookie(cookie).await.expect("it is given back");
    }
}

//! Code, output and reads in the conversation, in both themes, wide and narrow.

use std::path::Path;

use greenroom_protocol::link::AgentCommand;
use serde_json::{Value, json};

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

/// Runs axe on the page as it is. Returns serious findings and wrong heading orders.
const AXE: &str = "
    const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => done(violations
        .filter(({ id, impact }) => id === 'heading-order' || impact === 'serious' || impact === 'critical')
        .flatMap(({ id, help, nodes }) => nodes.map(({ target }) => `${id} (${help}): ${target}`))));";

const DIFF: &str = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -9,3 +9,4 @@\n use std::fmt;\n-pub fn old() {}\n\
    +pub fn new(text: &str) {} // a comment that is far longer than the window of a phone is wide\n\
    +pub fn other() {}\n \n";

fn step(item: &str) -> Option<&str> {
    Some(item)
}

/// Plays a turn with every kind of code.
async fn play(agent: &mut PuppetAgent) {
    for n in 0..7 {
        let (item, path) = (format!("r{n}"), format!("src/part{n}.rs"));
        agent.event(step(&item), json!({ "action": "read", "args": { "path": path } })).await;
        let read =
            json!({ "observation": "read", "content": "fn part() {\n\tcall();\n}\n", "extras": { "path": path } });
        agent.event(step(&item), read).await;
    }
    let text = "### Found\n\n##### Deep\n\n```rust\nfn main() {}\n```\n\n# Last";
    agent.event(None, json!({ "observation": "message", "content": text, "extras": {} })).await;
    let content: String = (1..=100).map(|n| format!("let line_{n} = \"{n}\";\n")).collect();
    let write = json!({ "path": "src/long.rs", "content": content });
    agent.event(step("w"), json!({ "action": "write", "args": write })).await;
    let written = json!({ "path": "src/long.rs", "bytes": content.len() });
    agent.event(step("w"), json!({ "observation": "write", "content": "", "extras": written })).await;
    let edit = json!({ "path": "src/lib.rs", "change": "REPLACE", "line": 10, "lines": ["x"] });
    agent.event(step("e"), json!({ "action": "edit", "args": edit })).await;
    let edited = json!({ "path": "src/lib.rs", "line": 10, "change": "REPLACE", "lines": ["x"], "diff": DIFF });
    agent.event(step("e"), json!({ "observation": "edit", "content": "", "extras": edited })).await;
    agent.event(step("c"), json!({ "action": "run", "args": { "command": "make" } })).await;
    let ran = json!({ "command": "make", "exit_code": 2, "duration_ms": 400 });
    let output = "\u{1b}]0;an unterminated title\n\u{1b}[32mgreen\u{1b}[0m\n\u{1b}[1;31mred\u{1b}[0m\n";
    agent.event(step("c"), json!({ "observation": "run", "content": output, "extras": ran })).await;
    agent.event(step("o"), json!({ "action": "read", "args": { "path": "odd.txt" } })).await;
    let odd =
        json!({ "observation": "read", "content": "a\u{1b}]0;title\nb\u{1b}[31mc\n", "extras": { "path": "odd.txt" } });
    agent.event(step("o"), odd).await;
    let extras = json!({ "code": "model_error", "detail": "`model.key` must be set; `<b>` is not" });
    agent.event(None, json!({ "observation": "error", "content": "", "extras": extras })).await;
    agent.until_acknowledged().await;
}

/// Unfolds the line of this text. Nothing else in the conversation has it.
async fn unfold(page: &BrowserPage<'_>, text: &str) {
    let script = "const line = [...document.querySelectorAll('[role=log] .tool-line')]
            .find((line) => line.textContent.includes(arguments[0]));
        if (line?.getAttribute('aria-expanded') === 'false') line.click();
        return Boolean(line)";
    assert_eq!(page.js(script, &[json!(text)]).await, json!(true), "{text}");
}

async fn at_a_turn<'a>(browser: &'a TestBrowser, server: &TestServer) -> (BrowserPage<'a>, String, PuppetAgent) {
    let title = json!({ "title": "A title that is longer than any phone is wide" });
    let (session, mut agent) = PuppetAgent::in_a_new_session(server, title).await;
    let page = BrowserPage::signed_in(browser, server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message("go").await;
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    (page, session, agent)
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn code_is_shown_as_code_in_both_themes_wide_and_narrow() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, session, mut agent) = at_a_turn(&browser, &server).await;
    play(&mut agent).await;
    let axe = Path::new(env!("CARGO_MANIFEST_DIR")).join("static/node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(axe).expect("axe-core is among the packages of the UI (`npm ci` in `static/`)");
    let looks = ["light", "dark"].into_iter().flat_map(|theme| [(theme, 1440, 900), (theme, 390, 844)]);
    for (theme, width, height) in looks {
        let look = format!("{theme}-{width}");
        page.scheme(theme).await;
        page.size(width, height).await;
        page.touched(width < 800).await;
        page.visit(&format!("/sessions/{session}")).await;
        page.says("must be set").await;
        page.is_dressed().await;
        code_is_complete(&page, &look).await;
        let sideways = "return [document.documentElement, document.querySelector('[role=log]')]
            .some((box) => box.scrollWidth > box.clientWidth)";
        assert_eq!(page.js(sideways, &[]).await, json!(false), "{look} scrolls sideways");
        page.js(&axe, &[]).await;
        let found = page.client.execute_async(AXE, Vec::new()).await.expect("axe runs");
        assert_eq!(found, json!([]), "{look}");
        page.shot(&format!("{look}/26-code")).await;
    }
    page.is_quiet().await;
    browser.close().await;
}

/// Checks every piece of code of the turn.
async fn code_is_complete(page: &BrowserPage<'_>, look: &str) {
    // Seven reads are one line.
    unfold(page, "Read 7 files").await;
    page.until("the list of reads", "document.querySelectorAll('.reads-list .tool-line').length === 7").await;
    unfold(page, "part0.rs").await;
    page.until("a read file", "document.querySelector('.reads-list .hljs-keyword')?.textContent === 'fn'").await;

    // The numbers are beside the code, and neither selected nor copied with it.
    let selected = "const block = document.querySelector('.reads-list .code-block .code-box');
        getSelection().selectAllChildren(block);
        return [getSelection().toString().trim(), block.querySelector('.code-numbers').textContent]";
    let selected = page.js(selected, &[]).await;
    assert_eq!(selected, json!(["fn part() {\n\tcall();\n}", "1\n2\n3"]), "{look}");
    page.js("getSelection().removeAllRanges()", &[]).await;

    // A long file shows whole lines, opens, and folds again. The focus stays on the button.
    unfold(page, "src/long.rs").await;
    page.until("the fold", "document.querySelector('.show-all')?.textContent === 'Show all 100 lines'").await;
    let lines =
        "document.querySelector('.show-all').parentElement.querySelector('code').textContent.split('\\n').length - 1";
    assert_eq!(page.js(&format!("return {lines}"), &[]).await, json!(24), "{look}");
    page.js("document.querySelector('.show-all').focus()", &[]).await;
    for (label, count) in [("Show less", 100), ("Show all 100 lines", 24)] {
        page.key(fantoccini::key::Key::Enter).await;
        page.until(label, &format!("{lines} === {count}")).await;
        assert_eq!(page.focused().await, label, "{look}");
        let seen = "const { top, bottom } = document.activeElement.getBoundingClientRect();
            return top >= 0 && bottom <= innerHeight";
        assert_eq!(page.js(seen, &[]).await, json!(true), "{look}: the button stays in sight");
    }

    // A diff has signs, numbers of both sides, colours, and scrolls inside itself.
    let diff = "const code = document.querySelector('code.diff'), box = code.closest('.code-box');
        return [[...code.querySelectorAll('.added, .removed')].map((run) => run.textContent.split('\\n').map((line) => line.slice(0, 11))),
            box.querySelector('.code-numbers').textContent, box.scrollWidth > box.clientWidth,
            code.querySelectorAll('.hljs-keyword').length > 3]";
    page.until("the diff", "document.querySelector('code.diff .hljs-keyword')").await;
    let diff = page.js(diff, &[]).await;
    let runs = json!([["-pub fn old", ""], ["+pub fn new", "+pub fn oth", ""]]);
    let numbers = "     \n 9  9\n10   \n   10\n   11\n11 12";
    assert_eq!([&diff[0], &diff[1], &diff[3]], [&runs, &json!(numbers), &json!(true)], "{look}");
    if look.ends_with("390") {
        assert_eq!(diff[2], json!(true), "a long line scrolls inside the diff");
    }

    // Output has its colours, and an unterminated sequence hides no further line.
    unfold(page, "make").await;
    page.until("colours", "document.querySelector('.output .ansi-red')?.textContent === 'red'").await;
    let output = page.js("return document.querySelector('.output').textContent.trim()", &[]).await;
    assert_eq!(output, json!("green\nred"), "{look}");
    // The same in the Commands tab is a matter of the same component.
    unfold(page, "odd.txt").await;
    page.until("visible controls", r"[...document.querySelectorAll('.code-box code')].some((code) => code.textContent === 'a\\u{1b}]0;title\nb\\u{1b}[31mc\n')").await;

    // Code in an error is code, and short durations are hidden.
    let error = "const notice = document.querySelector('.notice.bad');
        return [notice.querySelector('code').textContent, notice.innerText.includes('<b> is not'), notice.querySelector('b')]";
    assert_eq!(page.js(error, &[]).await, json!(["model.key", true, Value::Null]), "{look}");
    let facts =
        "return [...document.querySelectorAll('.tool-facts')].some((facts) => / ms|0 s/.test(facts.textContent))";
    assert_eq!(page.js(facts, &[]).await, json!(false), "{look}");
    // Copying needs no hover on a touch screen.
    let copy = "return getComputedStyle(document.querySelector('.code-block > .copy')).opacity";
    assert_eq!(page.js(copy, &[]).await, json!(if look.ends_with("390") { "1" } else { "0" }), "{look}");
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn very_large_file_and_line_are_shown_whole_with_bounded_colours() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let (page, _, mut agent) = at_a_turn(&browser, &server).await;
    let line = format!("let one = 1; // {}\n", "y".repeat(74));
    let content = format!("let long = \"{}\";\n{}", "x".repeat(100_000), line.repeat(10_000));
    agent.event(step("w"), json!({ "action": "write", "args": { "path": "big.rs", "content": content } })).await;
    let written = json!({ "path": "big.rs", "bytes": content.len() });
    agent.event(step("w"), json!({ "observation": "write", "content": "", "extras": written })).await;
    agent.until_acknowledged().await;
    page.says("big.rs").await;
    unfold(&page, "big.rs").await;
    page.until("the fold", "document.querySelector('.show-all')?.textContent === 'Show all 10,001 lines'").await;
    let press = "document.querySelector('.show-all').click()";
    page.js(press, &[]).await;
    let length = format!("document.querySelector('.code-box code').textContent.length === {}", content.len());
    page.until("all of it", &length).await;
    let spans = page.js("return document.querySelectorAll('.code-box code span').length", &[]).await;
    assert!((100..20_000).contains(&spans.as_i64().expect("a number")), "colours are bounded: {spans}");
    page.js(press, &[]).await;
    page.until("the beginning", "document.querySelector('.code-box code').textContent.split('\\n').length === 25")
        .await;
    page.is_quiet().await;
    browser.close().await;
}

//! The page in a real browser: bytes loaded, time until a long session is on the screen, and frames
//! dropped while tokens stream.
//!
//! Times are the browser's own. Dropped frames are counted beside those of an empty page in the
//! same run, because a busy machine drops some of them for any page.

use std::time::Duration;

use greenroom_protocol::link::AgentCommand;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::time::sleep;

use crate::figures::{Figures, table};
use greenroom_testkit::chromium::{TestBrowser, devtools};
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

/// Length of the opened session, in events.
const EVENTS: usize = 10_000;
const OPENINGS: usize = 9;
const KEYSTROKES: usize = 100;
/// Length of the answer into which tokens stream, in bytes.
const ANSWER: usize = 100 * 1024;
const TOKENS_PER_SECOND: usize = 200;
const SECONDS: usize = 8;

/// Wait between two openings. A browser still works for a while after it closed a long page.
const REST: Duration = Duration::from_millis(300);

/// Wait before the first look at a tab. An earlier look would delay the page.
const LOOK: Duration = Duration::from_millis(700);

/// Text of the newest row, repeated so that the row is the largest thing on the screen.
const NEWEST: &str = "THE LAST WORD";
const REPEATED: usize = 30;
const NEWEST_IS_THERE: &str = "document.querySelector('[role=log]')?.textContent.includes('THE LAST WORD')";

/// Largest contentful paint of an unwatched tab, its text, and the first paint, in milliseconds
/// since the navigation began, as recorded by the browser.
const PAINTED: &str = r#"
    const done = arguments[0];
    new PerformanceObserver((list) => {
        const { startTime, element } = list.getEntries().at(-1);
        done([startTime, element?.outerHTML ?? '', performance.getEntriesByName('first-paint')[0].startTime]);
    }).observe({ type: 'largest-contentful-paint', buffered: true });
"#;

/// Sets `window.opened` to the time at which the newest row was on the screen, by the browser.
const WATCH: &str = r#"
    new PerformanceObserver((list) => list.getEntries().forEach(({ startTime }) => (window.opened = startTime)))
        .observe({ type: 'element' });
    new MutationObserver((_, observer) => {
        const said = "//*[@role='log']//*[contains(text(), 'THE LAST WORD')]";
        const newest = document.evaluate(said, document, null, XPathResult.FIRST_ORDERED_NODE_TYPE).singleNodeValue;
        if (!newest) return;
        observer.disconnect();
        newest.setAttribute('elementtiming', 'opened');
    }).observe(document, { childList: true, subtree: true });
"#;

/// Static HTML of the first screen, with as many rows as the page mounts first, without a script.
const STILL: &str = r#"
    const done = arguments[0];
    const inner = document.documentElement.cloneNode(true);
    const rows = [...inner.querySelectorAll('[role=log] .row')];
    for (const row of rows.slice(0, -Math.ceil(innerHeight / 100))) row.remove();
    inner.querySelector('.workspace')?.replaceChildren();
    for (const needless of inner.querySelectorAll('script, link')) needless.remove();
    fetch(document.querySelector('link[rel=stylesheet]').href).then((answer) => answer.text()).then((css) => {
        const style = document.createElement('style');
        style.textContent = css + '[role=log] { display: flex; flex-direction: column-reverse }';
        inner.querySelector('head').append(style);
        done('<!doctype html>' + inner.outerHTML);
    });
"#;

/// Counts frames for this many milliseconds: those due at 60 a second, and those dropped.
const FRAMES: &str = r#"
    const [ms, done] = [arguments[0], arguments[arguments.length - 1]];
    const began = performance.now();
    let last = began, dropped = 0;
    const step = arguments[1];
    const log = document.querySelector('[role=log]');
    requestAnimationFrame(function frame(now) {
        dropped += Math.max(0, Math.round((now - last) / (1000 / 60)) - 1);
        last = now;
        if (step && log) log.scrollTop -= step;
        if (now - began < ms) requestAnimationFrame(frame);
        else done([dropped, Math.round((now - began) / (1000 / 60))]);
    });
"#;

pub(crate) async fn run() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let mut rows = Vec::new();
    let empty = loads(&server, &browser, &mut rows).await;

    let session_id = server.rest.create(json!({ "title": "Ten thousand events" })).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut agent = PuppetAgent::take_over(&server, &session_id).await;
    server.rest.post(&format!("/api/sessions/{session_id}/messages"), json!({ "content": "go" })).await.expect(202);
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };
    work(&mut agent).await;
    opens(&server, &browser, &session_id, &empty, &mut rows).await;
    types(&browser, &mut rows).await;
    let floor = idle(&browser, &server).await;
    let address = address(&server, &session_id);
    browser.client.goto(&address).await.expect("the page loads");
    until(&browser, NEWEST_IS_THERE).await;
    let scrolled = frames(&browser, json!([SECONDS * 1000, 40])).await;
    rows.push(vec![
        "frames dropped while that session is scrolled through".into(),
        said(&scrolled),
        "0, or the floor".into(),
    ]);
    let streamed = streams(&browser, &mut agent, &address).await;
    let what = format!("frames dropped while {TOKENS_PER_SECOND} tokens/s stream into an answer of 100 KB");
    rows.push(vec![what, said(&streamed), "0, or the floor".into()]);
    rows.push(vec!["frames dropped by an empty page (the floor)".into(), said(&floor), String::new()]);
    table("The page in Chromium", &["what", "measured", "budget"], &rows);
    browser.close().await;
}

/// Returns a session without events.
async fn loads(server: &TestServer, browser: &TestBrowser, rows: &mut Vec<Vec<String>>) -> String {
    browser.client.goto(&server.rest.link()).await.expect("the page loads");
    until(browser, "document.querySelector('textarea')").await;
    let kib = |bytes: &Value| format!("{:.1} KiB", bytes.as_f64().unwrap_or_default() / 1024.0);
    let bytes = |which: &str| {
        format!(
            "performance.getEntriesByType('resource').filter(({{ name }}) => {which}).reduce((sum, {{ encodedBodySize }}) => sum + encodedBodySize, 0)"
        )
    };
    let session_id = server.rest.create(json!({ "title": "Empty" })).await;
    server.rest.until_state(&session_id, "idle").await;
    browser.client.goto(&address(server, &session_id)).await.expect("the page loads");
    until(browser, "performance.getEntriesByType('resource').some(({ name }) => name.includes('/part-lazyBundle-'))")
        .await;
    let first = bytes("name.includes('/assets/app-')");
    let all = bytes("name.endsWith('.js')");
    rows.push(vec!["JavaScript that is loaded first, gzip".into(), kib(&eval(browser, &first).await), "60 KiB".into()]);
    rows.push(vec!["with what comes later (workspace, menus)".into(), kib(&eval(browser, &all).await), String::new()]);
    session_id
}

/// Adds thoughts, texts with code, commands with output and edits, as in a long piece of work.
async fn work(agent: &mut PuppetAgent) {
    let say = |text: String| json!({ "observation": "message", "content": text, "extras": {} });
    let mut events = 4;
    for n in 0.. {
        if events + 8 > EVENTS {
            break;
        }
        let (run, edit) = (format!("r{n}"), format!("e{n}"));
        agent
            .event(None, json!({ "observation": "think", "content": format!("Step {n}: what is next?"), "extras": {} }))
            .await;
        agent
            .event(
                None,
                say(format!(
                    "I look at **part {n}**:\n\n```rust\nfn part_{n}() -> usize {{ {n} }}\n```\n\n- one\n- two"
                )),
            )
            .await;
        agent
            .event(Some(&run), json!({ "action": "run", "args": { "command": format!("cargo test part_{n}") } }))
            .await;
        let ran = json!({ "command": format!("cargo test part_{n}"), "exit_code": 0, "duration_ms": 812 });
        let output = format!("running 3 tests\ntest part_{n}::a ... ok\ntest part_{n}::b ... ok\n").repeat(4);
        agent.event(Some(&run), json!({ "observation": "run", "content": output, "extras": ran })).await;
        let change = json!({ "path": "src/lib.rs", "change": "REPLACE", "line": n, "lines": ["let x = 1;"] });
        agent.event(Some(&edit), json!({ "action": "edit", "args": change })).await;
        let diff = format!("--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -{n},2 +{n},2 @@\n-let x = 0;\n+let x = 1;\n");
        let edited =
            json!({ "path": "src/lib.rs", "line": n, "change": "REPLACE", "lines": ["let x = 1;"], "diff": diff });
        agent.event(Some(&edit), json!({ "observation": "edit", "content": "", "extras": edited })).await;
        events += 6;
    }
    agent.event(None, say(format!("{NEWEST}, said often. ").repeat(REPEATED))).await;
    agent.until_acknowledged().await;
}

/// Opens the session in a new tab and from the list, beside the static screen and an empty session.
async fn opens(server: &TestServer, browser: &TestBrowser, session: &str, empty: &str, rows: &mut Vec<Vec<String>>) {
    let address = self::address(server, session);
    let still = still(browser, &address).await;
    let still_address = format!("file://{}", still.path().display());
    let [mut new, mut list, mut blank] = [Figures::default(), Figures::default(), Figures::default()];
    let [mut bare, mut floor, mut painted] = [Figures::default(), Figures::default(), Figures::default()];
    browser.client.goto(&format!("{}/sessions", origin(server))).await.expect("the page loads");
    for _ in 0..OPENINGS {
        floor.add(in_new_tab(browser, &still_address, NEWEST).await.0);
        bare.add(in_new_tab(browser, &format!("{}/healthz", origin(server)), "ok").await.0);
        blank.add(in_new_tab(browser, &self::address(server, empty), "No messages yet").await.0);
        let (opened, first) = in_new_tab(browser, &address, NEWEST).await;
        new.add(opened);
        painted.add(first);
        list.add(from_list(server, browser, session).await);
    }
    let ms = |figures: &Figures| format!("{:.0} ms (worst {:.0})", figures.p(50), figures.p(100));
    let what = format!("a session of {EVENTS} events, from the list: until its newest rows are on the screen");
    rows.push(vec![what, ms(&list), "150 ms".into()]);
    rows.push(vec!["in a new tab: its first paint".into(), ms(&painted), "150 ms".into()]);
    let times = format!("{}, {:.1} × the next line", ms(&new), new.p(50) / floor.p(50));
    rows.push(vec!["in a new tab: until its newest rows are on the screen".into(), times, "150 ms".into()]);
    rows.push(vec!["the same screen in a file, without any script (the floor)".into(), ms(&floor), String::new()]);
    rows.push(vec!["an empty session in a new tab".into(), ms(&blank), String::new()]);
    rows.push(vec!["four words of plain text in a new tab (the browser's own share)".into(), ms(&bare), String::new()]);
}

async fn from_list(server: &TestServer, browser: &TestBrowser, session: &str) -> f64 {
    browser.client.goto(&format!("{}/sessions", origin(server))).await.expect("the page loads");
    until(browser, "document.querySelectorAll('.session-item').length > 1").await;
    sleep(REST).await;
    browser.client.execute(WATCH, Vec::new()).await.expect("the page is watched");
    let item = format!("document.querySelector('.session-item a[href$=\"{session}\"]')");
    eval(browser, &format!("(window.clicked = performance.now(), {item}.click(), 0)")).await;
    until(browser, "window.opened").await;
    eval(browser, "window.opened - window.clicked").await.as_f64().expect("a time")
}

async fn still(browser: &TestBrowser, address: &str) -> NamedTempFile {
    browser.client.goto(address).await.expect("the page loads");
    until(browser, NEWEST_IS_THERE).await;
    let html = browser.client.execute_async(STILL, Vec::new()).await.expect("the page can be copied");
    let file = tempfile::Builder::new().suffix(".html").tempfile().expect("a file");
    std::fs::write(file.path(), html.as_str().expect("a text")).expect("there is room");
    file
}

/// Opens the session as a link from another program does. Returns the time of the largest paint,
/// checked to be the expected text, and of the first paint.
async fn in_new_tab(browser: &TestBrowser, address: &str, expected: &str) -> (f64, f64) {
    let client = &browser.client;
    let here = client.window().await.expect("a tab");
    sleep(REST).await;
    devtools(client, "Target.createTarget", json!({ "url": address })).await;
    sleep(LOOK).await;
    let tabs = client.windows().await.expect("tabs");
    let tab = tabs.into_iter().find(|tab| *tab != here).expect("a new tab");
    client.switch_to_window(tab).await.expect("it is there");
    let painted = client.execute_async(PAINTED, Vec::new()).await.expect("something was painted");
    client.close_window().await.expect("it closes");
    client.switch_to_window(here).await.expect("it is still there");
    assert!(painted[1].as_str().is_some_and(|text| text.contains(expected)), "{address} shows: {painted}");
    (painted[0].as_f64().expect("a time"), painted[2].as_f64().expect("a time"))
}

/// Measures a keystroke with all its work, up to the browser's paint.
async fn types(browser: &TestBrowser, rows: &mut Vec<Vec<String>>) {
    let script = format!(
        r#"(async () => {{
            const field = document.querySelector('textarea');
            const set = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set;
            const times = [];
            for (let n = 0; n < {KEYSTROKES}; n += 1) {{
                const began = performance.now();
                field.dispatchEvent(new KeyboardEvent('keydown', {{ key: 'a', bubbles: true }}));
                set.call(field, field.value + 'a');
                field.dispatchEvent(new InputEvent('input', {{ data: 'a', bubbles: true }}));
                // The change is drawn after the event; in a script, that is after this await.
                for (let turn = 0; turn < 3; turn += 1) await null;
                document.body.offsetHeight;
                times.push(performance.now() - began);
            }}
            return times;
        }})()"#
    );
    let mut figures = Figures::default();
    for time in eval(browser, &script).await.as_array().expect("times") {
        figures.add(time.as_f64().expect("a time"));
    }
    rows.push(vec![
        "one keystroke in it".into(),
        format!("{:.1} ms (p99 {:.1})", figures.p(50), figures.p(99)),
        "10 ms".into(),
    ]);
}

async fn idle(browser: &TestBrowser, server: &TestServer) -> Value {
    browser.client.goto(&format!("{}/favicon.svg", origin(server))).await.expect("an image");
    frames(browser, json!([SECONDS * 1000])).await
}

async fn streams(browser: &TestBrowser, agent: &mut PuppetAgent, address: &str) -> Value {
    let paragraph = "Some words of an answer that has **many** of them, and `code`, and more words.\n\n";
    let mut offset = 0_u64;
    let grow = |offset: u64, content: &str| {
        serde_json::from_value(json!({ "delta": "text", "item": "stream", "offset": offset, "content": content }))
            .expect("a delta")
    };
    while (offset as usize) < ANSWER {
        agent.grow(grow(offset, paragraph)).await.expect("the server listens");
        offset += paragraph.len() as u64;
    }
    browser.client.goto(address).await.expect("the page loads");
    until(browser, "document.querySelector('.row.agent.open')?.textContent.length > 90000").await;
    let counted = frames(browser, json!([SECONDS * 1000]));
    let streaming = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / TOKENS_PER_SECOND as u32);
        for n in 0..SECONDS * TOKENS_PER_SECOND {
            ticks.tick().await;
            let token = if n % 40 == 39 { "\n\n" } else { "word " };
            agent.grow(grow(offset, token)).await.expect("the server listens");
            offset += token.len() as u64;
        }
    };
    futures::join!(counted, streaming).0
}

async fn frames(browser: &TestBrowser, arguments: Value) -> Value {
    let arguments = arguments.as_array().expect("a list").clone();
    browser.client.execute_async(FRAMES, arguments).await.expect("frames are counted")
}

fn said(frames: &Value) -> String {
    format!("{} of {}", frames[0], frames[1])
}

async fn eval(browser: &TestBrowser, expression: &str) -> Value {
    browser
        .client
        .execute(&format!("return {expression}"), Vec::new())
        .await
        .unwrap_or_else(|e| panic!("{expression}: {e}"))
}

async fn until(browser: &TestBrowser, expression: &str) {
    greenroom_testkit::eventually(expression, || async {
        eval(browser, &format!("Boolean({expression})")).await == json!(true)
    })
    .await;
}

fn origin(server: &TestServer) -> String {
    server.rest.link().split("/?").next().expect("an origin").to_owned()
}

fn address(server: &TestServer, session: &str) -> String {
    format!("{}/sessions/{session}", origin(server))
}

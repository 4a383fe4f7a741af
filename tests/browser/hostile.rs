//! Hostile text of a model, a tool or a file stays text.

use greenroom_protocol::link::AgentCommand;
use serde_json::{Value, json};

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

/// Each piece would leave a mark in `window.pwned`, change the title, load something, or cover the
/// page.
const MARKUP: &[&str] = &[
    "<script>window.pwned = 1</script>",
    "<img src=x onerror=\"window.pwned = 2\">",
    "<svg onload=\"window.pwned = 3\"><animate onbegin=\"window.pwned = 3\" attributeName=x dur=1s></svg>",
    "<iframe srcdoc=\"<script>parent.pwned = 4</script>\"></iframe>",
    "<a href=\"javascript:window.pwned = 5\" onclick=\"window.pwned = 5\">press</a>",
    "[press](javascript:window.pwned=6) [press](  jAvAsCrIpT:window.pwned=6) <javascript:window.pwned=6>",
    "[press](data:text/html;base64,PHNjcmlwdD5wYXJlbnQucHduZWQ9Nzwvc2NyaXB0Pg==) [press](vbscript:pwned)",
    "![pixel](https://tracker.example/pixel.png) ![x](x\" onerror=\"window.pwned = 8)",
    "<style>body { display: none }</style><link rel=stylesheet href=//evil.example/x.css><base href=//evil.example/>",
    "<form action=//evil.example><input name=token autofocus onfocus=\"window.pwned = 9\"><button>go</button></form>",
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.pwned=10&gt;\">",
    "<div style=\"position:fixed;inset:0\" id=app class=dialog>covers</div><details open ontoggle=\"window.pwned = 11\">",
    "```html\n<script>window.pwned = 12</script>\n```",
    "```\" onmouseover=\"window.pwned=13\nx\n```",
    "| a |\n|---|\n| <img src=x onerror=window.pwned=14> |",
    "<video><source onerror=\"window.pwned = 15\"></video><object data=\"javascript:window.pwned=15\"></object>",
    "[ref]: javascript:window.pwned=16\n\n[ref] &lt;script&gt;window.pwned=16&lt;/script&gt;",
    "<noscript><p title=\"</noscript><img src=x onerror=window.pwned=17>\">",
    "`<img src=x onerror=window.pwned=18>` **<b onclick=window.pwned=18>x</b>**",
];

/// Escape sequences that a terminal might obey.
const SEQUENCES: &str = "\u{1b}]0;pwned title\u{7}\u{1b}]2;pwned title\u{1b}\\\u{1b}]52;c;cHduZWQ=\u{7}\
    \u{1b}]8;;javascript:window.pwned=20\u{1b}\\link\u{1b}]8;;\u{1b}\\\u{1b}[2J\u{1b}[H\u{1b}[31mred\u{1b}[0m\
    \u{1b}P1$r0m\u{1b}\\\u{9b}31m\u{9d}0;pwned title\u{9c}\u{1b}[?1049h\u{8}\u{8}<img src=x onerror=window.pwned=21>\n";

/// Checks that no script ran, nothing was loaded, and no element could act.
const VERDICT: &str = r#"
    const parts = [...document.querySelectorAll('main *, dialog *, aside *')];
    const ours = 'svg, path, rect, circle, line, polyline, ellipse, img[src="/favicon.svg"]';
    const forbidden = 'script, img, iframe, object, embed, form:not(.prompt-line), style, link, base, meta, math, video, audio, svg, animate, details:not(.raw), noscript';
    const wrong = [];
    if (window.pwned !== undefined) wrong.push('ran: ' + window.pwned);
    if (/pwned title/.test(document.title)) wrong.push('title: ' + document.title);
    if (document.querySelectorAll('#app').length !== 1) wrong.push('a second #app');
    for (const part of parts) {
        if (part.matches(forbidden) && !part.matches(ours) && !part.classList.contains('icon')) wrong.push(part.outerHTML);
        for (const { name } of part.attributes) if (name.startsWith('on')) wrong.push(part.outerHTML);
        if (part.matches('[role=log] a, .workspace a')) {
            const href = part.getAttribute('href');
            const inside = part.closest('.tool-body') && href?.startsWith('/api/');
            if (href && !inside && !/^(https?:|mailto:)/.test(href)) wrong.push(part.outerHTML);
            if (!/noopener/.test(part.rel)) wrong.push(part.outerHTML);
        }
        if (part.getAttribute('style')?.includes('fixed')) wrong.push(part.outerHTML);
    }
    for (const part of parts) {
        const own = [...part.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data).join('');
        if (/[\u001b\u009b\u009d]/.test(own)) wrong.push('an escape sequence in ' + part.outerHTML.slice(0, 200));
    }
    const loaded = performance.getEntriesByType('resource').filter(({ name }) => !name.startsWith(location.origin) && !name.startsWith('data:'));
    return [...wrong, ...loaded.map(({ name }) => 'loaded ' + name)];
"#;

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn hostile_agent_text_is_never_executed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let title = "<img src=x onerror=\"window.pwned = 30\">";
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({ "title": title })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;
    page.message(MARKUP[1]).await;
    let AgentCommand::Prompt { .. } = agent.command().await else { panic!("a turn begins") };

    let all = MARKUP.join("\n\n");
    let grows = |kind: &str, content: &str| {
        serde_json::from_value(json!({ "delta": kind, "item": "grows", "offset": 0, "content": content }))
            .expect("a delta")
    };
    agent.grow(grows("text", &all[..all.len() / 2])).await.expect("the server listens");
    for (n, markup) in MARKUP.iter().enumerate() {
        agent.event(Some(&format!("m{n}")), json!({ "observation": "message", "content": markup, "extras": {} })).await;
    }
    agent.event(Some("grows"), json!({ "observation": "message", "content": all, "extras": {} })).await;
    agent.event(None, json!({ "observation": "think", "content": all, "extras": {} })).await;
    report_events(&mut agent, &all).await;
    agent.event(None, strange(&all)).await;
    agent.until_acknowledged().await;
    page.shows("Allow this action?").await;
    // Opens everything folded, shows every tab, and presses every link that leads nowhere.
    let unfold = "document.querySelectorAll('[role=log] [aria-expanded=false]').forEach((button) => button.click())";
    page.js(unfold, &[]).await;
    page.shot("hostile").await;
    page.open_workspace().await;
    for tab in ["plan", "commands", "events"] {
        page.css(&format!("#tab-{tab}")).await.click().await.expect("a tab");
        page.css("#tab-panel > *").await;
        page.js("document.querySelectorAll('a:not([href])').forEach((link) => link.click())", &[]).await;
        assert_eq!(page.js(VERDICT, &[]).await, json!([]), "in the tab {tab}");
    }
    page.open_a_frame().await;
    assert_eq!(page.js(VERDICT, &[]).await, json!([]));
    // The same from the journal, and in lists and menus.
    approval_request_is_answerable(&page).await;
    page.js(unfold, &[]).await;
    page.chord(&[fantoccini::key::Key::Control], 'k').await;
    page.css("dialog [role=listbox]").await;
    assert_eq!(page.js(VERDICT, &[]).await, json!([]), "after a reload");
    the_policy_holds(&page).await;
    page.visit(&format!("/sessions?replay=/api/sessions/{session}/export")).await;
    page.css(".player").await;
    page.js(unfold, &[]).await;
    assert_eq!(page.js(VERDICT, &[]).await, json!([]), "as a recording");
    browser.close().await;
}

async fn report_events(agent: &mut PuppetAgent, all: &str) {
    let acts = [
        ("run", json!({ "command": all }), json!({ "command": all, "exit_code": 1, "duration_ms": 1 })),
        ("read", json!({ "path": all }), json!({ "path": all })),
        ("write", json!({ "path": all, "content": all }), json!({ "path": all, "bytes": 1 })),
        (
            "browse",
            json!({ "url": "javascript:window.pwned=22" }),
            json!({ "url": "javascript:window.pwned=22", "title": all }),
        ),
    ];
    for (name, args, extras) in acts {
        let output = format!("{SEQUENCES}{all}");
        agent.event(Some(name), json!({ "action": name, "args": args })).await;
        let delta = json!({ "delta": "output", "item": name, "offset": 0, "content": output });
        agent.grow(serde_json::from_value(delta).expect("a delta")).await.expect("the server listens");
        agent.event(Some(name), json!({ "observation": name, "content": output, "extras": extras })).await;
    }
    let diff = format!("--- a\n+++ b\n@@ -1 +1 @@\n-{all}\n+{all}\n");
    let edit = json!({ "path": all, "line": 1, "change": "REPLACE", "lines": [all], "diff": diff });
    agent
        .event(
            Some("edit"),
            json!({ "action": "edit", "args": { "path": all, "change": "REPLACE", "line": 1, "lines": [all] } }),
        )
        .await;
    agent.event(Some("edit"), json!({ "observation": "edit", "content": "", "extras": edit })).await;
    let steps: Vec<Value> = MARKUP.iter().map(|text| json!({ "text": text, "done": false })).collect();
    agent
        .event(None, json!({ "observation": "plan", "content": all, "extras": { "path": all, "items": steps } }))
        .await;
    agent
        .event(None, json!({ "observation": "error", "content": all, "extras": { "code": all, "detail": all } }))
        .await;
    agent.event(None, json!({ "action": "finish", "args": { "message": all } })).await;
}

/// Returns an approval request with hostile text in every field.
fn strange(all: &str) -> Value {
    let options = ["allow", "deny"];
    let extras =
        json!({ "request": MARKUP[1], "action": format!("{SEQUENCES}{all}"), "risk": all, "options": options });
    json!({ "observation": "confirm", "content": all, "extras": extras })
}

/// Checks that an approval request of any length leaves its buttons and the field in the window,
/// after each reload.
async fn approval_request_is_answerable(page: &BrowserPage<'_>) {
    for (width, height) in [(1440, 650), (390, 740), (1440, 900)] {
        page.size(width, height).await;
        // As at a first visit of a signed-in browser: the workspace is closed.
        let forget = "for (const key of Object.keys(localStorage)) if (!key.startsWith('greenroom-secret-')) localStorage.removeItem(key)";
        page.js(forget, &[]).await;
        page.client.refresh().await.expect("the page loads again");
        page.shows("Allow this action?").await;
        page.css(".composer").await;
        let deny = "[...document.querySelectorAll('.confirm button')].some((button) => button.innerText === 'Deny')";
        page.until("it can be denied", deny).await;
        let gone = page.out_of_sight(".confirm, .confirm button, .composer").await;
        assert_eq!(gone, json!([]), "at {width}x{height}");
    }
}

/// Second defence: the page's policy keeps injected code from running.
async fn the_policy_holds(page: &BrowserPage<'_>) {
    page.js("const script = document.createElement('script');
        script.textContent = 'window.pwned = 40'; document.body.append(script);
        const image = document.createElement('img'); image.setAttribute('onerror', 'window.pwned = 41');
        image.src = '/nothing.png'; document.body.append(image);
        const link = document.createElement('a'); link.href = 'javascript:window.pwned = 42'; document.body.append(link); link.click();
        for (const it of [script, image, link]) it.remove()", &[]).await;
    let policy = "return fetch('/sessions').then((page) => page.headers.get('content-security-policy'))";
    let policy = page.js(policy, &[]).await;
    let policy = policy.as_str().expect("there is a policy");
    assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.js("return window.pwned ?? null", &[]).await, Value::Null);
}

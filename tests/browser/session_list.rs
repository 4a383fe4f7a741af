//! List of sessions: groups, menu, archive with undo, search through what was said, palette and
//! settings.

use fantoccini::key::Key;
use serde_json::{Value, json};

use greenroom_testkit::{
    chromium::{TestBrowser, devtools},
    driver::TestDriver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
};

use super::{
    page::BrowserPage,
    screens::{LOOKS, ScreenGallery, axe_script},
};

/// Messages of the long conversation. More than the page loads at first.
const MESSAGES: usize = 240;

/// Creates a session whose agent has said this many messages. The first ones name the needle.
async fn long_conversation(server: &TestServer, needles: usize) -> (String, PuppetAgent) {
    let (id, mut agent) = PuppetAgent::in_a_new_session(server, json!({ "title": "Long talk" })).await;
    for n in 1..=MESSAGES {
        let text = if n <= needles { format!("Here is a Needle in the hay, number {n}.") } else { format!("Hay {n}.") };
        agent.event(None, json!({ "observation": "message", "extras": {}, "content": text })).await;
    }
    agent.until_acknowledged().await;
    (id, agent)
}

/// Creates sessions one after the other. The last one has the newest activity.
async fn create_in_order(server: &TestServer, titles: &[&str]) {
    for title in titles {
        let id = server.rest.create(json!({ "title": title })).await;
        server.rest.until_state(&id, "idle").await;
    }
}

async fn search(page: &BrowserPage<'_>, text: &str) {
    let field = page.css(".search input").await;
    field.clear().await.expect("the field is emptied");
    field.send_keys(text).await.expect("the field takes text");
}

/// Opens the list, which covers a narrow page.
async fn open_list(page: &BrowserPage<'_>) {
    let is_narrow = page.js("return innerWidth < 800", &[]).await == json!(true);
    if is_narrow {
        page.css(".sidebar-button").await.click().await.expect("it opens");
        page.until("the list is open", "getComputedStyle(document.querySelector('.sidebar')).transform === 'none'")
            .await;
    }
}

/// Returns the titles in the list, in order.
async fn titles(page: &BrowserPage<'_>) -> Value {
    page.js("return [...document.querySelectorAll('.session-item .session-title')].map((it) => it.textContent)", &[])
        .await
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn search_through_conversations_opens_the_event_in_every_look() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (id, _agent) = long_conversation(&server, 25).await;
    server.rest.create(json!({ "title": "Needlework" })).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let axe = axe_script();
    let mut wrong = Vec::new();
    for look in LOOKS {
        let mut gallery = ScreenGallery::open(&page, &axe, look).await;
        page.visit("/sessions").await;
        page.shows("What should be done?").await;
        open_list(&page).await;
        page.css(".session-item").await;
        search(&page, "needle").await;
        page.until("titles", "document.querySelectorAll('.session-item').length === 1").await;
        page.until("20 results", "document.querySelectorAll('.passage').length === 20").await;
        assert_eq!(page.js("return document.querySelector('.passage mark').textContent", &[]).await, json!("Needle"));
        gallery.hang("30-search").await;
        page.click("More results").await;
        page.until("all results", "document.querySelectorAll('.passage').length === 25").await;
        page.until(
            "their number",
            "document.querySelector('.found-passages [role=status]').textContent === '25 results.'",
        )
        .await;
        // The last result is the oldest message, far above what the page loads at first.
        page.js("[...document.querySelectorAll('.passage a')].at(-1).click()", &[]).await;
        let marked = "document.querySelector('.revealed')";
        page.until("the message", &format!("{marked}?.textContent.includes('number 1.')")).await;
        let in_sight = format!(
            "(() => {{ const {{ top, bottom }} = {marked}.getBoundingClientRect();
            const box = document.querySelector('.chat').getBoundingClientRect();
            return top >= box.top && bottom <= box.bottom; }})()"
        );
        page.until("it is in sight", &in_sight).await;
        page.until("it has the focus", &format!("document.activeElement === {marked}")).await;
        page.until(
            "its address",
            &format!("/^\\/sessions\\/{id}\\?at=\\d+$/.test(location.pathname + location.search)"),
        )
        .await;
        gallery.hang("31-found-message").await;
        wrong.append(&mut gallery.wrong);
    }
    assert!(wrong.is_empty(), "{} things: {wrong:#?}", wrong.len());

    // The address alone leads there as well, and a wrong one says so.
    page.size(1440, 900).await;
    page.client.refresh().await.expect("the page loads again");
    page.until("the message", "document.querySelector('.revealed')?.textContent.includes('number 1.')").await;
    page.visit(&format!("/sessions/{id}?at=99999")).await;
    page.shows("this session has no event 99999").await;
    search(&page, "no such words").await;
    page.shows("Nothing said matches “no such words”.").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn archive_is_undone_by_keyboard_and_by_touch() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    create_in_order(&server, &["One", "Two", "Three"]).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let axe = axe_script();
    let mut wrong = Vec::new();
    for look in LOOKS {
        let mut gallery = ScreenGallery::open(&page, &axe, look).await;
        page.visit("/sessions").await;
        page.shows("What should be done?").await;
        open_list(&page).await;
        page.until("the list", "document.querySelectorAll('.session-item').length === 3").await;
        let before = titles(&page).await;
        let headings =
            page.js("return [...document.querySelectorAll('.list-group h2')].map((it) => it.textContent)", &[]).await;
        assert_eq!(headings, json!(["Today"]));

        let menu = "[aria-label=\"Actions for “Two”\"]";
        let shown = format!("getComputedStyle(document.querySelector('.session-item {menu}')).opacity === '1'");
        if look.1 < 800 {
            page.until("the menu is there without hover", &shown).await;
            page.css(&format!(".session-item {menu}")).await.click().await.expect("the menu opens");
        } else {
            page.until("the menu hides", &format!("!({shown})")).await;
            let place = "return JSON.stringify([...document.querySelectorAll('.session-item')].map((it) => {
                const { top, height } = it.getBoundingClientRect();
                return [top, height, it.querySelector('.session-title').getBoundingClientRect().width];
            }))";
            let places = page.js(place, &[]).await;
            page.js(&format!("document.querySelector('.session-item {menu}').focus()"), &[]).await;
            page.until("the menu shows with the focus", &shown).await;
            assert_eq!(page.js(place, &[]).await, places, "nothing moves");
            page.key(Key::Enter).await;
        }
        page.css(".session-item .popover-panel").await;
        page.click("Archive").await;
        page.until("it leaves the list", "document.querySelectorAll('.session-item').length === 2").await;
        page.shows("Archived “Two”").await;
        page.until("the way back has the focus", "document.activeElement?.textContent === 'Undo'").await;
        gallery.hang("32-archived-note").await;
        if look.1 < 800 {
            page.click("Undo").await;
        } else {
            page.key(Key::Enter).await;
        }
        page.until("it is back", "document.querySelectorAll('.session-item').length === 3").await;
        assert_eq!(titles(&page).await, before, "it has its place again");
        page.until("it has the focus", "document.activeElement?.textContent.includes('Two')").await;
        page.until("the note is gone", "!document.querySelector('.toast')").await;
        wrong.append(&mut gallery.wrong);
    }
    assert!(wrong.is_empty(), "{} things: {wrong:#?}", wrong.len());
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn palette_begins_with_sessions_and_settings_hold() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    create_in_order(&server, &["Bake bread", "Mend the roof"]).await;
    let browser = TestBrowser::open().await;
    // A day ahead, the sessions are of yesterday.
    let tomorrow = "const now = Date.now; Date.now = () => now() + 86400000";
    devtools(&browser.client, "Page.addScriptToEvaluateOnNewDocument", json!({ "source": tomorrow })).await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let axe = axe_script();
    let mut wrong = Vec::new();
    let entries = "return [...document.querySelectorAll('.palette-text')].map((it) => it.textContent)";
    for look in LOOKS {
        let mut gallery = ScreenGallery::open(&page, &axe, look).await;
        page.visit("/sessions").await;
        page.shows("What should be done?").await;
        open_list(&page).await;
        page.until("yesterday", "document.querySelector('.list-group h2')?.textContent === 'Yesterday'").await;
        page.chord(&[Key::Control], 'k').await;
        page.css("dialog [role=listbox]").await;
        let first = page.js(entries, &[]).await;
        assert_eq!(
            first.as_array().map(|all| &all[..3]),
            Some(&[json!("Mend the roof"), json!("Bake bread"), json!("New session")][..])
        );
        gallery.hang("33-palette").await;
        page.type_text("bread").await;
        page.until("the results", "document.querySelectorAll('.palette-text').length === 2").await;
        assert_eq!(page.js(entries, &[]).await, json!(["Bake bread", "Search conversations for “bread”"]));
        page.key(Key::Down).await;
        page.key(Key::Enter).await;
        page.until("the search has the focus", "document.activeElement?.matches('.search input')").await;
        page.until("the text", "document.activeElement.value === 'bread'").await;
        page.shows("In conversations").await;
        search(&page, " ").await;

        page.click("Settings").await;
        page.css("dialog .settings").await;
        page.shows("Model of new tasks").await;
        page.until("the version", "/Version \\d+\\.\\d+/.test(document.querySelector('.settings').textContent)").await;
        gallery.hang("34-settings").await;
        page.key(Key::Escape).await;
        page.until("it is closed", "!document.querySelector('dialog[open]')").await;
        wrong.append(&mut gallery.wrong);
    }
    assert!(wrong.is_empty(), "{} things: {wrong:#?}", wrong.len());

    page.size(1440, 900).await;
    page.touched(false).await;
    page.click("Settings").await;
    page.click("Steers").await;
    page.key(Key::Escape).await;
    page.client.refresh().await.expect("the page loads again");
    page.click("Settings").await;
    let steers =
        "[...document.querySelectorAll('.settings [aria-pressed=true]')].some((it) => it.textContent === 'Steers')";
    page.until("the choice outlives the page", steers).await;
    page.click("API docs").await;
    page.shows("REST API").await;
    page.until("the settings are closed", "!document.querySelector('dialog[open]')").await;
    page.is_quiet().await;
    browser.close().await;
}

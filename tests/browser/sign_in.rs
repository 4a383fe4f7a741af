//! Sign-in by link and by field, the list of browsers, and pages for errors.

use fantoccini::key::Key;
use serde_json::json;

use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

use super::page::BrowserPage;

/// Reads all addresses that the page has requested, and its own.
const ADDRESSES: &str = "return [location.href, ...performance.getEntriesByType('resource').map(({ name }) => name)]";

const FIELD: &str = "#token";

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

async fn shows_sessions(page: &BrowserPage<'_>) {
    page.css("textarea[aria-label=Task]").await;
    page.shows("No sessions yet").await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn link_signs_in_and_the_token_leaves_the_address() {
    let server = server().await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    shows_sessions(&page).await;
    let addresses = page.js(ADDRESSES, &[]).await.to_string();
    assert!(!addresses.contains("token") && !addresses.contains("secret"), "{addresses}");
    let stored = "return Object.keys(localStorage).filter((key) => key.startsWith('greenroom-secret-')).length";
    assert_eq!(page.js(stored, &[]).await, 1);
    assert_eq!(
        page.js("return document.cookie.includes('greenroom_')", &[]).await,
        false,
        "no script reads the cookie"
    );
    page.client.refresh().await.expect("the page loads again");
    shows_sessions(&page).await;

    // The cookie alone loads the page and nothing else. The page asks once and does not loop.
    let secret = "const key = Object.keys(localStorage).find((key) => key.startsWith('greenroom-secret-'));
        const secret = localStorage[key]; localStorage.removeItem(key); return [key, secret]";
    let taken = page.js(secret, &[]).await;
    page.visit("/sessions?secret=stray#secret=stray").await;
    page.css(FIELD).await;
    let asked = "return performance.getEntriesByType('resource').filter(({ name }) => name.includes('/api/')).length";
    assert_eq!(page.js(asked, &[]).await, 0, "without a secret nothing is requested");
    page.js("localStorage[arguments[0]] = arguments[1]", &[taken[0].clone(), taken[1].clone()]).await;
    page.visit("/sessions").await;
    shows_sessions(&page).await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn field_signs_in_and_browsers_sign_each_other_out() {
    let server = server().await;
    let session = server.rest.create(json!({ "title": "Seen by two" })).await;
    let (first, second) = (TestBrowser::open().await, TestBrowser::open().await);
    let page = BrowserPage::signed_in(&first, &server).await;
    let other = BrowserPage { client: &second.client };
    let origin = server.rest.link().split("/?").next().expect("an origin").to_owned();
    other.go(&format!("{origin}/sessions/{session}")).await;
    let field = other.css(FIELD).await;
    other.shot("sign-in/field").await;
    field.send_keys("a-wrong-token-0123").await.expect("the field takes text");
    other.key(Key::Enter).await;
    other.shows("That token is not valid here").await;
    other.shot("sign-in/wrong-token").await;
    let kept = "return [document.querySelector('#token').value, location.pathname]";
    assert_eq!(other.js(kept, &[]).await, json!(["a-wrong-token-0123", format!("/sessions/{session}")]));
    // The rejected token is selected, so typing replaces it.
    field.send_keys(&server.rest.token).await.expect("the field takes text");
    other.key(Key::Enter).await;
    other
        .until("the session's title", "document.querySelector('.session-header h1')?.textContent === 'Seen by two'")
        .await;
    other.state("Ready").await;
    let addresses = other.js(ADDRESSES, &[]).await.to_string();
    assert!(!addresses.contains(&server.rest.token), "{addresses}");

    shows_list(&page, 2).await;
    page.shot("sign-in/browsers").await;
    let button = "[...document.querySelectorAll('.browsers li')].find((row) => !row.innerText.includes('this browser')).querySelector('button').click()";
    page.js(button, &[]).await;
    page.until("one browser", "document.querySelectorAll('.browsers li').length === 1").await;
    // Its open socket ends, so the page shows the sign-in without a request.
    other.css(FIELD).await;
    page.js("document.querySelector('.browsers li button').click()", &[]).await;
    page.css(FIELD).await;
    page.client.refresh().await.expect("the page loads again");
    page.css(FIELD).await;
    first.close().await;
    second.close().await;
}

/// Opens the settings, which list the browsers.
async fn shows_list(page: &BrowserPage<'_>, count: usize) {
    page.css("textarea[aria-label=Task]").await;
    page.click("Settings").await;
    page.until("all browsers", &format!("document.querySelectorAll('.browsers li').length === {count}")).await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn errors_have_the_look_of_the_page() {
    let server = server().await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    shows_sessions(&page).await;
    let expired = "/api/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE/export?ticket=0123";
    for scheme in ["light", "dark"] {
        page.scheme(scheme).await;
        page.visit("/sessions").await;
        let ground = page.js("return getComputedStyle(document.body).backgroundColor", &[]).await;
        for (width, height) in [(1440, 900), (390, 844)] {
            page.size(width, height).await;
            for (name, address, text) in [
                ("not-found", "/nowhere", "Page not found"),
                ("wrong-token", "/?token=a-wrong-token-0123", "Sign in again"),
                ("expired-ticket", expired, "older than 60 s"),
            ] {
                page.visit(address).await;
                page.shows(text).await;
                let found = page.js("return getComputedStyle(document.body).backgroundColor", &[]).await;
                assert_eq!(found, ground, "{scheme} {name}");
                let wide = page.js("return document.documentElement.scrollWidth > innerWidth", &[]).await;
                assert_eq!(wide, false, "{scheme} {width} {name} scrolls sideways");
                page.shot(&format!("sign-in/{name}-{scheme}-{width}")).await;
            }
        }
    }
    // The way out of an error leads back.
    page.size(1440, 900).await;
    page.visit("/nowhere").await;
    page.click("Go to the sessions").await;
    shows_sessions(&page).await;
    browser.close().await;
}

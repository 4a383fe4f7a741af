//! The page behind nginx, below a path.

use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    proxy::{ProxyKind, ProxyRoute, TestProxy},
    server::{TestServer, TestServerOptions},
};

use super::page::BrowserPage;

const BASE: &str = "/tools/greenroom";

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn page_works_behind_nginx_below_a_path() {
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__BASE_PATH", BASE)
        .env("GREENROOM_SERVER__ALLOWED_HOSTS", "127.0.0.1")
        .env("GREENROOM_SERVER__TRUSTED_PROXIES", "127.0.0.1");
    let server = TestServer::start(options).await;
    let Some(proxy) = TestProxy::start(ProxyKind::Nginx, &server.rest, ProxyRoute::Keep(BASE)).await else { return };
    let browser = TestBrowser::open().await;
    let page = BrowserPage { client: &browser.client };
    page.go(&proxy.rest.link()).await;
    let task = page.css("textarea[aria-label=Task]").await;
    task.send_keys("print hello\u{e007}").await.expect("the field takes text");
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    let below = format!("location.pathname.startsWith('{BASE}/sessions/')");
    page.until("the address of the session is below the path", &below).await;

    // A load of the session's own address, with its events in the page.
    page.client.refresh().await.expect("the page loads");
    page.says("(Played by the demo model.)").await;
    page.message("and again").await;
    page.says("and again").await;
    page.state("Ready").await;
    let stray =
        format!("[...document.querySelectorAll('a[href^=\"/\"]')].every((a) => a.pathname.startsWith('{BASE}/'))");
    page.until("all links are below the path", &stray).await;

    // The lazy part, the documents about the API, and their calls.
    page.go(&proxy.rest.url("/api/docs")).await;
    page.shows(&format!("{}{BASE}/api/sessions", proxy.rest.origin())).await;
}

//! The web page as a person uses it: the real server with the demo model, in Chromium. `cargo xtask test` runs it; screenshots
//! are in `shots/`.

use std::{path::Path, process::Stdio, time::Duration};

use fantoccini::{Client, ClientBuilder, Locator, elements::Element, key::Key};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

#[path = "harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "most of the harness is for the tests in tests/it")]
mod harness;

use harness::{
    driver::Driver,
    server::{Options, Server},
    within,
};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn a_person_gives_a_task_follows_up_stops_pauses_and_comes_back() {
    let server =
        Server::start(Options::new(Driver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "30")).await;
    let browser = Browser::open().await;
    let page = Page { client: &browser.client };

    page.client.goto(&server.rest.link()).await.expect("the page loads");
    let task = page.find(Locator::Css("textarea[aria-label=Task]")).await;
    let address = page.client.current_url().await.expect("an address");
    assert!(!address.as_str().contains("token"), "{address}");
    page.shot("1-home").await;

    task.send_keys("write a bash script that prints hello").await.expect("the field takes text");
    page.press_enter(&task).await;
    page.find(Locator::Css("[role=log] .row.tool")).await;
    page.shot("2-working").await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    page.shot("3-answer").await;

    page.message("and which files are there?").await;
    page.says("Here they are").await;
    page.state("Ready").await;

    page.message("once more, so that it can be stopped").await;
    page.click("Stop").await;
    page.says("Stopped").await;
    page.state("Ready").await;
    page.shot("4-stopped").await;

    page.message("once more, so that it can be paused").await;
    page.click("Pause").await;
    page.state("Paused").await;
    page.shot("5-paused").await;
    page.click("Resume").await;
    page.state("Ready").await;

    page.client.refresh().await.expect("the page loads again");
    page.says("write a bash script that prints hello").await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    page.shot("6-reloaded").await;
    browser.close().await;
}

/// Chromium, driven through chromedriver. Both end when dropped.
struct Browser {
    client: Client,
    /// Takes its browser along when it is asked to end, but not when it is killed.
    driver: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    async fn open() -> Browser {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("chromedriver is installed (Debian: `apt install chromium-driver`)");
        let stdout = driver.stdout.take().expect("its stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let port = within("chromedriver's port", async {
            loop {
                let line = lines.next_line().await.expect("text").expect("chromedriver says its port before it ends");
                if let Some((_, port)) = line.split_once("started successfully on port ") {
                    return port.trim_end_matches('.').to_owned();
                }
            }
        })
        .await;
        let profile = tempfile::tempdir().expect("a temporary directory");
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--window-size=1280,860",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let options = json!({ "browserName": "chrome", "goog:chromeOptions": { "args": args } });
        let options = options.as_object().expect("it is an object").clone();
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(options)
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("Chromium starts (Debian: `apt install chromium`)");
        Browser { client, driver, _profile: profile }
    }

    async fn close(mut self) {
        self.client.close().await.expect("the browser closes");
        self.driver.kill().await.expect("chromedriver runs");
    }
}

/// What a person does with the page, and sees.
struct Page<'a> {
    client: &'a Client,
}

impl Page<'_> {
    async fn find(&self, what: Locator<'_>) -> Element {
        let wait = self.client.wait().at_most(harness::DEADLINE).every(Duration::from_millis(50));
        match wait.for_element(what).await {
            Ok(element) => element,
            Err(e) => {
                self.shot("failed").await;
                panic!("{what:?} is not there ({e}); shots/failed.png shows the page");
            }
        }
    }

    /// Waits until the conversation says so.
    async fn says(&self, text: &str) {
        self.find(Locator::XPath(&format!("//*[@role='log'][contains(., '{text}')]"))).await;
    }

    /// Waits until the state line says so.
    async fn state(&self, text: &str) {
        let line = format!("//*[contains(@class, 'state-text')][contains(., '{text}')]");
        self.find(Locator::XPath(&line)).await;
    }

    async fn click(&self, label: &str) {
        let button = self.find(Locator::XPath(&format!("//button[contains(., '{label}')]"))).await;
        button.click().await.unwrap_or_else(|e| panic!("the button `{label}`: {e}"));
    }

    async fn message(&self, text: &str) {
        let field = self.find(Locator::Css("textarea[aria-label=Message]")).await;
        field.send_keys(text).await.expect("the field takes text");
        self.press_enter(&field).await;
    }

    async fn press_enter(&self, field: &Element) {
        field.send_keys(&char::from(Key::Enter).to_string()).await.expect("the field takes keys");
    }

    async fn shot(&self, name: &str) {
        let shots = Path::new(env!("CARGO_MANIFEST_DIR")).join("shots");
        std::fs::create_dir_all(&shots).expect("`shots/` can be made");
        let image = self.client.screenshot().await.expect("the browser takes pictures");
        std::fs::write(shots.join(format!("{name}.png")), image).expect("`shots/` can be written");
    }
}

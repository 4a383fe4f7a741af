//! Chromium, driven through chromedriver, and DevTools commands that WebDriver lacks.

use std::{fs, path::PathBuf, process::Stdio};

use fantoccini::{Client, ClientBuilder, wd::WebDriverCompatibleCommand};
use hyper::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::within;

/// Browser that belongs to one test. Ends when dropped.
pub struct TestBrowser {
    pub client: Client,
    driver: Child,
    profile: tempfile::TempDir,
}

/// Starts chromedriver and returns its port. Returns `None` if it ended before it had a port.
async fn start_driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("chromedriver is installed (Debian: `apt install chromium-driver`)");
    let mut lines = BufReader::new(driver.stdout.take()?).lines();
    while let Some(line) = lines.next_line().await.expect("text") {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Some((driver, port.trim_end_matches('.').to_owned()));
        }
    }
    None
}

impl TestBrowser {
    pub async fn open() -> TestBrowser {
        let (driver, port) = within("chromedriver", async {
            loop {
                // Chromedriver takes one port for both address families. It ends if the port of the
                // second family is in use.
                if let Some(started) = start_driver().await {
                    return started;
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
            "--disable-background-networking",
            "--window-size=1440,900",
            // Emulates a mouse: a browser without a screen has none.
            "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let options = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": args, "prefs": { "download.default_directory": downloads(&profile) } },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(options.as_object().expect("the capabilities are an object").clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("Chromium starts (Debian: `apt install chromium`)");
        TestBrowser { client, driver, profile }
    }

    /// Waits for a complete download with this extension, removes the file and returns its text.
    pub async fn downloaded(&self, extension: &str) -> String {
        // Chromium creates an empty file under the final name first and replaces it with the
        // complete one.
        let kept = || {
            let entries = fs::read_dir(downloads(&self.profile)).into_iter().flatten().flatten();
            let of_its_kind = |path: &PathBuf| path.extension().is_some_and(|is| is == extension);
            entries.map(|entry| entry.path()).filter(of_its_kind).find_map(|path| {
                fs::read_to_string(&path).ok().filter(|text| !text.is_empty()).map(|text| (path, text))
            })
        };
        crate::eventually(&format!("a download `.{extension}`"), || async { kept().is_some() }).await;
        let (file, text) = kept().expect("the download exists");
        fs::remove_file(file).expect("the file is in the test's directory");
        text
    }

    pub async fn close(mut self) {
        self.client.clone().close().await.expect("the browser closes");
        self.driver.kill().await.expect("chromedriver runs");
    }
}

impl Drop for TestBrowser {
    /// Kills the browser. A test that failed has not closed it.
    fn drop(&mut self) {
        crate::host::kill_all(&self.profile.path().to_string_lossy());
    }
}

fn downloads(profile: &tempfile::TempDir) -> PathBuf {
    profile.path().join("downloads")
}

/// Command of chromedriver beyond the WebDriver standard.
#[derive(Debug)]
struct ChromiumCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for ChromiumCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, <Url as std::str::FromStr>::Err> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

/// Runs a command of the DevTools protocol and returns its result.
pub async fn devtools(client: &Client, command: &str, params: Value) -> Value {
    let own = ChromiumCommand { path: "goog/cdp/execute", body: json!({ "cmd": command, "params": params }) };
    client.issue_cmd(own).await.unwrap_or_else(|e| panic!("{command}: {e}"))
}

/// Returns the console entries since the last call: script errors and violations of the page's
/// policy.
pub async fn console(client: &Client) -> Vec<String> {
    let own = ChromiumCommand { path: "se/log", body: json!({ "type": "browser" }) };
    let entries = client.issue_cmd(own).await.expect("chromedriver keeps a log");
    let entries = entries.as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
}

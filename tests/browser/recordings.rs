//! A recorded session shows the same screen as the live one, without an agent.

use serde_json::{Value, json};

use greenroom_testkit::chromium::TestBrowser;

use super::page::BrowserPage;
use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

/// Returns the texts of the rows, without the button for another try, which a recording lacks.
async fn rows(page: &BrowserPage<'_>) -> Value {
    page.is_dressed().await;
    page.until("a turn is over", "document.querySelector('.row.turn .link')").await;
    let rows = "const textOf = (row) => row.matches('.turn') ? [...row.children].map((part) => part.innerText).filter((part) => part !== 'Retry' && part !== 'Fork from here').join(' ') : row.innerText;
        return [...document.querySelectorAll('[role=log] .row')].map(textOf)";
    page.js(rows, &[]).await
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn recording_shows_the_same_screen() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "0"),
    )
    .await;
    let session = server.rest.start("write a bash script that prints hello").await;
    server.rest.until_state(&session, "idle").await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("(Played by the demo model.)").await;
    page.state("Ready").await;
    let live = rows(&page).await;

    // From this server, by its address.
    page.visit(&format!("/sessions?replay=/api/sessions/{session}/export")).await;
    page.says("(Played by the demo model.)").await;
    assert_eq!(rows(&page).await, live);
    page.until("nothing to write in", "!document.querySelector('textarea')").await;

    // To the beginning, forwards in steps, and to the end.
    let seek = "const bar = document.querySelector('.player input');
        bar.value = arguments[0]; bar.dispatchEvent(new Event('input', { bubbles: true }))";
    page.js(seek, &[json!(0)]).await;
    page.until("an empty screen", "document.querySelectorAll('[role=log] .row').length === 0").await;
    page.js(seek, &[json!(12)]).await;
    page.until("a part", "document.querySelectorAll('[role=log] .row').length > 1").await;
    page.click("Play").await;
    page.says("(Played by the demo model.)").await;
    page.until("its end", "document.querySelector('.player [aria-label=Play]')").await;
    assert_eq!(rows(&page).await, live, "the same screen after single steps");

    // From a local file.
    let file = tempfile::NamedTempFile::with_suffix(".jsonl").expect("a file");
    let exported = server.rest.get(&format!("/api/sessions/{session}/export")).await.text;
    std::fs::write(file.path(), exported).expect("the file can be written");
    page.visit("/sessions?replay").await;
    let chooser = page.css("input[type=file]").await;
    chooser.send_keys(&file.path().to_string_lossy()).await.expect("a file is chosen");
    page.says("(Played by the demo model.)").await;
    assert_eq!(rows(&page).await, live);

    // A file that is no recording gives an error, and a recording of another server is not fetched.
    std::fs::write(file.path(), "{\"seq\": 1}\nhello").expect("the file can be written");
    page.visit("/sessions?replay").await;
    page.css("input[type=file]").await.send_keys(&file.path().to_string_lossy()).await.expect("a file is chosen");
    page.shows("line 2 is not JSON").await;
    page.visit("/sessions?replay=https://evil.example/x.jsonl").await;
    page.shows("the file is on another server").await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn files_are_attached_by_choosing_and_dropping() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "0"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "remember the milk").expect("the file can be written");

    // With the first task.
    let chooser = page.css("input[type=file]").await;
    chooser.send_keys(&file.to_string_lossy()).await.expect("a file is chosen");
    page.shows("notes.txt").await;
    page.css("textarea[aria-label=Task]").await.send_keys("run: cat uploads/notes.txt\u{e007}").await.expect("text");
    page.says("remember the milk").await;
    page.says("with uploads/notes.txt").await;
    page.state("Ready").await;

    // Dropped on a session, beside another file of the same name.
    let drop = "const data = new DataTransfer();
        data.items.add(new File(['and the bread'], 'notes.txt', { type: 'text/plain' }));
        const zone = document.querySelector('.conversation');
        for (const kind of ['dragover', 'drop']) zone.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }))";
    page.js(drop, &[]).await;
    page.until("it is there", "document.querySelector('.attachment .muted')?.textContent === '13 B'").await;
    page.shot("attachment").await;
    page.message("run: cat uploads/notes-2.txt").await;
    page.says("and the bread").await;
    page.says("with uploads/notes-2.txt").await;
    page.state("Ready").await;
    page.until("the field is empty", "!document.querySelector('.attachment')").await;
    page.is_quiet().await;
    browser.close().await;
}

/// Pastes a wide picture into the message field.
const PASTE: &str = "const done = arguments[arguments.length - 1];
    const canvas = Object.assign(document.createElement('canvas'), { width: 3136, height: 1000 });
    const context = canvas.getContext('2d');
    for (let x = 0; x < 3136; x += 1) {
        context.fillStyle = `hsl(${x % 360} 80% 50%)`;
        context.fillRect(x, 0, 1, 1000);
    }
    canvas.toBlob((blob) => {
        const clipboardData = new DataTransfer();
        clipboardData.items.add(new File([blob], 'image.png', { type: 'image/png' }));
        const paste = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
        document.querySelector('textarea[aria-label=Message]').dispatchEvent(paste);
        done(null);
    });";

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn pasted_picture_is_scaled_for_its_model_and_shown() {
    let server = TestServer::start(
        TestServerOptions::new(TestDriver::Process)
            .env("LLM_MODEL", "claude-sonnet-4-5")
            .env("LLM_BASE_URL", "http://127.0.0.1:9"),
    )
    .await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    page.visit(&format!("/sessions/{session}")).await;
    page.state("Ready").await;

    page.client.execute_async(PASTE, Vec::new()).await.expect("a picture is pasted");
    page.until("it is scaled", "document.querySelector('.attachment img')?.naturalWidth === 1568").await;
    page.shows_no_more("takes no pictures").await;
    page.message("what is this?").await;
    page.until("the message shows it", "document.querySelector('.row.user img')?.naturalWidth === 1568").await;

    server.rest.patch(&format!("/api/sessions/{session}"), json!({ "model": "demo" })).await.expect(200);
    page.css("[aria-label^='Model: scripted demo']").await;
    page.client.execute_async(PASTE, Vec::new()).await.expect("a picture is pasted");
    page.shows("demo takes no pictures. The agent gets the file.").await;
    page.until("it is whole", "document.querySelector('.attachment img')?.naturalWidth === 3136").await;
    page.is_quiet().await;
    browser.close().await;
}

//! Files tab: tree, viewer, edits, conflicts, uploads, and what changed.

use fantoccini::{Locator, key::Key};
use reqwest::Method;
use serde_json::json;

use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    rest::send,
    server::{TestServer, TestServerOptions},
};

use super::{axe, page::BrowserPage};

struct FilesPage<'a> {
    page: BrowserPage<'a>,
    server: &'a TestServer,
    session: String,
}

impl<'a> FilesPage<'a> {
    /// Opens the tab of a session whose workspace has these files.
    async fn open(browser: &'a TestBrowser, server: &'a TestServer, files: &[(&str, &[u8])]) -> FilesPage<'a> {
        let page = BrowserPage::signed_in(browser, server).await;
        let session = server.rest.create(json!({ "title": "Files" })).await;
        server.rest.until_state(&session, "idle").await;
        let files_page = FilesPage { page, server, session };
        for (path, content) in files {
            files_page.write(path, content).await;
        }
        files_page.page.size(1440, 900).await;
        files_page.page.visit(&format!("/sessions/{}", files_page.session)).await;
        files_page.page.state("Ready").await;
        files_page.page.open_workspace().await;
        files_page.page.css("#tab-files").await.click().await.expect("the tab opens");
        files_page.page.css("[role=treeitem]").await;
        files_page
    }

    /// Writes a file as another client.
    async fn write(&self, path: &str, content: &[u8]) {
        let address = format!("/api/sessions/{}/files/{path}", self.session);
        let request =
            self.server.rest.request(Method::PUT, &address).header("content-type", "application/octet-stream");
        assert!(send(request.body(content.to_vec())).await.status.is_success(), "{path} is written");
    }

    async fn read(&self, path: &str) -> String {
        self.server.rest.get(&format!("/api/sessions/{}/files/{path}", self.session)).await.text
    }

    async fn choose(&self, name: &str) {
        let row = format!("//*[@role='treeitem'][.//*[text()='{name}']]");
        self.page.find(Locator::XPath(&row)).await.click().await.expect("the row can be pressed");
    }

    async fn content(&self, text: &str) {
        let shown = "document.querySelector('.file-text, .file-hex')?.textContent";
        self.page.until(text, &format!("{shown}?.includes({})", json!(text))).await;
    }

    async fn rows(&self, expected: &[&str]) {
        let names = "[...document.querySelectorAll('[role=treeitem] .file-name')].map((it) => it.textContent)";
        self.page.until(&format!("{expected:?}"), &format!("{names}.join() === {}", json!(expected.join(",")))).await;
    }
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn tree_is_walked_by_keyboard_and_files_are_shown_by_their_content() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let long: String = (1..=80_000).map(|n| format!("line {n} of a long file\n")).collect();
    let files: &[(&str, &[u8])] = &[
        ("data.bin", b"\x00\x01binary"),
        ("long.txt", long.as_bytes()),
        ("src/deep/notes.txt", b"deep notes\n"),
        ("src/main.rs", b"fn main() {\n    println!(\"hello\");\n}\n"),
    ];
    let tab = FilesPage::open(&browser, &server, files).await;
    let page = &tab.page;
    tab.rows(&["src", "data.bin", "long.txt"]).await;
    tab.choose("src").await;
    tab.rows(&["src", "deep", "main.rs", "data.bin", "long.txt"]).await;
    page.key(Key::Down).await;
    page.key(Key::Right).await;
    tab.rows(&["src", "deep", "notes.txt", "main.rs", "data.bin", "long.txt"]).await;
    page.type_text("main").await;
    page.key(Key::Enter).await;
    tab.content("println!").await;
    page.css(".file-lines .hljs-string").await;
    axe::check_in_all_looks(page, "files-text").await;
    page.touched(false).await;

    tab.choose("data.bin").await;
    tab.content("00 01 62 69 6e 61 72 79").await;
    tab.choose("long.txt").await;
    tab.content("line 1 of").await;
    page.click("Load more").await;
    tab.content("line 80000 of").await;
    page.css("input[aria-label='Search files by name']").await.send_keys("*.RS").await.expect("the field takes text");
    page.until("the search finds it", "document.querySelector('button.file-row')?.textContent.includes('src/main.rs')")
        .await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn edit_meets_a_change_and_survives_a_reload() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let tab = FilesPage::open(&browser, &server, &[("notes.md", b"first\r\n")]).await;
    let page = &tab.page;
    tab.choose("notes.md").await;
    page.click("Edit").await;
    let field = page.css(".file-field").await;
    field.send_keys("mine ").await.expect("the field takes text");
    page.chord(&[Key::Control], 's').await;
    page.until("it is saved", "!document.querySelector('.file-field')").await;
    assert!(tab.read("notes.md").await.contains("mine "), "the edit is in the workspace");
    assert!(tab.read("notes.md").await.contains("first\r\n"), "the line end is kept");

    page.click("Edit").await;
    page.css(".file-field").await.send_keys("again ").await.expect("the field takes text");
    tab.write("notes.md", b"theirs\n").await;
    page.client.refresh().await.expect("the page loads again");
    page.css("[role=treeitem]").await;
    tab.choose("notes.md").await;
    page.shows("Changed meanwhile").await;
    page.shot("files-conflict").await;
    assert_eq!(tab.read("notes.md").await, "theirs\n");
    page.click("Overwrite").await;
    page.until("it is saved", "!document.querySelector('.file-field')").await;
    assert!(tab.read("notes.md").await.contains("again "), "the edit is in the workspace");
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn files_are_created_dropped_moved_downloaded_and_deleted() {
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_FILES__DENIED_TYPES", "[\".exe\"]");
    let server = TestServer::start(options).await;
    let browser = TestBrowser::open().await;
    let tab = FilesPage::open(&browser, &server, &[("docs/a.txt", b"a\n")]).await;
    let page = &tab.page;
    let name = |text: &'static str| async move {
        page.css("dialog input").await.send_keys(text).await.expect("the field takes text");
        page.key(Key::Enter).await;
    };
    page.click("New folder").await;
    name("inside").await;
    page.click("New file").await;
    name("fresh.txt").await;
    page.shows("The file is empty.").await;

    let drop = "const data = new DataTransfer();
        data.items.add(new File(['dropped\\n'], arguments[0]));
        const rows = [...document.querySelectorAll('[role=treeitem]')];
        const row = rows.find((it) => it.textContent.includes('docs'));
        for (const kind of ['dragover', 'drop']) row.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        return document.querySelector('.drop-hint')?.textContent ?? ''";
    assert_eq!(
        page.js(drop, &[json!("dropped.txt")]).await,
        json!(""),
        "the message takes no file that the tree takes"
    );
    tab.choose("docs").await;
    tab.choose("dropped.txt").await;
    tab.content("dropped").await;
    page.js(drop, &[json!("program.exe")]).await;
    page.until(
        "the reason names the limit",
        "document.querySelector('.file-upload')?.textContent.includes('denied_types')",
    )
    .await;

    let out = "const data = new DataTransfer();
        const rows = [...document.querySelectorAll('[role=treeitem]')];
        rows.find((it) => it.textContent.includes('dropped.txt')).dispatchEvent(new DragEvent('dragstart', { dataTransfer: data, bubbles: true }));
        return data.getData('DownloadURL')";
    let dragged = page.js(out, &[]).await;
    assert!(
        dragged.as_str().is_some_and(|it| it.starts_with("application/octet-stream:dropped.txt:http")),
        "{dragged}"
    );
    // The browser's download has no cookie of the page.
    let address = dragged.as_str().and_then(|it| it.strip_prefix("application/octet-stream:dropped.txt:"));
    let saved = send(greenroom_testkit::rest::client().get(address.expect("an address"))).await;
    assert_eq!((saved.status.as_u16(), saved.text.as_str()), (200, "dropped\n"));
    page.css(".file-header [aria-label=Download]").await.click().await.expect("it downloads");
    assert_eq!(browser.downloaded("txt").await, "dropped\n");

    page.click("Actions for the selected entry").await;
    page.click("Rename or move…").await;
    let field = page.css("dialog input").await;
    field.clear().await.expect("the field can be emptied");
    field.send_keys("docs/moved.txt").await.expect("the field takes text");
    page.key(Key::Enter).await;
    page.until(
        "it is moved",
        "[...document.querySelectorAll('.file-name')].some((it) => it.textContent === 'moved.txt')",
    )
    .await;
    assert_eq!(tab.read("docs/moved.txt").await, "dropped\n");
    tab.choose("moved.txt").await;
    page.click("Actions for the selected entry").await;
    page.click("Delete…").await;
    page.css("dialog .button.danger").await.click().await.expect("it can be pressed");
    page.until(
        "it is gone",
        "![...document.querySelectorAll('.file-name')].some((it) => it.textContent === 'moved.txt')",
    )
    .await;
    page.is_quiet().await;
    browser.close().await;
}

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn dot_marks_what_the_agent_changed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let tab = FilesPage::open(&browser, &server, &[("a.txt", b"a\n"), ("b.txt", b"b\n")]).await;
    let page = &tab.page;
    tab.rows(&["a.txt", "b.txt"]).await;
    page.message("run: echo changed > a.txt").await;
    let dots =
        "[...document.querySelectorAll('[role=treeitem]:has(.file-dot) .file-name')].map((it) => it.textContent)";
    page.until("a dot appears", &format!("{dots}.join() === 'a.txt'")).await;
    tab.choose("a.txt").await;
    tab.content("changed").await;
    page.until("the dot goes", &format!("{dots}.length === 0")).await;
    server.rest.delete(&format!("/api/sessions/{}", tab.session)).await.expect(200);
    page.shows("read-only").await;
    page.until("nothing can be changed", "!document.querySelector('[aria-label=\"New file\"]')").await;
    page.is_quiet().await;
    browser.close().await;
}

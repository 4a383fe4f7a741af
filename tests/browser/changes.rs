//! Changes tab: the files of a turn, a comment for the next message, a revert, and the way back.

use fantoccini::key::Key;
use greenroom_testkit::{
    chromium::TestBrowser,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};
use serde_json::json;

use super::{axe, page::BrowserPage};

#[tokio::test]
#[ignore = "needs chromium and chromedriver; `cargo xtask test` brings them"]
async fn turn_is_looked_at_commented_reverted_and_brought_back() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let browser = TestBrowser::open().await;
    let page = BrowserPage::signed_in(&browser, &server).await;
    let session = server.rest.start("write a bash script that prints hello").await;
    server.rest.until_state(&session, "idle").await;
    page.size(1440, 900).await;
    page.visit(&format!("/sessions/{session}")).await;
    page.says("(Played by the demo model.)").await;

    // The end of the turn leads to its changes.
    page.css(".turn-changes .link").await.click().await.expect("the files can be pressed");
    let script = "document.querySelector('.change[aria-label=\"hello.sh\"]')";
    page.until("the new script", &format!("{script}?.querySelector('.badge')?.textContent === 'new'")).await;
    page.until("its lines", &format!("{script}.querySelector('.diff-code.added')?.textContent.startsWith('+#!')"))
        .await;
    axe::check_in_all_looks(&page, "changes").await;

    // A comment by the keyboard goes into the draft.
    page.js(&format!("{script}.querySelector('tr[tabindex=\"0\"]').focus()"), &[]).await;
    page.key(Key::Enter).await;
    page.css("textarea[aria-label='Comment on line 1']").await;
    page.type_text("Why bash?").await;
    page.click("Comment").await;
    page.click("Add to your message").await;
    let draft = "document.querySelector('textarea[aria-label=Message]').value";
    let expected = json!("`hello.sh`, line 1:\n> #!");
    page.until("the quote", &format!("{draft}.startsWith({expected}) && {draft}.endsWith('Why bash?')")).await;

    // A new file that is reverted is gone, and comes back with the checkpoint before.
    let file = format!("/api/sessions/{session}/files/hello.sh");
    page.click("Revert hello.sh").await;
    page.css("dialog .danger").await.click().await.expect("the question can be answered");
    page.shows("0 files restored, 1 removed").await;
    assert_eq!(server.rest.get(&file).await.status, 404);
    page.until("the way back", "document.querySelector('.restored-note .button:not(:disabled)')").await;
    page.click("Take it back…").await;
    page.css("dialog .danger").await.click().await.expect("the question can be answered");
    page.shows("1 file restored, 0 removed").await;
    assert!(server.rest.get(&file).await.text.starts_with("#!"));
    page.says("Workspace restored").await;
}

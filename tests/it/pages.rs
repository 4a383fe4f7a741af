//! Pages that Chromium opens in a sandbox, and what the server keeps of them.

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};
use reqwest::Method;

/// Serves the workspace inside the sandbox, in the background, and returns when it answers.
const SERVE: &str = "printf '<title>Inside</title><p id=p>Old<script>p.textContent = \"New\"</script>' > index.html
    python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 &
    until (exec 3<>/dev/tcp/127.0.0.1/8123) 2>/dev/null; do sleep 0.05; done";

#[tokio::test]
async fn page_inside_the_sandbox_is_kept_as_text_picture_and_html() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.send_request("run", json!({ "command": SERVE })).await;
    assert_eq!(socket.observation("run").await["extras"]["exit_code"], 0);
    socket.send_request("browse", json!({ "url": "http://127.0.0.1:8123/" })).await;
    let page = socket
        .until("the end of the load", |frame| frame["observation"] == "browse" || frame["observation"] == "error")
        .await;
    let extras = &page["extras"];
    assert_eq!((&extras["title"], &extras["plain"]), (&json!("Inside"), &Value::Null), "{page}");
    assert_eq!(page["content"].as_str().map(str::trim), Some("New"), "{page}");

    let kept = |field: &str| extras[field].as_str().expect("the page is kept").to_owned();
    let picture = server.rest.request(Method::GET, &kept("screenshot")).send().await.expect("the server answers");
    assert_eq!(picture.headers()["content-type"], "image/jpeg");
    let picture = picture.bytes().await.expect("the picture arrives");
    assert!(picture.starts_with(&[0xff, 0xd8, 0xff]) && picture.ends_with(&[0xff, 0xd9]), "{} bytes", picture.len());
    let html = server.rest.request(Method::GET, &kept("html")).send().await.expect("the server answers");
    assert_eq!(html.headers()["content-type"], "application/octet-stream", "no page of this origin");
    assert!(html.text().await.expect("text").contains(r#"<p id="p">New"#));
    server.leaves_nothing().await;
}

//! Analyzer `http`: a service judges each call. Without a usable answer, the risk is high.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use greenroom_testkit::rest::send;

use crate::approvals::ApprovalTest;

/// Service of a test: answers each request with `answer`, and keeps the requests as text.
struct JudgingService {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
    /// Whole answer to the next requests, head and body. Empty: none.
    answer: Arc<Mutex<Vec<u8>>>,
}

impl JudgingService {
    async fn start() -> JudgingService {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let url = format!("http://{}/analyze", listener.local_addr().expect("it is bound"));
        let service = JudgingService { url, requests: Arc::default(), answer: Arc::default() };
        let (requests, answer) = (service.requests.clone(), service.answer.clone());
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, requests.clone(), answer.clone()));
            }
        });
        service
    }

    fn answer(&self, head: &str, body: &str) {
        let answer = format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let mut current = self.answer.lock().expect("lock is never poisoned: no holder panics");
        *current = answer.into_bytes();
    }

    fn answer_json(&self, body: &Value) {
        self.answer("200 OK\r\ncontent-type: application/json", &body.to_string());
    }

    /// Leaves further requests without an answer.
    fn hang(&self) {
        self.answer.lock().expect("lock is never poisoned: no holder panics").clear();
    }

    fn last_request(&self) -> String {
        self.requests.lock().expect("lock is never poisoned: no holder panics").last().cloned().unwrap_or_default()
    }

    async fn fixture(&self) -> ApprovalTest {
        let session = json!({ "mode": "auto", "analyzer": "http" });
        let with_service = |options: greenroom_testkit::server::TestServerOptions| {
            options.env("GREENROOM_APPROVALS__HTTP__URL", &self.url).env("GREENROOM_APPROVALS__HTTP__TIMEOUT", "1s")
        };
        ApprovalTest::start_with(session, with_service).await
    }
}

async fn serve(mut connection: TcpStream, requests: Arc<Mutex<Vec<String>>>, answer: Arc<Mutex<Vec<u8>>>) {
    let mut request = Vec::new();
    while !is_whole(&request) {
        let mut part = [0; 4096];
        match connection.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(read) => request.extend_from_slice(&part[..read]),
        }
    }
    let text = String::from_utf8_lossy(&request).into_owned();
    requests.lock().expect("lock is never poisoned: no holder panics").push(text);
    let answer = answer.lock().expect("lock is never poisoned: no holder panics").clone();
    if answer.is_empty() {
        // Open until the client leaves.
        let _left = connection.read(&mut [0; 1]).await;
        return;
    }
    // The client may leave before the end of a large answer.
    let _left = connection.write_all(&answer).await;
}

/// Returns true if head and body of a request have arrived.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(str::to_owned));
    length.is_none_or(|length| length.trim().parse().is_ok_and(|length: usize| body.len() >= length))
}

#[tokio::test]
async fn service_judges_each_call() {
    let service = JudgingService::start().await;
    service.answer_json(&json!({ "level": "low", "reasons": [] }));
    let mut fixture = service.fixture().await;
    fixture.say("make the mark").await;
    fixture.turn_ends().await;
    assert!(fixture.has("mark"), "a low risk runs");
    std::fs::remove_file(fixture.workspace().join("mark")).expect("the file exists");
    let asked = service.last_request();
    assert!(asked.starts_with("POST /analyze ") && asked.contains("touch mark"), "{asked}");
    assert!(asked.contains(&fixture.session) && !asked.contains(&fixture.server.rest.token), "{asked}");

    service.answer_json(&json!({ "level": "high", "reasons": ["no marks\u{7} today"] }));
    let request = fixture.asked("make the mark").await;
    let risk = &request["extras"]["risk"];
    assert_eq!((&risk["level"], &risk["analyzer"]), (&"high".into(), &"http".into()), "{request}");
    assert!(!risk["reasons"][0].as_str().expect("a reason").contains('\u{7}'), "{request}");
    fixture.confirm(&request, json!({ "decision": "deny" })).await;
    fixture.turn_ends().await;
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn service_without_a_usable_answer_fails_closed() {
    let service = JudgingService::start().await;
    let mut fixture = service.fixture().await;
    let large = format!("{{\"level\":\"low\",\"reasons\":[\"{}\"]}}", "x".repeat(4 << 20));
    for fault in ["hang", "lie", "error", "large", "redirect"] {
        match fault {
            "hang" => service.hang(),
            "lie" => service.answer("200 OK", r#"{"level":"harmless"}"#),
            "error" => service.answer("500 Internal Server Error", r#"{"level":"low"}"#),
            "large" => service.answer("200 OK", &large),
            _ => service.answer("302 Found\r\nlocation: http://127.0.0.1:1/", ""),
        }
        let request = fixture.asked("make the mark").await;
        assert_eq!(request["extras"]["risk"]["level"], "high", "{fault}: {request}");
        fixture.confirm(&request, json!({ "decision": "deny" })).await;
        fixture.turn_ends().await;
        assert!(!fixture.has("mark"), "{fault}");
    }
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn request_passes_to_the_service_without_credentials() {
    let service = JudgingService::start().await;
    let fixture = service.fixture().await;
    let page = "200 OK\r\ncontent-type: text/html\r\nset-cookie: a=b\r\naccess-control-allow-origin: *";
    service.answer(page, "<script>alert(1)</script>");
    let path = fixture.path("/security/x/rules/mine?page=2");
    let browser = fixture.server.rest.sign_in().await;
    let reply = send(fixture.server.rest.as_browser(&browser, Method::GET, &path).header("x-mine", "1")).await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "<script>alert(1)</script>"));
    assert_eq!(reply.headers["content-type"], "application/octet-stream");
    assert_eq!(reply.headers["x-content-type-options"], "nosniff");
    assert!(reply.headers["content-disposition"].to_str().expect("text").starts_with("attachment"));
    for name in ["set-cookie", "access-control-allow-origin"] {
        assert!(!reply.headers.contains_key(name), "{:?}", reply.headers);
    }
    let passed = service.last_request();
    assert!(passed.starts_with("GET /analyze/rules/mine?page=2 "), "{passed}");
    for secret in [&browser.secret, &browser.cookie, &fixture.server.rest.token, "x-mine", "cookie", "authorization"] {
        assert!(!passed.to_ascii_lowercase().contains(&secret.to_ascii_lowercase()), "{secret} in {passed}");
    }

    service.answer_json(&json!({ "ok": true }));
    let posted = fixture.server.rest.post(&fixture.path("/security/x/rules"), json!({ "a": 1 })).await;
    assert_eq!(posted.expect(200), json!({ "ok": true }));
    assert!(service.last_request().ends_with(r#"{"a":1}"#), "{}", service.last_request());
    service.answer("401 Unauthorized", "{}");
    fixture.server.rest.get(&path).await.error(502, "analyzer_failed");
    for outside in ["../secret", "a/../../secret", "%2e%2e/secret"] {
        let reply = fixture.server.rest.get(&fixture.path(&format!("/security/x/{outside}"))).await;
        assert!(reply.status == 400 || reply.status == 404, "{outside}: {} {}", reply.status, reply.text);
        assert!(!service.last_request().contains("/secret"), "{outside}: {}", service.last_request());
    }
    let large = json!({ "a": "x".repeat(1 << 20) });
    fixture.server.rest.post(&fixture.path("/security/x/rules"), large).await.error(413, "too_large");

    let other = fixture.server.rest.create(json!({ "analyzer": "rules" })).await;
    let reply = fixture.server.rest.get(&format!("/api/sessions/{other}/security/x/rules")).await;
    assert!(reply.error(404, "not_found").contains("`http`"));
    fixture.server.leaves_nothing().await;
}

use std::{io, net::SocketAddr};

use greenroom_protocol::Action;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use super::*;
use crate::config::TimeSpan;

/// Service that reads each request and answers with fixed bytes.
struct ScriptedService {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<String>,
}

impl ScriptedService {
    /// Answers with `answer`. Without one, never answers.
    async fn start(answer: Option<Vec<u8>>) -> ScriptedService {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("the listener has an address");
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer_one(stream, answer.clone(), sender.clone()));
            }
        });
        ScriptedService { address, requests }
    }

    async fn answering(status: &str, body: &str) -> ScriptedService {
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        ScriptedService::start(Some(text.into_bytes())).await
    }

    fn analyzer(&self) -> HttpAnalyzer {
        analyzer(&format!("http://{}/risk/v1", self.address))
    }
}

async fn answer_one(
    mut stream: TcpStream,
    answer: Option<Vec<u8>>,
    requests: mpsc::UnboundedSender<String>,
) -> io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece).await?;
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if read == 0 || body.len() >= length.unwrap_or(0) {
            // The test may have ended.
            let _is_read = requests.send(text);
            break;
        }
    }
    match answer {
        Some(answer) => stream.write_all(&answer).await,
        None => std::future::pending().await,
    }
}

fn analyzer(url: &str) -> HttpAnalyzer {
    let config = HttpAnalyzerConfig { url: url.to_owned(), timeout: TimeSpan(Duration::from_secs(5)) };
    HttpAnalyzer::new(&config).expect("the client is built")
}

async fn assess(analyzer: &HttpAnalyzer) -> RiskAssessment {
    let call = Action::Run { command: "git push".to_owned() };
    analyzer.assess(AssessedCall { call: &call, session: "s1", workspace: "/workspace", agent: "greenroom" }).await
}

/// Asserts that the answer leads to a high risk with a reason.
async fn check_fails_closed(service: ScriptedService, reason: &str) {
    let found = assess(&service.analyzer()).await;
    assert_eq!((found.level, found.analyzer.as_str()), (RiskLevel::High, "http"));
    assert!(found.reasons.len() == 1 && found.reasons[0].contains(reason), "{found:?}");
}

#[tokio::test]
async fn service_gets_the_call_and_decides() {
    let mut service = ScriptedService::answering("200 OK", r#"{"level":"medium","reasons":["pushes"]}"#).await;
    let found = assess(&service.analyzer()).await;
    assert_eq!((found.level, found.reasons), (RiskLevel::Medium, vec!["pushes".to_owned()]));
    let request = service.requests.recv().await.expect("the service got a request");
    let (head, body) = request.split_once("\r\n\r\n").expect("the request has a body");
    assert!(head.starts_with("POST /risk/v1 HTTP/1.1"), "{head}");
    let lower = head.to_lowercase();
    assert!(!lower.contains("authorization") && !lower.contains("cookie"), "{head}");
    let body: serde_json::Value = serde_json::from_str(body).expect("the body is JSON");
    let call = json!({ "action": "run", "args": { "command": "git push" } });
    assert_eq!(body, json!({ "session": "s1", "call": call, "workspace": "/workspace", "agent": "greenroom" }));
}

#[tokio::test]
async fn invalid_answers_have_a_high_risk() {
    check_fails_closed(ScriptedService::answering("200 OK", "yes").await, "is no assessment").await;
    check_fails_closed(ScriptedService::answering("200 OK", r#"{"level":"none"}"#).await, "is no assessment").await;
    check_fails_closed(ScriptedService::answering("200 OK", r#"{"reasons":[]}"#).await, "is no assessment").await;
    check_fails_closed(ScriptedService::answering("500 Oops", r#"{"level":"low"}"#).await, "status 500").await;
    check_fails_closed(ScriptedService::start(Some(b"garbage\r\n\r\n".to_vec())).await, "no assessment").await;
    check_fails_closed(ScriptedService::start(Some(Vec::new())).await, "no assessment").await;
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"level\":\"low\"}";
    check_fails_closed(ScriptedService::start(Some(short.as_bytes().to_vec())).await, "no assessment").await;
}

#[tokio::test]
async fn redirect_is_not_followed() {
    let mut target = ScriptedService::answering("200 OK", r#"{"level":"low"}"#).await;
    let answer = format!("HTTP/1.1 307 Elsewhere\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n", target.address);
    check_fails_closed(ScriptedService::start(Some(answer.into_bytes())).await, "status 307").await;
    assert!(target.requests.try_recv().is_err(), "the call went to another address");
}

#[tokio::test]
async fn answer_without_end_is_cut() {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n".to_vec();
    answer.resize(answer.len() + 4 * ASSESSMENT_LIMIT, b' ');
    check_fails_closed(ScriptedService::start(Some(answer)).await, "larger than 65536 bytes").await;
}

#[tokio::test(start_paused = true)]
async fn hanging_service_has_a_high_risk_after_the_time_limit() {
    check_fails_closed(ScriptedService::start(None).await, "no answer within 5 s").await;
}

#[tokio::test]
async fn missing_service_has_a_high_risk() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener has an address");
    drop(listener);
    let found = assess(&analyzer(&format!("http://{address}/"))).await;
    assert_eq!(found.level, RiskLevel::High);
    assert!(found.reasons[0].contains("no assessment"), "{found:?}");
}

#[tokio::test]
async fn requests_are_passed_below_the_address() {
    let mut service = ScriptedService::answering("201 Created", r#"{"a":1}"#).await;
    let request = PassedRequest {
        method: "PUT".to_owned(),
        path: "policies/7".to_owned(),
        query: Some("dry=1".to_owned()),
        content_type: Some("text/plain".to_owned()),
        body: Bytes::from_static(b"hello"),
    };
    let response = service.analyzer().pass(request).await.expect("the service answers");
    let content_type = Some("application/json".to_owned());
    assert_eq!(response, PassedResponse { status: 201, content_type, body: Bytes::from_static(b"{\"a\":1}") });
    let sent = service.requests.recv().await.expect("the service got a request");
    assert!(sent.starts_with("PUT /risk/v1/policies/7?dry=1 HTTP/1.1"), "{sent}");
    assert!(sent.ends_with("hello") && sent.to_lowercase().contains("content-type: text/plain"), "{sent}");
    assert!(!sent.to_lowercase().contains("authorization"), "{sent}");
}

#[tokio::test]
async fn requests_elsewhere_are_rejected() {
    let service = ScriptedService::answering("200 OK", "{}").await;
    for path in [
        "",
        "..",
        "../other",
        "a/../../other",
        "%2e%2e/other",
        "a\\..\\..",
        "a/%2E%2E/%2e%2e/b",
        "..%2fother",
        "..%5cother",
        "..;/other",
        "%252e%252e%252fother",
        "a/%ff",
    ] {
        let request = PassedRequest { method: "GET".to_owned(), path: path.to_owned(), ..PassedRequest::default() };
        let result = service.analyzer().pass(request).await;
        assert!(matches!(result, Err(PassError::BadPath)), "{path}: {result:?}");
    }
    let request = PassedRequest { method: "CONNECT".to_owned(), path: "a".to_owned(), ..PassedRequest::default() };
    assert!(matches!(service.analyzer().pass(request).await, Err(PassError::BadMethod(_))));
    let mut large = b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n".to_vec();
    large.resize(large.len() + 2 * PASSED_LIMIT, b' ');
    let service = ScriptedService::start(Some(large)).await;
    let request = PassedRequest { method: "GET".to_owned(), path: "a".to_owned(), ..PassedRequest::default() };
    assert!(matches!(service.analyzer().pass(request).await, Err(PassError::TooLarge { .. })));
}

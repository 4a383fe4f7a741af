//! HTTP at the level of bytes: requests that cannot be parsed, `HEAD`, and text that imitates an
//! answer.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    server::{TestServer, TestServerOptions},
    within,
};

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

/// Answer as it came over the wire.
struct RawAnswer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl RawAnswer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> = lines.filter(|(found, _)| *found == name).map(|(_, value)| value).collect();
        assert!(values.len() < 2, "`{name}` is repeated: {}", self.head);
        values.first().copied()
    }

    /// Checks the common form of an error and returns its code.
    fn error_code(&self, what: &str) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{what}: no JSON ({e})"));
        assert_eq!(self.header("content-type"), Some("application/json"), "{what}");
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"), "{what}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{what}");
        assert!(
            self.header("content-security-policy").is_some_and(|it| it.starts_with("default-src 'none'")),
            "{what}"
        );
        assert!(
            body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{what}: {} {body}",
            self.head
        );
        body["error"]["code"].as_str().expect("an error has a code").to_owned()
    }
}

async fn connect(server: &TestServer) -> TcpStream {
    TcpStream::connect(&server.rest.authority).await.expect("the server listens")
}

async fn send(connection: &mut TcpStream, request: &[u8]) {
    // A server that has answered may have hung up.
    let _sent_or_answered = connection.write_all(request).await;
}

/// Reads an answer with the length that its head states.
async fn receive(connection: &mut TcpStream, is_head_request: bool) -> RawAnswer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = within("an answer", connection.read_u8()).await;
        head.push(byte.unwrap_or_else(|e| panic!("{e} after {:?}", String::from_utf8_lossy(&head))));
    }
    let head = String::from_utf8(head).expect("a head is text");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
    let mut answer = RawAnswer { status, head, body: Vec::new() };
    if !is_head_request {
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        answer.body = vec![0; length];
        within("the body", connection.read_exact(&mut answer.body)).await.expect("the body arrives");
    }
    answer
}

/// Reads to the end of the connection.
async fn rest_of(connection: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _closed_or_reset = within("the end", connection.read_to_end(&mut rest)).await;
    rest
}

/// Browser that opens an address of the page, with headers that the server cannot parse.
#[tokio::test]
async fn browser_gets_the_error_of_an_unparsed_request_as_a_page() {
    let server = server().await;
    let accept = "accept: text/html,application/xhtml+xml\r\n";
    let head = |path: &str, rest: &str| {
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{accept}{rest}", server.rest.authority).into_bytes()
    };
    let large = format!("cookie: {}", "y".repeat(200_000));
    for (what, request, status, text) in [
        ("a head that is too large", head("/sessions", &large), 431, "The head of the request is too large."),
        ("a header without a colon", head("/", "nonsense\r\n\r\n"), 400, "The request is not valid HTTP/1.1."),
    ] {
        let mut connection = connect(&server).await;
        send(&mut connection, &request).await;
        let answer = receive(&mut connection, false).await;
        let page = String::from_utf8_lossy(&answer.body);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, Some("text/html; charset=utf-8")),
            "{what}"
        );
        assert!(
            page.contains(text) && page.contains(r#"<link rel="stylesheet" href="/assets/style-"#),
            "{what}: {page}"
        );
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{what}");
    }
    let mut connection = connect(&server).await;
    send(&mut connection, &head("/api/sessions", "nonsense\r\n\r\n")).await;
    assert_eq!(receive(&mut connection, false).await.error_code("the API"), "invalid_args");
}

#[tokio::test]
async fn request_that_cannot_be_parsed_gets_an_error_in_the_common_form() {
    let server = server().await;
    let host = format!("host: {}\r\n", server.rest.authority);
    let with_host = |line: &str, headers: &str| format!("{line}\r\n{host}{headers}\r\n").into_bytes();
    let get = "GET /healthz HTTP/1.1";
    // Without an end, as the library accepts a large head that arrives in one read.
    let too_large = format!("{get}\r\n{host}x: {}", "y".repeat(200_000)).into_bytes();
    let table: [(&str, Vec<u8>, u16, &str); 12] = [
        ("no HTTP", b"hello\r\n\r\n".to_vec(), 400, "invalid_args"),
        ("another protocol", b"\x16\x03\x01\x02\x00\x01\r\n\r\n".to_vec(), 400, "invalid_args"),
        ("no version", with_host("GET /healthz", ""), 400, "invalid_args"),
        ("another version", with_host("GET /healthz HTTP/3.7", ""), 400, "invalid_args"),
        ("no host", format!("{get}\r\n\r\n").into_bytes(), 400, "invalid_args"),
        ("two hosts", with_host(get, &host), 400, "invalid_args"),
        ("a header without a colon", with_host(get, "nonsense\r\n"), 400, "invalid_args"),
        ("a null in a header", with_host(get, "x: \0\r\n"), 400, "invalid_args"),
        (
            "an address with bytes that are not UTF-8",
            [b"GET /\xff HTTP/1.1\r\n", host.as_bytes(), b"\r\n"].concat(),
            400,
            "invalid_args",
        ),
        (
            "two lengths",
            with_host("POST /api/sessions HTTP/1.1", "content-length: 1\r\ncontent-length: 2\r\n"),
            400,
            "invalid_args",
        ),
        (
            "a length and chunks",
            with_host("POST /api/sessions HTTP/1.1", "content-length: 1\r\ntransfer-encoding: chunked\r\n"),
            400,
            "invalid_args",
        ),
        ("a head without end", too_large, 431, "too_large"),
    ];
    for (what, request, status, code) in table {
        let mut connection = connect(&server).await;
        send(&mut connection, &request).await;
        let answer = receive(&mut connection, false).await;
        assert_eq!((answer.status, answer.error_code(what).as_str()), (status, code), "{what}: {}", answer.head);
        assert_eq!(answer.header("connection"), Some("close"), "{what}");
        assert!(rest_of(&mut connection).await.is_empty(), "{what}");

        // The same after an answer of the application.
        let mut connection = connect(&server).await;
        send(&mut connection, &with_host(get, "")).await;
        assert_eq!(receive(&mut connection, false).await.status, 200, "{what}");
        send(&mut connection, &request).await;
        let answer = receive(&mut connection, false).await;
        assert_eq!((answer.status, answer.error_code(what).as_str()), (status, code), "later: {what}");
    }
}

/// A file that looks like an answer of the server arrives byte for byte.
#[tokio::test]
async fn download_that_imitates_an_answer_is_not_changed() {
    let server = server().await;
    let session = server.rest.create(json!({})).await;
    let file = format!("/api/sessions/{session}/files/answer");
    let bearer = format!("host: {}\r\nauthorization: Bearer {}\r\n", server.rest.authority, server.rest.token);
    let imitation = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
    let mut connection = connect(&server).await;
    for content in [imitation.to_owned(), imitation.repeat(3), format!("{}{imitation}", "x".repeat(100_000))] {
        let put = format!("PUT {file} HTTP/1.1\r\n{bearer}content-length: {}\r\n\r\n{content}", content.len());
        send(&mut connection, put.as_bytes()).await;
        let put = receive(&mut connection, false).await;
        assert!([200, 201].contains(&put.status), "{}", put.head);
        for _ in 0..2 {
            send(&mut connection, format!("GET {file} HTTP/1.1\r\n{bearer}\r\n").as_bytes()).await;
            let answer = receive(&mut connection, false).await;
            assert!(answer.status == 200 && answer.body == content.as_bytes(), "{}", answer.head);
        }
    }
}

#[tokio::test]
async fn head_answers_as_get_does_without_a_body() {
    let server = server().await;
    let session = server.rest.create(json!({})).await;
    let events = format!("/api/sessions/{session}/events");
    let bearer = format!("host: {}\r\nauthorization: Bearer {}\r\n", server.rest.authority, server.rest.token);
    let sse = "accept: text/event-stream\r\n";
    for (path, accept) in [("/healthz", ""), ("/metrics", ""), (&*events, ""), (&*events, sse), ("/nothing", "")] {
        let mut connection = connect(&server).await;
        send(&mut connection, format!("HEAD {path} HTTP/1.1\r\n{bearer}{accept}\r\n").as_bytes()).await;
        let head = receive(&mut connection, true).await;
        let expected = if path == "/nothing" { 404 } else { 200 };
        assert_eq!(head.status, expected, "{path}: {}", head.head);
        assert!(head.header("content-security-policy").is_some());
        let is_stream = head.header("content-type") == Some("text/event-stream");
        assert_eq!(is_stream, !accept.is_empty(), "{path}");
        // A byte too many would be part of the next answer.
        match is_stream {
            true => assert!(rest_of(&mut connection).await.is_empty(), "{path}"),
            false => {
                send(&mut connection, format!("GET /healthz HTTP/1.1\r\n{bearer}\r\n").as_bytes()).await;
                assert_eq!(receive(&mut connection, false).await.status, 200, "{path}");
            }
        }
    }
    // The stream that `HEAD` began has ended.
    let streams = || async {
        let rows = server.rest.get("/api/admin/actors").await.expect(200);
        rows["items"].as_array().expect("rows").iter().filter(|row| row["kind"] == "event_stream").count()
    };
    eventually("the event stream to end", || async { streams().await == 0 }).await;
}

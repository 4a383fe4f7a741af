//! TLS of the server itself: page, REST and sockets, errors of the files, and the warning without
//! TLS.

use reqwest::{Method, header};
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    rest::send,
    server::{FailedServerStart, TestServer, TestServerOptions},
    socket::TestSocket,
    tls::TestCertificate,
};

use crate::streams::SseClient;

fn with_tls(cert: &std::path::Path, key: &std::path::Path) -> TestServerOptions {
    let setting = format!("{{ cert = {cert:?}, key = {key:?} }}");
    TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__TLS", &setting)
}

#[tokio::test]
async fn every_way_to_the_server_is_encrypted() {
    let (certificate, dir) = (TestCertificate::new(), tempfile::tempdir().expect("a temporary directory"));
    let (cert, key) = certificate.write(dir.path());
    let server = TestServer::start(with_tls(&cert, &key)).await;
    let rest = server.rest.trusting(&certificate);
    let signed_in = send(rest.bare(Method::GET, &format!("/?token={}", rest.token))).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
    let cookie = signed_in.headers[header::SET_COOKIE].to_str().expect("the header is text");
    assert!(cookie.starts_with("__Host-") && cookie.contains("; Secure"), "{cookie}");
    let browser = rest.sign_in().await;
    for (origin, expected) in [(rest.origin(), 201), (format!("http://{}", rest.authority), 403)] {
        let request = rest.bare(Method::POST, "/api/sessions").header("cookie", &browser.cookie);
        let request = request.header("x-greenroom-secret", &browser.secret).header("origin", &origin);
        assert_eq!(send(request.json(&json!({}))).await.status, expected, "{origin}");
    }

    // A socket moves to the thread of its session, with the state of its encryption.
    let mut socket = TestSocket::open(&rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    let mut stream = SseClient::open(&rest, &session, "?after=tail", None).await;
    let text = "0123456789".repeat(40 << 10);
    for path in ["one.txt", "two.txt", "three.txt"] {
        socket.send_request("write", json!({ "path": path, "content": text })).await;
        socket.observation("write").await;
        stream.until(|data| data["observation"] == "write").await;
    }
    let read = rest.get(&format!("/api/sessions/{session}/files/two.txt")).await;
    assert!(read.status == 200 && read.text == text, "{} bytes", read.text.len());
    let mut others = Vec::new();
    for _ in 0..20 {
        let mut other = TestSocket::attach(&rest, &session).await;
        other.status("synced").await;
        others.push(other);
    }
    let plain = server.rest.bare(Method::GET, "/healthz").send().await;
    assert!(plain.is_err(), "the port speaks TLS only: {plain:?}");
}

#[tokio::test]
async fn unusable_files_end_the_start() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let (cert, key) = TestCertificate::new().write(home.path());
    let missing = home.path().join("missing.pem");
    let check = |failed: FailedServerStart, parts: &[&str]| {
        assert_eq!((failed.code, failed.stdout.as_str()), (Some(1), ""), "{failed:?}");
        parts.iter().for_each(|part| assert!(failed.stderr.contains(part), "no {part:?} in {}", failed.stderr));
    };
    let start = async |cert: &std::path::Path, key: &std::path::Path| {
        TestServer::refused(home.path(), &with_tls(cert, key)).await
    };
    check(start(&missing, &key).await, &["missing.pem` of `server.tls`", "certificate chain in PEM format"]);
    check(start(&cert, &missing).await, &["missing.pem` of `server.tls`", "private key in PEM format"]);
    check(start(&key, &cert).await, &["key.pem` of `server.tls` contains no certificate"]);
    let wrong = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__TLS", "on");
    let failed = TestServer::refused(home.path(), &wrong).await;
    assert_eq!(failed.code, Some(2), "{failed:?}");
    assert!(failed.stderr.contains("`server.tls`") && failed.stderr.contains("must be `off`"), "{}", failed.stderr);
}

#[tokio::test]
async fn start_warns_off_loopback_without_tls() {
    const WARNING: &str = "reachable from other machines without TLS";
    let (certificate, dir) = (TestCertificate::new(), tempfile::tempdir().expect("a temporary directory"));
    let (cert, key) = certificate.write(dir.path());
    let plain = TestServerOptions::new(TestDriver::Process);
    let all = |options: TestServerOptions| options.bind("0.0.0.0:0");
    let behind_proxy = all(plain.clone()).env("GREENROOM_SERVER__TRUSTED_PROXIES", "10.0.0.0/8");
    let cases =
        [(plain.clone(), false), (all(plain), true), (behind_proxy, false), (all(with_tls(&cert, &key)), false)];
    for (options, expected) in cases {
        let server = TestServer::start(options).await;
        let log = server.log();
        assert_eq!(log.contains(WARNING), expected, "{log}");
        assert!(!expected || log.contains("`server.tls`") && log.contains("`server.trusted_proxies`"), "{log}");
    }
}

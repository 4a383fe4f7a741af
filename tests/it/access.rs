//! Access control: without the token, a page of another origin, another local user and a
//! DNS-rebinding name get nothing.

use reqwest::Method;
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    rest::{SignedInClient, send},
    server::{TestServer, TestServerOptions},
    socket::{HandshakeHeaders, TestSocket},
};

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

#[tokio::test]
async fn access_follows_token_and_origin() {
    let server = server().await;
    let own = format!("http://{}", server.rest.authority);
    let bearer = format!("Bearer {}", server.rest.token);
    let wrong = format!("Bearer {}x", server.rest.token);
    let SignedInClient { cookie, secret } = server.rest.sign_in().await;
    let (cookie, secret) = (("cookie", cookie.as_str()), ("x-greenroom-secret", secret.as_str()));
    let table: [(&str, HandshakeHeaders<'_>, u16); 15] = [
        ("GET", &[], 401),
        ("GET", &[cookie], 401),
        ("GET", &[secret], 401),
        ("POST", &[cookie, ("origin", &own)], 401),
        ("POST", &[secret, ("origin", &own)], 401),
        ("GET", &[("authorization", &wrong)], 401),
        ("GET", &[("authorization", &bearer)], 200),
        ("GET", &[cookie, secret], 200),
        ("GET", &[("authorization", &bearer), ("host", "evil.test")], 403),
        ("GET", &[cookie, secret, ("sec-fetch-site", "cross-site")], 403),
        ("POST", &[], 401),
        ("POST", &[("authorization", &bearer), ("origin", "https://evil.test")], 403),
        ("POST", &[cookie, secret, ("origin", "https://evil.test")], 403),
        ("POST", &[cookie, secret, ("origin", "null")], 403),
        ("POST", &[cookie, secret, ("origin", &own)], 201),
    ];
    for (method, headers, expected) in table {
        let method: Method = method.parse().expect("a method");
        let mut request = server.rest.bare(method.clone(), "/api/sessions");
        if method == Method::POST {
            request = request.json(&json!({}));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let reply = send(request).await;
        assert_eq!(reply.status, expected, "{method} {headers:?}: {}", reply.text);
        assert!(!reply.text.contains(&server.rest.token), "{method} {headers:?}");
    }
}

#[tokio::test]
async fn forms_of_other_pages_change_nothing() {
    let server = server().await;
    let browser = server.rest.sign_in().await;
    for content_type in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"] {
        let request = server.rest.as_browser(&browser, Method::POST, "/api/sessions");
        let reply = send(request.header("content-type", content_type).body(r#"{"title":"forged"}"#)).await;
        assert!(reply.status.is_client_error(), "{content_type}: {}", reply.status);
    }
    assert_eq!(server.rest.get("/api/sessions").await.expect(200)["total"], 0);
}

#[tokio::test]
async fn sockets() {
    let server = server().await;
    let authority = server.rest.authority.clone();
    let port = authority.rsplit(':').next().expect("a port");
    let own = format!("http://{authority}");
    let bearer = format!("Bearer {}", server.rest.token);
    let browser = server.rest.sign_in().await;
    let (cookie, protocols) = (browser.cookie.as_str(), browser.protocols());
    let secret = ("sec-websocket-protocol", protocols.as_str());
    let other_port = "http://127.0.0.1:1";
    let suffix = format!("http://{authority}.evil.test");
    let scheme = format!("https://{authority}");
    let rebound = format!("evil.test:{port}");
    let table: [(&str, HandshakeHeaders<'_>, Option<u16>); 14] = [
        ("no token", &[], Some(4401)),
        ("a token of somebody else", &[("authorization", "Bearer wrong")], Some(4401)),
        ("the bearer token", &[("authorization", &bearer)], None),
        ("the cookie alone", &[("cookie", cookie), ("origin", &own)], Some(4401)),
        ("the secret alone", &[secret, ("origin", &own)], Some(4401)),
        ("no page", &[("cookie", cookie), secret], Some(403)),
        ("our page", &[("cookie", cookie), secret, ("origin", &own)], None),
        ("another origin", &[("cookie", cookie), secret, ("origin", "https://evil.test")], Some(403)),
        ("another origin with the token", &[("authorization", &bearer), ("origin", "https://evil.test")], Some(403)),
        ("no origin to speak of", &[("cookie", cookie), secret, ("origin", "null")], Some(403)),
        ("another port", &[("cookie", cookie), secret, ("origin", other_port)], Some(403)),
        ("a suffix", &[("cookie", cookie), secret, ("origin", &suffix)], Some(403)),
        ("another scheme", &[("cookie", cookie), secret, ("origin", &scheme)], Some(403)),
        ("a rebound name", &[("authorization", &bearer), ("host", &rebound)], Some(403)),
    ];
    for (what, headers, expected) in table {
        let refused = match TestSocket::handshake(&server.rest, "/ws", headers).await {
            Ok(mut socket) => match socket.next_or_close().await {
                Ok(frame) => {
                    assert_eq!(frame["status"], "hello", "{what}");
                    None
                }
                Err(code) => code,
            },
            Err(status) => Some(status),
        };
        assert_eq!(refused, expected, "{what}");
    }
}

#[tokio::test]
async fn replaced_token_is_rejected_everywhere() {
    let server = server().await;
    let session = server.rest.create(json!({})).await;
    let browser = server.rest.sign_in().await;
    let mut attached = TestSocket::attach(&server.rest, &session).await;
    let mut idle = TestSocket::open(&server.rest).await;
    idle.status("hello").await;
    let new = server.renew_token().await;
    assert_eq!((attached.closed().await, idle.closed().await), (Some(4401), Some(4401)));
    assert_eq!(server.rest.get("/api/sessions").await.status, 401);
    let with = |name: &'static str, value: String| server.rest.bare(Method::GET, "/api/sessions").header(name, value);
    assert_eq!(send(server.rest.as_browser(&browser, Method::GET, "/api/sessions")).await.status, 401);
    assert_eq!(send(with("authorization", format!("Bearer {new}"))).await.expect(200)["total"], 1);
    assert!(!server.log().contains(&new) && !server.log().contains(&server.rest.token));
}

/// A flood of guesses does not become a flood of lines.
#[tokio::test]
async fn wrong_tokens_are_reported_with_count_and_address() {
    let server = server().await;
    for _ in 0..4 {
        let guess = server.rest.bare(Method::GET, "/api/sessions").bearer_auth("a-wrong-token-0123");
        assert_eq!(send(guess).await.status, 401);
    }
    let log = server.log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("with a wrong token")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let warning: serde_json::Value = serde_json::from_str(warnings[0]).expect("a line of the log is JSON");
    assert_eq!((&warning["level"], &warning["count"]), (&json!("WARN"), &json!(1)), "{warning}");
    assert_eq!(warning["address"], "127.0.0.1");
    assert!(!log.contains("a-wrong-token-0123"), "the guess is not logged");
}

#[tokio::test]
async fn only_healthz_needs_no_token() {
    let server = server().await;
    assert_eq!(send(server.rest.bare(Method::GET, "/healthz")).await.status, 200);
    for path in ["/readyz", "/metrics", "/api/options", "/api/admin/actors", "/api/openapi.json"] {
        assert_eq!(send(server.rest.bare(Method::GET, path)).await.status, 401, "{path}");
        assert_eq!(server.rest.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn token_is_never_logged() {
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_LOG__LEVEL", "trace");
    let server = TestServer::start(options).await;
    let browser = server.rest.sign_in().await;
    let session = server.rest.create(json!({})).await;
    let export = format!("/api/sessions/{session}/export");
    let ticket = server.rest.as_browser(&browser, Method::POST, "/api/tickets").json(&json!({ "path": export }));
    let ticket = send(ticket).await.expect(201)["ticket"].as_str().expect("a ticket").to_owned();
    send(server.rest.bare(Method::GET, &format!("{export}?ticket={ticket}"))).await;
    let own = format!("http://{}", server.rest.authority);
    let protocols = browser.protocols();
    let page = [("cookie", browser.cookie.as_str()), ("sec-websocket-protocol", &protocols), ("origin", &own)];
    drop(TestSocket::handshake(&server.rest, "/ws", &page).await.expect("the secret opens it"));
    send(server.rest.bare(Method::POST, "/api/sign-in").json(&json!({ "token": server.rest.token }))).await;
    let with_token = format!("/ws?token={}", server.rest.token);
    drop(TestSocket::handshake(&server.rest, &with_token, &[]).await.expect("the token opens it"));
    server.rest.get("/api/sessions").await.expect(200);
    let elsewhere = format!("/api/sessions?token={}", server.rest.token);
    send(server.rest.bare(Method::GET, &elsewhere)).await;
    let log = server.log();
    assert!(!log.is_empty(), "there is a log to look into");
    let cookie = browser.cookie.split_once('=').expect("a name and a value").1;
    for hidden in [&server.rest.token, &ticket, &browser.secret, cookie] {
        assert!(!log.contains(hidden), "the log has a token, a ticket or a secret");
    }
}

#[tokio::test]
async fn data_directory_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let server = server().await;
    let mode = |path: &std::path::Path| {
        std::fs::metadata(path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display())).permissions().mode() & 0o777
    };
    assert_eq!(mode(&server.data()), 0o700);
    assert_eq!(mode(&server.data().join("token")), 0o600);
    assert_eq!(mode(&server.data().join("browsers.json")), 0o600);
}

/// Case of `greenroom export | head`: nothing on stderr, and no exit code of a panic.
#[test]
fn closed_stdout_ends_a_command_without_error() {
    let data = tempfile::tempdir().expect("a temporary directory");
    for command in ["token", "export"] {
        let (gone, stdout) = std::io::pipe().expect("a pipe");
        drop(gone);
        let mut greenroom = std::process::Command::new(greenroom_testkit::greenroom_binary());
        let greenroom = greenroom.arg(command).arg("--data").arg(data.path()).env("GREENROOM_LOG__LEVEL", "error");
        let ended = greenroom.stdout(stdout).output().expect("the command runs");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*stderr), (Some(0), ""), "{command}");
    }
}

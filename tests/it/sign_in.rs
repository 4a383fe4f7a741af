//! Sign-in of browsers: who stays signed in, who is signed out, and the names of the server.

use reqwest::{Method, header};
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    rest::{SignedInClient, send},
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

async fn server() -> TestServer {
    TestServer::start(TestServerOptions::new(TestDriver::Process)).await
}

/// Opens a session socket as the page of a browser.
async fn page_socket(server: &TestServer, browser: &SignedInClient) -> Result<TestSocket, u16> {
    let (own, protocols) = (format!("http://{}", server.rest.authority), browser.protocols());
    let headers =
        [("cookie", browser.cookie.as_str()), ("sec-websocket-protocol", &protocols), ("origin", own.as_str())];
    TestSocket::handshake(&server.rest, "/ws", &headers).await
}

async fn status(server: &TestServer, browser: &SignedInClient) -> u16 {
    send(server.rest.as_browser(browser, Method::GET, "/api/sessions")).await.status.as_u16()
}

#[tokio::test]
async fn signed_out_browser_loses_its_sockets_and_no_other_does() {
    let server = server().await;
    let (first, second) = (server.rest.sign_in().await, server.rest.sign_in().await);
    let mut of_first = page_socket(&server, &first).await.expect("it is signed in");
    let mut of_second = page_socket(&server, &second).await.expect("it is signed in");
    of_first.status("hello").await;
    of_second.status("hello").await;
    let out = server.rest.as_browser(&first, Method::POST, "/api/sign-out").header("content-type", "application/json");
    assert_eq!(send(out).await.status, 204);
    assert_eq!(of_first.closed().await, Some(4401));
    assert_eq!((status(&server, &first).await, status(&server, &second).await), (401, 200));
    let mut again = page_socket(&server, &first).await.expect("a page reads only the close code");
    assert_eq!(again.closed().await, Some(4401));

    let rows = send(server.rest.as_browser(&second, Method::GET, "/api/browsers")).await.expect(200);
    let id = rows["items"][0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(rows["items"].as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(server.rest.delete(&format!("/api/browsers/{id}")).await.status, 204);
    assert_eq!(of_second.closed().await, Some(4401));
    assert_eq!(server.rest.get("/api/sessions").await.status, 200, "scripts are not affected");
}

#[tokio::test]
async fn sign_in_survives_a_restart_and_ends_with_the_token() {
    let server = server().await;
    let (stays, leaves) = (server.rest.sign_in().await, server.rest.sign_in().await);
    let out = server.rest.as_browser(&leaves, Method::POST, "/api/sign-out").header("content-type", "application/json");
    assert_eq!(send(out).await.status, 204);
    let server = server.kill9().await.restart().await;
    assert_eq!((status(&server, &stays).await, status(&server, &leaves).await), (200, 401));
    let mut open = page_socket(&server, &stays).await.expect("it is signed in");
    server.renew_token().await;
    assert_eq!(open.closed().await, Some(4401));
    assert_eq!(status(&server, &stays).await, 401);
    // Renewed while no server runs.
    let (_, stopped) = server.terminate().await;
    let server = stopped.restart().await;
    let browser = server.rest.sign_in().await;
    let (_, stopped) = server.terminate().await;
    stopped.run(&["token", "--renew"]).await.expect("the token is renewed");
    let server = stopped.restart().await;
    assert_eq!(status(&server, &browser).await, 401);
    assert_eq!(server.rest.get("/api/browsers").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn token_of_the_environment_signs_in_by_link_and_by_field() {
    let token = "environment-token-0123";
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_TOKEN", token);
    let server = TestServer::start(options).await;
    assert_eq!(server.rest.token, token);
    let by_link = server.rest.sign_in().await;
    let reply = send(server.rest.bare(Method::POST, "/api/sign-in").json(&json!({ "token": token }))).await;
    let set = reply.headers[header::SET_COOKIE].to_str().expect("text");
    let by_field = SignedInClient {
        cookie: set.split(';').next().expect("a cookie").to_owned(),
        secret: reply.expect(200)["secret"].as_str().expect("a secret").to_owned(),
    };
    for browser in [&by_link, &by_field] {
        assert_eq!(status(&server, browser).await, 200);
    }
    // The same token on another data directory admits, and derives other credentials.
    let other = TestServerOptions::new(TestDriver::Process).env("GREENROOM_TOKEN", token);
    let other = TestServer::start(other).await;
    let (own_name, other_name) = (&by_link.cookie, other.rest.sign_in().await.cookie);
    assert_ne!(own_name.split('=').next(), other_name.split('=').next(), "two servers under one name");
    let value = own_name.split_once('=').expect("a value").1;
    let renamed = format!("{}={value}", other_name.split('=').next().expect("a name"));
    let stolen = SignedInClient { cookie: renamed, secret: by_link.secret };
    assert_eq!(status(&other, &stolen).await, 401);
}

#[tokio::test]
async fn ticket_opens_one_export_without_the_secret() {
    let server = server().await;
    let browser = server.rest.sign_in().await;
    let session = server.rest.create(json!({ "title": "an export" })).await;
    let export = format!("/api/sessions/{session}/export?format=md");
    let ticket = async |path: &str| {
        send(server.rest.as_browser(&browser, Method::POST, "/api/tickets").json(&json!({ "path": path }))).await
    };
    let issued = ticket(&export).await.expect(201);
    let ticket_text = issued["ticket"].as_str().expect("a ticket");
    let follow = async |method: Method, path: String| send(server.rest.bare(method, &path)).await;
    let reply = follow(Method::GET, format!("{export}&ticket={ticket_text}")).await;
    assert!(reply.status == 200 && reply.text.contains("an export"), "{}", reply.text);
    for (method, path) in [
        (Method::GET, format!("/api/sessions/{session}/export?format=jsonl&ticket={ticket_text}")),
        (Method::GET, format!("/api/sessions/{session}?ticket={ticket_text}")),
        (Method::HEAD, format!("{export}&ticket={ticket_text}")),
        (Method::POST, format!("/api/sessions/{session}/pause?ticket={ticket_text}")),
    ] {
        assert_eq!(follow(method.clone(), path.clone()).await.status, 401, "{method} {path}");
    }
    assert_eq!(ticket("/api/admin/actors").await.status, 400);
}

/// Case of `ssh -L 8080:localhost:3000` and of `docker run -p`.
#[tokio::test]
async fn forwarded_port_serves_page_requests_and_sockets() {
    let server = server().await;
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "localhost"] {
        let own = format!("http://{host}");
        let link = server.rest.bare(Method::GET, &format!("/?token={}", server.rest.token)).header("host", host);
        assert_eq!(send(link).await.status, 200, "{host}");
        let browser = server.rest.sign_in().await;
        let with = |origin: &str| {
            let request = server.rest.bare(Method::POST, "/api/sessions").json(&json!({})).header("host", host);
            let request = request.header("cookie", &browser.cookie).header("x-greenroom-secret", &browser.secret);
            request.header("origin", origin)
        };
        assert_eq!(send(with(&own)).await.status, 201, "{host}");
        for foreign in ["http://localhost:4000", "http://evil.test", &format!("http://{}", server.rest.authority)] {
            assert_eq!(send(with(foreign)).await.status, 403, "{host} {foreign}");
        }
        let protocols = browser.protocols();
        let headers = [
            ("cookie", browser.cookie.as_str()),
            ("sec-websocket-protocol", &protocols),
            ("origin", &own),
            ("host", host),
        ];
        let mut socket = TestSocket::handshake(&server.rest, "/ws", &headers).await.expect("it opens");
        assert_eq!(socket.status("hello").await["last_seq"], Value::from(0), "{host}");
    }
    for host in ["evil.test:8080", "localhost.evil.test:8080", "10.0.0.7:8080"] {
        let reply = send(server.rest.bare(Method::GET, "/").header("host", host)).await;
        assert_eq!(reply.status, 403, "{host}");
    }
}

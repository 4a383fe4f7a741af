//! Reverse proxies before the server: nginx and Caddy with the documented lines, at the root and
//! below a path.

use reqwest::{Method, header};
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    model::ScriptedModel,
    proxy::{NAME, ProxyKind, ProxyRoute, TestProxy},
    rest::{RestClient, RestReply, SignedInClient, send},
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

use crate::streams::SseClient;

/// Path of the proxy tests below a path.
const BASE: &str = "/tools/greenroom";

/// Options of a server behind a proxy on this machine. Clients of the tests ask for the address.
fn options() -> TestServerOptions {
    TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__ALLOWED_HOSTS", &format!("{NAME},127.0.0.1"))
        .env("GREENROOM_SERVER__TRUSTED_PROXIES", "127.0.0.1")
}

#[tokio::test]
async fn nginx_with_tls() {
    documented_proxy_serves_everything(ProxyKind::Nginx).await;
}

#[tokio::test]
async fn caddy_with_tls() {
    documented_proxy_serves_everything(ProxyKind::Caddy).await;
}

#[tokio::test]
async fn nginx_below_a_path() {
    proxy_below_a_path_serves_everything(ProxyKind::Nginx).await;
}

#[tokio::test]
async fn caddy_below_a_path() {
    proxy_below_a_path_serves_everything(ProxyKind::Caddy).await;
}

async fn documented_proxy_serves_everything(kind: ProxyKind) {
    let server = TestServer::start(options()).await;
    let Some(proxy) = TestProxy::start(kind, &server.rest, ProxyRoute::Documented).await else { return };
    let (browser, cookie) = sign_in(&proxy.rest).await;
    let is_secure = cookie.starts_with("__Host-greenroom_") && cookie.contains("; Secure");
    assert!(is_secure && cookie.contains("; Path=/;"), "{cookie}");
    check_own_origin(&proxy.rest, &browser).await;
    check_page(&proxy.rest).await;
    check_socket(&proxy.rest).await;
    check_upload(&proxy.rest).await;
}

async fn proxy_below_a_path_serves_everything(kind: ProxyKind) {
    let server = TestServer::start(options().env("GREENROOM_SERVER__BASE_PATH", BASE)).await;
    assert_eq!(server.rest.base_path, BASE, "the printed link has the path");
    for route in [ProxyRoute::Keep(BASE), ProxyRoute::Remove(BASE)] {
        let Some(proxy) = TestProxy::start(kind, &server.rest, route).await else { return };
        let (browser, cookie) = sign_in(&proxy.rest).await;
        assert!(cookie.starts_with("greenroom_") && !cookie.contains("Secure"), "{cookie}");
        check_own_origin(&proxy.rest, &browser).await;
        check_tickets(&proxy.rest, &browser).await;
        check_page(&proxy.rest).await;
        check_socket(&proxy.rest).await;
        check_upload(&proxy.rest).await;
    }
}

/// Opens the sign-in link. Returns the browser, and a cookie with its attributes.
async fn sign_in(rest: &RestClient) -> (SignedInClient, String) {
    let path = format!("/?token={}&x=1", rest.token);
    let reply = send(rest.bare(Method::GET, &path).header("accept", "text/html")).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    (rest.sign_in().await, header_of(&reply, header::SET_COOKIE))
}

/// A page of the proxy's origin may write; a page of any other origin may not.
async fn check_own_origin(rest: &RestClient, browser: &SignedInClient) {
    let other = format!("https://{NAME}");
    let own_with_other_scheme = match rest.origin().strip_prefix("https") {
        Some(rest) => format!("http{rest}"),
        None => rest.origin().replacen("http", "https", 1),
    };
    for (origin, expected) in [(rest.origin(), 201), (other, 403), (own_with_other_scheme, 403)] {
        let request = rest.bare(Method::POST, "/api/sessions").header("cookie", &browser.cookie);
        let request = request.header("x-greenroom-secret", &browser.secret).header("origin", &origin);
        let reply = send(request.json(&json!({}))).await;
        assert_eq!(reply.status, expected, "{origin}: {}", reply.text);
        if expected == 201 {
            assert!(header_of(&reply, header::LOCATION).starts_with(&format!("{}/api/sessions/", rest.base_path)));
        }
    }
}

/// A ticket opens a file whose name a proxy may encode anew.
async fn check_tickets(rest: &RestClient, browser: &SignedInClient) {
    let session = rest.create(json!({})).await;
    let path = format!("/api/sessions/{session}/files/icon%402x%20%26.txt");
    let put = rest.request(Method::PUT, &path).header("content-type", "application/octet-stream").body("seen");
    assert_eq!(send(put).await.status, 201);
    let asked = rest.as_browser(browser, Method::POST, "/api/tickets").json(&json!({ "path": path }));
    let ticket = send(asked).await.expect(201);
    let ticket = ticket["ticket"].as_str().expect("the answer has a ticket");
    let read = send(rest.bare(Method::GET, &format!("{path}?ticket={ticket}"))).await;
    assert_eq!((read.status.as_u16(), read.text.as_str()), (200, "seen"));
}

/// The page, all that it names, and the documents about the API are below the base path.
async fn check_page(rest: &RestClient) {
    let base = &rest.base_path;
    for screen in ["/", "/sessions", "/admin", "/api/docs"] {
        let page = send(rest.bare(Method::GET, screen).header("accept", "text/html")).await;
        assert_eq!(page.status, 200, "{screen}: {}", page.text);
        assert!(page.text.contains(&format!(r#"name="greenroom-base" content="{base}""#)), "{}", page.text);
        let is_address = |part: &&str| part.starts_with('/') && part.len() > 2 && *part != base;
        let named: Vec<_> = page.text.split('"').filter(is_address).collect();
        assert!(named.len() >= 3, "icon, style and script: {named:?}");
        for address in named {
            let path = address.strip_prefix(base.as_str()).unwrap_or_else(|| panic!("`{address}` is not below {base}"));
            assert_eq!(send(rest.bare(Method::GET, path)).await.status, 200, "{address}");
        }
    }
    let document = rest.get("/api/openapi.json").await.expect(200);
    assert_eq!(document["servers"][0]["url"], format!("{base}/"));
    let lost = send(rest.request(Method::GET, "/nowhere").header("accept", "text/html")).await;
    assert_eq!(lost.status, 404);
    assert!(lost.text.contains(&format!(r#"href="{base}/""#)), "{}", lost.text);
}

/// A session over the socket, with a frame of 200 KiB each way, watched live by an event stream.
async fn check_socket(rest: &RestClient) {
    let mut socket = TestSocket::open(rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    let mut stream = SseClient::open(rest, &session, "?after=tail", None).await;
    let large = "0123456789".repeat(20 << 10);
    let write = json!({ "path": "large.txt", "content": large });
    socket.send_request("write", write).await;
    let echoed = socket.action("write").await;
    assert!(echoed["args"]["content"].as_str().is_some_and(|content| content.len() >= 100 << 10), "a large frame");
    socket.observation("write").await;
    // A proxy that buffers would send nothing before the end of the stream.
    stream.until(|data| data["observation"] == "write").await;
}

/// A file of 3 MiB, more than nginx takes by default, comes back unchanged.
async fn check_upload(rest: &RestClient) {
    let session = rest.create(json!({})).await;
    let path = format!("/api/sessions/{session}/files/uploads/large.bin");
    let text = "a line of a large file\n".repeat((3 << 20) / 23);
    let put = rest.request(Method::PUT, &path).header("content-type", "application/octet-stream");
    let reply = send(put.body(text.clone())).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
    let read = rest.get(&path).await;
    assert!(read.status == 200 && read.text == text, "{} bytes came back", read.text.len());
}

fn header_of(reply: &RestReply, name: header::HeaderName) -> String {
    let value = reply.headers.get(&name).unwrap_or_else(|| panic!("no `{name}`: {:?}", reply.headers));
    value.to_str().expect("the header is text").to_owned()
}

/// The address of the client in the log comes from the proxy, and from no other peer.
#[tokio::test]
async fn forwarded_address_counts_only_from_a_trusted_proxy() {
    for (trusted, expected) in [("127.0.0.1", "203.0.113.7"), ("192.0.2.1", "127.0.0.1")] {
        let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__TRUSTED_PROXIES", trusted);
        let server = TestServer::start(options).await;
        let request = server.rest.bare(Method::GET, "/api/sessions").bearer_auth("wrong-wrong-wrong-wrong");
        let reply = send(request.header("x-forwarded-for", "198.51.100.1, 203.0.113.7")).await;
        assert_eq!(reply.status, 401, "{}", reply.text);
        let log = server.log();
        assert!(log.contains(&format!(r#""address":"{expected}""#)), "{log}");
    }
}

/// Both ways lead to the same server: with the base path and without.
#[tokio::test]
async fn base_path_is_optional_for_clients() {
    let model = ScriptedModel::play("work");
    let options = TestServerOptions::anthropic(TestDriver::Process, &model).env("GREENROOM_SERVER__BASE_PATH", BASE);
    let server = TestServer::start(options).await;
    let direct = server.rest.at(&server.rest.authority, "");
    let session = server.rest.create(json!({})).await;
    for rest in [&server.rest, &direct] {
        assert_eq!(rest.session(&session).await["id"], session.as_str());
        let mut socket = TestSocket::attach(rest, &session).await;
        assert_eq!(socket.session().await, session);
    }
    let beside = direct.at(&server.rest.authority, "/tools/greenroomx");
    assert_eq!(beside.get("/api/sessions").await.status, 404, "another path is not the base path");
    let reply = send(server.rest.bare(Method::GET, "/../../api/sessions")).await;
    assert_eq!(reply.status, 401, "{}", reply.text);
}

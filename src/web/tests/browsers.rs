//! Sign-in of browsers, their secrets, and tickets.

use actix_web::{
    HttpMessage,
    body::BoxBody,
    dev::{Service, ServiceResponse},
    test::TestRequest,
};
use serde_json::{Value, json};

use super::{
    fixture::{ApiReply, HOST, TOKEN, WebFixture, anonymous, authenticated, fixture, fixture_with},
    id_of,
};
use crate::{data::ClientName, net::testkit::Request};

/// Browser of a test: its cookie, and its secret.
struct PageClient {
    cookie: String,
    secret: String,
}

impl PageClient {
    /// Begins a request with cookie and secret, as the page sends it.
    fn request(&self, method: &str, uri: &str) -> TestRequest {
        let request = anonymous(method, uri).insert_header(("cookie", self.cookie.as_str()));
        let request = request.insert_header(("origin", format!("http://{HOST}")));
        request.insert_header(("x-greenroom-secret", self.secret.as_str()))
    }

    fn post(&self, uri: &str, body: &Value) -> TestRequest {
        self.request("POST", uri).set_json(body)
    }
}

/// Returns the secret in a page that a sign-in link opens.
fn secret_in(page: &ApiReply) -> String {
    let (_, rest) =
        page.text.split_once(r#"<script id="given" type="application/json">"#).expect("the page has the data element");
    let (data, _) = rest.split_once("</script>").expect("the data element ends");
    let data: Value = serde_json::from_str(data).expect("the data is JSON");
    data["secret"].as_str().expect("the page has a secret").to_owned()
}

fn cookie_in(reply: &ApiReply) -> String {
    reply.header("set-cookie").split(';').next().expect("a cookie has a name and a value").to_owned()
}

async fn open_link<S: Service<Request, Response = ServiceResponse<BoxBody>, Error = actix_web::Error>>(
    fixture: &WebFixture<S>,
) -> PageClient {
    let page = fixture.send(anonymous("GET", &format!("/sessions?token={TOKEN}"))).await;
    assert_eq!(page.status, 200, "{}", page.text);
    PageClient { cookie: cookie_in(&page), secret: secret_in(&page) }
}

#[actix_web::test]
async fn link_gives_the_page_a_cookie_and_a_secret() {
    let fixture = fixture().await;
    let page = fixture.send(anonymous("GET", &format!("/sessions?a=1&token={TOKEN}&b=2"))).await;
    assert_eq!((page.status.as_u16(), page.header("cache-control")), (200, "no-store"));
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    let cookie = page.header("set-cookie");
    assert!(cookie.starts_with(&format!("{}=", fixture.cookie_name)), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let secret = secret_in(&page);
    assert!(!cookie.contains(&secret) && !cookie.contains("Secure"), "{cookie}");
    for answer in [cookie, &page.text] {
        assert!(!answer.contains(TOKEN), "{answer}");
    }
    // The same browser opens the link again, and stays the same.
    let again = anonymous("GET", &format!("/?token={TOKEN}")).insert_header(("cookie", cookie_in(&page)));
    assert_eq!(secret_in(&fixture.send(again).await), secret);
    let head = fixture.send(anonymous("HEAD", &format!("/?token={TOKEN}"))).await;
    assert_eq!((head.status.as_u16(), head.header("set-cookie")), (200, ""));
    let wrong = fixture.send(anonymous("GET", "/?token=wrong")).await;
    assert_eq!(wrong.error(), (401, "unauthenticated".to_owned()));
    assert!(wrong.text.contains("was replaced") && wrong.text.contains("`greenroom token`"), "{}", wrong.text);
    // Another name for a token or a secret in the address has no meaning.
    for stray in ["/?secret=x", "/sessions?secret=x&Token=y"] {
        let page = fixture.send(anonymous("GET", stray)).await;
        assert_eq!((page.status.as_u16(), page.header("set-cookie")), (200, ""), "{stray}");
    }
}

#[actix_web::test]
async fn sign_in_reads_a_small_body_only() {
    let fixture = fixture().await;
    let large = json!({ "token": "x".repeat(4096) });
    let request = anonymous("POST", "/api/sign-in").insert_header(("origin", format!("http://{HOST}")));
    let reply = fixture.send(request.set_json(&large)).await;
    assert_eq!(reply.error(), (413, "too_large".to_owned()), "{}", reply.text);
}

#[actix_web::test]
async fn cookie_of_another_port_does_not_hide_the_own_one() {
    let fixture = fixture().await;
    let browser = open_link(&fixture).await;
    let both = format!("{}=x; {}", fixture.cookie_name, browser.cookie);
    let request = PageClient { cookie: both, ..browser }.request("GET", "/api/sessions");
    assert_eq!(fixture.send(request).await.status, 200);
}

#[actix_web::test]
async fn cookie_loads_the_page_and_the_secret_is_needed_for_the_rest() {
    let fixture = fixture().await;
    let browser = open_link(&fixture).await;
    let with_cookie =
        |method: &str, uri: &str| anonymous(method, uri).insert_header(("cookie", browser.cookie.as_str()));
    let page = fixture.send(with_cookie("GET", "/sessions")).await;
    assert_eq!(page.status, 200);
    assert!(page.header("set-cookie").starts_with(&browser.cookie), "the cookie is kept for longer");
    assert_eq!(fixture.send(with_cookie("GET", "/api/sessions")).await.error().0, 401);
    let write = with_cookie("POST", "/api/sessions").insert_header(("origin", format!("http://{HOST}")));
    assert_eq!(fixture.send(write.set_json(json!({}))).await.error().0, 401);
    let alone = anonymous("GET", "/api/sessions").insert_header(("x-greenroom-secret", browser.secret.as_str()));
    assert_eq!(fixture.send(alone).await.error().0, 401);
    assert_eq!(fixture.send(browser.request("GET", "/api/sessions")).await.status, 200);
    assert_eq!(fixture.send(browser.post("/api/sessions", &json!({}))).await.status, 201);
    let foreign = browser.post("/api/sessions", &json!({})).insert_header(("origin", "http://127.0.0.1:4000"));
    assert_eq!(fixture.send(foreign).await.error().0, 403);

    let socket = |protocols: String| {
        let headers = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        let request = with_cookie("GET", "/ws").insert_header(("origin", format!("http://{HOST}")));
        let request = headers.into_iter().fold(request, |request, header| request.insert_header(header));
        let request = request.insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="));
        request.insert_header(("sec-websocket-protocol", protocols))
    };
    let opened = fixture.respond(socket(format!("greenroom, secret.{}", browser.secret))).await;
    let selected = |response: &ServiceResponse<_>| {
        response.headers().get("sec-websocket-protocol").and_then(|it| it.to_str().ok()).map(str::to_owned)
    };
    assert_eq!((opened.status().as_u16(), selected(&opened).as_deref()), (101, Some("greenroom")));
    drop(opened);
    for protocols in ["greenroom", "greenroom, secret.wrong"] {
        // The answer is a close frame. A browser reads it only if a protocol was selected.
        let response = fixture.respond(socket(protocols.to_owned())).await;
        assert_eq!((response.status().as_u16(), selected(&response).as_deref()), (101, Some("greenroom")));
        let reply = fixture.send(socket(protocols.to_owned())).await;
        assert!(reply.text.contains("\u{11}\u{31}"), "{protocols}: {reply:?}");
    }
}

#[actix_web::test]
async fn field_signs_in_and_only_with_json() {
    let fixture = fixture().await;
    let sign_in = |token: &str| anonymous("POST", "/api/sign-in").set_json(json!({ "token": token }));
    let reply = fixture.send(sign_in(&format!(" {TOKEN}\n"))).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let browser =
        PageClient { cookie: cookie_in(&reply), secret: reply.json()["secret"].as_str().expect("a secret").to_owned() };
    assert_eq!(fixture.send(browser.request("GET", "/api/sessions")).await.status, 200);
    let wrong = fixture.send(sign_in("wrong")).await;
    assert_eq!((wrong.error(), wrong.header("set-cookie")), ((401, "unauthenticated".to_owned()), ""));
    let form = anonymous("POST", "/api/sign-in").insert_header(("content-type", "text/plain"));
    assert_eq!(fixture.send(form.set_payload(format!(r#"{{"token":"{TOKEN}"}}"#))).await.error().0, 415);
    let foreign = sign_in(TOKEN).insert_header(("origin", "http://127.0.0.1:4000"));
    assert_eq!(fixture.send(foreign).await.error().0, 403);
    assert_eq!(fixture.send(anonymous("GET", "/api/sign-in")).await.error().0, 401);
    assert_eq!(fixture.send(anonymous("POST", "/api/sign-in").set_json(json!({}))).await.error().0, 400);
}

#[actix_web::test]
async fn cookie_behind_tls_is_secure_and_has_a_name_of_its_own() {
    let fixture = fixture().await;
    let secure = format!("__Host-{}=", fixture.cookie_name);
    let at_proxy = |request: TestRequest| request.insert_header(("host", "friend.test"));
    let reply = fixture.send(at_proxy(anonymous("GET", &format!("/?token={TOKEN}")))).await;
    assert_eq!(reply.status, 403, "the name is not allowed: {}", reply.text);
    let fixture = fixture_with(|config| config.server.allowed_hosts = vec!["friend.test".to_owned()]).await;
    let opened = fixture.send(at_proxy(anonymous("GET", &format!("/?token={TOKEN}")))).await;
    let cookie = opened.header("set-cookie");
    assert!(cookie.contains("; Secure") && !cookie.starts_with(&secure), "{cookie}");
    assert!(cookie.starts_with("__Host-greenroom_"), "{cookie}");
    let renewed = fixture.send(at_proxy(anonymous("GET", "/")).insert_header(("cookie", cookie_in(&opened)))).await;
    assert!(renewed.header("set-cookie").contains("; Secure"), "{:?}", renewed.headers);
    let api = at_proxy(anonymous("GET", "/api/sessions")).insert_header(("cookie", cookie_in(&opened)));
    let api = api.insert_header(("x-greenroom-secret", secret_in(&opened)));
    assert_eq!(fixture.send(api.insert_header(("origin", "https://friend.test"))).await.status, 200);
}

#[actix_web::test]
async fn browsers_are_listed_and_signed_out_one_by_one() {
    let fixture = fixture().await;
    let (first, second) = (open_link(&fixture).await, open_link(&fixture).await);
    let list = async |browser: &PageClient| fixture.send(browser.request("GET", "/api/browsers")).await.json();
    let found = list(&first).await;
    let rows = found["items"].as_array().expect("items");
    assert_eq!(rows.len(), 2, "{found}");
    assert_eq!((&rows[0]["current"], &rows[1]["current"]), (&json!(true), &json!(false)), "{found}");
    assert_eq!(rows[0]["name"], "Browser on an unknown system");
    assert!(!found.to_string().contains(&first.secret) && !found.to_string().contains(&first.cookie));
    let id = rows[1]["id"].as_str().expect("an id").to_owned();

    let remove = |id: &str| first.request("DELETE", &format!("/api/browsers/{id}"));
    assert_eq!(fixture.send(remove(&id)).await.status, 204);
    for unknown in [&id, "x"] {
        assert_eq!(fixture.send(remove(unknown)).await.error().0, 404, "{unknown}");
    }
    let signed_out = fixture.send(second.request("GET", "/api/sessions")).await;
    assert_eq!(signed_out.error(), (401, "unauthenticated".to_owned()));
    assert!(signed_out.text.contains("this browser is signed out"), "{}", signed_out.text);
    assert_eq!(list(&first).await["items"].as_array().map(Vec::len), Some(1));

    assert_eq!(fixture.call("GET", "/api/browsers", None).await.json()["items"][0]["current"], false, "for a script");
    assert_eq!(fixture.call("POST", "/api/sign-out", None).await.error().0, 409, "a script has no browser");
    let out = fixture.send(first.post("/api/sign-out", &Value::Null)).await;
    assert_eq!((out.status.as_u16(), out.header("set-cookie").contains("Max-Age=0")), (204, true), "{:?}", out.headers);
    assert_eq!(fixture.send(first.request("GET", "/api/sessions")).await.error().0, 401);
    assert_eq!(fixture.call("GET", "/api/sessions", None).await.status, 200, "the token is still valid");
    let third = open_link(&fixture).await;
    assert!(third.cookie != first.cookie && third.secret != first.secret);
}

#[actix_web::test]
async fn ticket_opens_one_file_for_a_minute() {
    let fixture = fixture().await;
    let browser = open_link(&fixture).await;
    let id = id_of(&fixture.send(browser.post("/api/sessions", &json!({}))).await);
    let export = format!("/api/sessions/{id}/export?format=md");
    let put = authenticated("PUT", &format!("/api/sessions/{id}/files/a%20b.txt"), None);
    assert_eq!(fixture.send(put.set_payload("text")).await.status, 201);
    let ticket_for = async |path: &str| fixture.send(browser.post("/api/tickets", &json!({ "path": path }))).await;
    for path in [
        "/api/options",
        "/api/sessions",
        &format!("/api/sessions/{id}"),
        &format!("/api/sessions/{id}/events"),
        &format!("/api/sessions/{id}/files/"),
        "/ws",
        "https://evil.test/",
        &format!("{export}#x"),
        &format!("{export} x"),
        "",
    ] {
        assert_eq!(ticket_for(path).await.error(), (400, "invalid_args".to_owned()), "{path}");
    }
    let issued = ticket_for(&export).await;
    assert_eq!(issued.status, 201, "{}", issued.text);
    let issued = issued.json();
    let ticket = issued["ticket"].as_str().expect("a ticket").to_owned();
    let follow = async |method: &str, address: String| fixture.send(anonymous(method, &address)).await;
    let reply = follow("GET", format!("{export}&ticket={ticket}")).await;
    assert_eq!((reply.status.as_u16(), reply.header("content-type")), (200, "text/markdown; charset=utf-8"));
    assert_eq!(follow("GET", format!("/api/sessions/{id}/export?ticket={ticket}&format=md")).await.status, 200);
    for (method, address) in [
        ("GET", format!("/api/sessions/{id}/export?ticket={ticket}")),
        ("GET", format!("{export}&ticket=wrong")),
        ("GET", format!("/api/sessions/{id}?ticket={ticket}")),
        ("GET", format!("/api/sessions?ticket={ticket}")),
        ("POST", format!("/api/sessions/{id}/pause?ticket={ticket}")),
        ("PUT", format!("/api/sessions/{id}/files/a%20b.txt?ticket={ticket}")),
        ("HEAD", format!("{export}&ticket={ticket}")),
        ("GET", format!("/ws?ticket={ticket}")),
    ] {
        assert_eq!(follow(method, address.clone()).await.status, 401, "{method} {address}");
    }
    let file = format!("/api/sessions/{id}/files/a%20b.txt");
    let of_file = ticket_for(&file).await.json()["ticket"].as_str().expect("a ticket").to_owned();
    assert_eq!(follow("GET", format!("{file}?ticket={of_file}")).await.text, "text");

    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(59)).await;
    assert_eq!(follow("GET", format!("{file}?ticket={of_file}")).await.status, 200);
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    assert_eq!(follow("GET", format!("{file}?ticket={of_file}")).await.error().0, 401);
    tokio::time::resume();

    let last = ticket_for(&file).await.json()["ticket"].as_str().expect("a ticket").to_owned();
    fixture.send(browser.post("/api/sign-out", &Value::Null)).await;
    let reply = follow("GET", format!("{file}?ticket={last}")).await;
    assert_eq!(reply.error().0, 401, "a signed-out browser's tickets end");
}

#[actix_web::test]
async fn client_has_the_name_of_its_browser_or_token() {
    let fixture = fixture().await;
    let page = open_link(&fixture).await;
    let probe = async |request: TestRequest| {
        let response = fixture.respond(request).await;
        let extensions = response.request().extensions();
        extensions.get::<ClientName>().map(ClientName::to_string)
    };
    let named = page.request("GET", "/api/sessions");
    assert_eq!(probe(named).await.as_deref(), Some("Browser on an unknown system"));
    assert_eq!(probe(authenticated("GET", "/api/sessions", None)).await.as_deref(), Some("token"));
    assert_eq!(probe(anonymous("GET", "/healthz")).await, None);
}

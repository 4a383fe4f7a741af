mod fixture;
mod pages;
mod unreadable;

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use self::fixture::{ApiReply, HOST, TOKEN, anonymous, authenticated, fixture};
use crate::{
    actor_registry::ActorKind,
    store::{ReadLimit, SessionId},
};

const UNKNOWN_SESSION: &str = "/api/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE";

fn id_of(reply: &ApiReply) -> String {
    reply.json()["id"].as_str().expect("a session has an id").to_owned()
}

/// Each failure has the common form, names the subject, and has the fitting status.
#[actix_web::test]
async fn errors_have_one_form_and_name_the_subject() {
    let fixture = fixture().await;
    let check = async |method: &str, uri: &str, body: Option<&str>, status: u16, code: &str, part: &str| {
        let reply = fixture.call(method, uri, body).await;
        assert_eq!(reply.error(), (status, code.to_owned()), "{method} {uri}: {}", reply.text);
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(part), "{method} {uri}: {message}");
    };
    check("GET", "/api/nothing", None, 404, "not_found", "`/api/nothing`").await;
    check("GET", "/nothing", None, 404, "not_found", "`/nothing`").await;
    check("GET", UNKNOWN_SESSION, None, 404, "not_found", "no session `01KAHTXV3M9W6N2Q4ZB8C5R7DE`").await;
    check("GET", "/api/sessions/7", None, 404, "not_found", "`7` is not a session id").await;
    check("PUT", UNKNOWN_SESSION, None, 405, "method_not_allowed", "does not support PUT").await;
    check("DELETE", "/", None, 405, "method_not_allowed", "does not support DELETE").await;
    check("POST", "/api/sessions", Some("{"), 400, "invalid_json", "the body is not valid JSON").await;
    check("POST", "/api/sessions", Some("[]"), 400, "invalid_args", "the body").await;
    check("POST", "/api/sessions", Some(r#"{"titel":"x"}"#), 400, "invalid_args", "unknown field `titel`").await;
    check("POST", "/api/sessions", Some(r#"{"title":7}"#), 400, "invalid_args", "expected a string").await;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some("{}"), 400, "invalid_args", "missing field `content`")
        .await;
    let blank = r#"{"content":" ","attachments":["a"]}"#;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some(blank), 400, "invalid_args", "`content` is empty").await;
    check("POST", &format!("{UNKNOWN_SESSION}/pause"), None, 404, "not_found", "no session").await;
    check("PATCH", UNKNOWN_SESSION, Some(r#"{"title":"x"}"#), 404, "not_found", "no session").await;
    check("DELETE", &format!("{UNKNOWN_SESSION}?purge=true"), None, 404, "not_found", "no session").await;
    check("GET", "/api/sessions?sate=idle", None, 400, "invalid_args", "unknown field `sate`").await;
    check("GET", "/api/sessions?state=tired", None, 400, "invalid_args", "`state`: unknown variant `tired`").await;
    check("GET", "/api/sessions?cursor=xx", None, 400, "invalid_args", "`xx` is no cursor").await;
    check("GET", "/api/sessions?limit=1&limit=2", None, 400, "invalid_args", "the query: duplicate field `limit`")
        .await;
    let limit = "the query: `limit`: invalid digit found in string; `/api/openapi.json` describes the parameter";
    check("GET", "/api/sessions?limit=-3", None, 400, "invalid_args", limit).await;
    let archived = "the query: `archived`: provided string was not `true` or `false`";
    check("GET", "/api/sessions?q=a&archived=maybe", None, 400, "invalid_args", archived).await;
    for (query, part) in [
        ("events?after=soon", "`after`: invalid digit"),
        ("events?last=-1", "`last`: invalid digit"),
        ("events?limit=", "`limit`: cannot parse integer from empty string"),
        ("export?format=pdf", "`format`: unknown variant `pdf`, expected `jsonl` or `md`"),
        ("logs?bytes=1e3", "`bytes`: invalid digit"),
    ] {
        check("GET", &format!("{UNKNOWN_SESSION}/{query}"), None, 400, "invalid_args", part).await;
    }
    check("DELETE", &format!("{UNKNOWN_SESSION}?purge=1"), None, 400, "invalid_args", "the query: `purge`: provided")
        .await;
    let large = format!(r#"{{"title":"{}"}}"#, "x".repeat(1024 * 1024));
    check("POST", "/api/sessions", Some(&large), 413, "too_large", "`server.max_body`").await;
    let long = |name: &str, length: usize| json!({ name: "ä".repeat(length) }).to_string();
    let title = "`title` has 201 characters; it may have 200";
    check("POST", "/api/sessions", Some(&long("title", 201)), 400, "invalid_args", title).await;
    for name in ["agent", "model", "image", "directory"] {
        let message = format!("`{name}` has 1026 bytes; it may have 1024");
        check("POST", "/api/sessions", Some(&long(name, 513)), 400, "invalid_args", &message).await;
    }
    for (directory, message) in [
        ("work", "`directory` must be an absolute path inside the sandbox, not `work`"),
        ("/work/../etc", "`directory` must not contain `..`"),
        ("/..", "give the resolved path"),
        ("/work\0", "`directory` has a control character"),
        ("a\u{1b}[2J", "`directory` has a control character, such as a line break; remove it"),
    ] {
        let body = json!({ "directory": directory }).to_string();
        check("POST", "/api/sessions", Some(&body), 400, "invalid_args", message).await;
    }
    let dots = fixture.call("POST", "/api/sessions", Some(r#"{"directory":"/work/..a/b.."}"#)).await;
    assert_eq!(dots.status, 201, "{}", dots.text);
    let created = fixture.call("POST", "/api/sessions", Some(&long("title", 200))).await;
    let session = format!("/api/sessions/{}", id_of(&created));
    check("PATCH", &session, Some(&long("title", 201)), 400, "invalid_args", title).await;
    check("PATCH", &session, Some(&long("model", 513)), 400, "invalid_args", "it may have 1024").await;
    assert_eq!(fixture.call("GET", &session, None).await.json()["title"], "ä".repeat(200));
}

#[actix_web::test]
async fn upload_writes_only_into_the_workspace() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let put = async |path: &str, content: &str, keep_existing: bool| {
        let request = authenticated("PUT", &format!("/api/sessions/{id}/files/{path}"), None);
        let request =
            request.insert_header(("content-type", "application/octet-stream")).set_payload(content.to_owned());
        fixture.send(if keep_existing { request.insert_header(("if-none-match", "*")) } else { request }).await
    };
    let created = put("uploads/a%20b.txt", "one", true).await;
    assert_eq!(
        (created.status.as_u16(), created.json()["path"].as_str()),
        (201, Some("uploads/a b.txt")),
        "{}",
        created.text
    );
    assert_eq!(created.json()["bytes"], 3);
    let read = |path: &str| std::fs::read_to_string(fixture.workspace(&id).join(path)).unwrap_or_default();
    assert_eq!(read("uploads/a b.txt"), "one");
    assert_eq!(put("uploads/a%20b.txt", "two", true).await.error(), (412, "exists".to_owned()));
    assert_eq!(read("uploads/a b.txt"), "one");
    assert_eq!(put("uploads/a%20b.txt", "two", false).await.status, 200);
    assert_eq!(read("uploads/a b.txt"), "two");
    for path in ["../x", "%2e%2e/x", "a/..%2f..%2fx", "/etc/x", "a//b", ""] {
        let rejected = put(path, "x", false).await;
        assert_eq!(rejected.error(), (400, "invalid_args".to_owned()), "{path}: {}", rejected.text);
    }
    assert_eq!(put("large", &"x".repeat(33), false).await.error(), (413, "too_large".to_owned()));
    assert_eq!(put("uploads", "x", false).await.error(), (409, "conflict".to_owned()));
    assert_eq!(put("uploads/a%20b.txt/c", "x", false).await.error(), (409, "conflict".to_owned()));
    std::os::unix::fs::symlink("/tmp", fixture.workspace(&id).join("way")).expect("the link is created");
    assert_eq!(put("way/x", "x", false).await.error(), (409, "conflict".to_owned()));
    fixture.call("DELETE", &format!("/api/sessions/{id}"), None).await;
    assert_eq!(put("late", "x", false).await.error(), (409, "ended".to_owned()));
    let elsewhere = authenticated("PUT", &format!("{UNKNOWN_SESSION}/files/x"), None).set_payload("x");
    assert_eq!(fixture.send(elsewhere).await.error(), (404, "not_found".to_owned()));
}

#[actix_web::test]
async fn unsupported_method_gets_the_allow_header() {
    let reply = fixture().await.call("PUT", UNKNOWN_SESSION, None).await;
    assert_eq!(reply.header("allow").split(", ").count(), 3, "{}", reply.header("allow"));
}

#[actix_web::test]
async fn session_lives_from_create_to_purge() {
    let fixture = fixture().await;
    let created = fixture.call("POST", "/api/sessions", Some(r#"{"title":"One"}"#)).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let id = id_of(&created);
    let session = format!("/api/sessions/{id}");
    assert_eq!(created.header("location"), session);

    let changed = fixture.call("PATCH", &session, Some(r#"{"title":"Two","model":"demo"}"#)).await;
    assert_eq!(changed.json()["title"], "Two", "{}", changed.text);
    assert_eq!(changed.json(), fixture.call("GET", &session, None).await.json());
    assert!(changed.json()["last_seq"].as_u64() > created.json()["last_seq"].as_u64(), "{}", changed.text);
    let listed = fixture.call("GET", "/api/sessions?q=two", None).await.json();
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&1.into(), &id.as_str().into()));
    assert_eq!(fixture.call("GET", "/api/sessions?q=three", None).await.json()["total"], 0);

    let sent = fixture.call("POST", &format!("{session}/messages"), Some(r#"{"content":"hello"}"#)).await;
    assert_eq!(sent.status, 202, "{}", sent.text);
    let seq = sent.json()["seq"].as_u64().expect("the receipt has a number");
    let events = fixture.call("GET", &format!("{session}/events?after={}&limit=1", seq - 1), None).await.json();
    assert_eq!(events["items"][0]["args"]["content"], "hello", "{events}");
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1));
    let newest = fixture.call("GET", &format!("{session}/events?last=1"), None).await.json();
    let (items, last) = (newest["items"].as_array().expect("a list"), &newest["last_seq"]);
    assert_eq!((items.len(), &items[0]["seq"]), (1, last), "{newest}");
    let all = fixture.call("GET", &format!("{session}/events?last=1000"), None).await.json();
    assert_eq!(all["items"][0]["seq"], 1, "{all}");
    let only = fixture.call("GET", &format!("{session}/events?kind=message"), None).await.json();
    assert_eq!(only["items"].as_array().map(Vec::len), Some(1), "{only}");

    let markdown = fixture.call("GET", &format!("{session}/export?format=md"), None).await;
    assert!(
        markdown.text.starts_with("# Two\n") && markdown.text.contains("(not given to the agent)\n\nhello\n"),
        "{}",
        markdown.text
    );
    let lines = fixture.call("GET", &format!("{session}/export"), None).await;
    let last_seq = events["last_seq"].as_u64().expect("a number") as usize;
    assert!(lines.text.lines().count() > last_seq, "a line for each event, and one before: {}", lines.text);
    assert!(lines.header("content-disposition").starts_with("attachment"));

    assert_eq!(fixture.call("DELETE", &session, None).await.json()["state"], "ended");
    let late = fixture.call("POST", &format!("{session}/messages"), Some(r#"{"content":"late"}"#)).await;
    assert_eq!(late.error(), (409, "ended".to_owned()));
    assert_eq!(fixture.call("DELETE", &format!("{session}?purge=true"), None).await.status, 204);
    assert_eq!(fixture.call("GET", &session, None).await.status, 404);
}

#[actix_web::test]
async fn same_idempotency_key_acts_once() {
    let fixture = fixture().await;
    let create = || authenticated("POST", "/api/sessions", Some("{}")).insert_header(("idempotency-key", "k"));
    let (first, second) = (fixture.send(create()).await, fixture.send(create()).await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 200));
    assert_eq!(id_of(&first), id_of(&second));
    let create_with = |body| authenticated("POST", "/api/sessions", Some(body)).insert_header(("idempotency-key", "k"));
    let renamed = fixture.send(create_with(r#"{"title":"other"}"#)).await;
    assert_eq!(
        (renamed.status.as_u16(), id_of(&renamed)),
        (200, id_of(&first)),
        "the title is not part of the request's identity"
    );
    let other = fixture.send(create_with(r#"{"task":"other"}"#)).await;
    assert_eq!(other.error(), (409, "id_reused".to_owned()));

    let send_message = |message: &str| {
        let uri = format!("/api/sessions/{}/messages", id_of(&first));
        authenticated("POST", &uri, Some(message)).insert_header(("idempotency-key", "m"))
    };
    let once = r#"{"content":"once"}"#;
    let (one, two) = (fixture.send(send_message(once)).await.json(), fixture.send(send_message(once)).await.json());
    assert_eq!(one["seq"], two["seq"]);
    let another = fixture.send(send_message(r#"{"content":"another"}"#)).await;
    assert_eq!(another.error(), (409, "id_reused".to_owned()));
    let bad =
        fixture.send(authenticated("POST", "/api/sessions", Some("{}")).insert_header(("idempotency-key", ""))).await;
    assert_eq!(bad.error(), (400, "invalid_args".to_owned()));
}

#[actix_web::test]
async fn large_content_is_a_download_and_never_a_page() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let session: SessionId = id.parse().expect("an id");
    let (epoch, _) = fixture.store.claim(session).await.expect("the session exists");
    let stored = fixture.store.put_content(session, epoch, "<script>1</script>".into()).await;
    let name = stored.expect("the store keeps the content");
    let reply = fixture.call("GET", &format!("/api/sessions/{id}/contents/{name}"), None).await;
    assert_eq!(reply.text, "<script>1</script>");
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    assert!(reply.header("content-disposition").starts_with("attachment"));
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    for name in ["nothing", "..%2f..%2ftoken", "%2e%2e"] {
        let reply = fixture.call("GET", &format!("/api/sessions/{id}/contents/{name}"), None).await;
        assert_eq!(reply.error().0, 404, "{name}");
    }
}

/// No actor starts and no event is written for an unauthorized client.
#[actix_web::test]
async fn unauthorized_requests_change_nothing() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let session: SessionId = id.parse().expect("an id");
    let before = fixture
        .store
        .read(session, 0, ReadLimit { events: 100, bytes: 1 << 20 })
        .await
        .expect("the events are readable");
    let check = async |request: TestRequest, expected: u16| {
        let reply = fixture.send(request).await;
        assert_eq!(reply.error().0, expected, "{}", reply.text);
        assert!(!reply.text.contains(TOKEN), "{}", reply.text);
    };
    let evil = ("origin", "http://evil.test");
    let socket = format!("/ws?session={id}");
    let upgrade = |request: TestRequest| {
        let headers = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        let request = headers.into_iter().fold(request, |request, header| request.insert_header(header));
        request.insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
    };
    check(upgrade(authenticated("GET", &socket, None)).insert_header(evil), 403).await;
    check(upgrade(anonymous("GET", &format!("{socket}&token={TOKEN}"))).insert_header(evil), 403).await;
    check(anonymous("GET", &socket), 401).await;
    for (address, reason) in
        [(socket.clone(), "the token is missing"), (format!("{socket}&token=wrong"), "the token is not")]
    {
        let reply = fixture.send(upgrade(anonymous("GET", &address))).await;
        // The answer is a close frame. Its first two bytes are the code 4401.
        assert!(reply.status == 101 && reply.text.contains(&format!("\u{11}\u{31}{reason}")), "{reply:?}");
    }
    check(anonymous("POST", "/api/sessions"), 401).await;
    check(authenticated("POST", "/api/sessions", Some("{}")).insert_header(evil), 403).await;
    check(
        authenticated("POST", "/api/sessions", None).insert_header(("content-type", "text/plain")).set_payload("{}"),
        415,
    )
    .await;
    check(authenticated("POST", "/api/sessions", None).insert_header(("host", "evil.test")), 403).await;
    check(anonymous("GET", "/api/sessions"), 401).await;
    check(anonymous("GET", "/%61pi/sessions"), 401).await;
    check(anonymous("GET", "/metrics"), 401).await;
    check(anonymous("GET", "/api/nothing"), 401).await;
    check(anonymous("GET", "/healthz").insert_header(("host", "evil.test:3000")), 403).await;

    let after = fixture
        .store
        .read(session, 0, ReadLimit { events: 100, bytes: 1 << 20 })
        .await
        .expect("the events are readable");
    assert_eq!(after, before);
    assert_eq!(fixture.actor_registry.count(ActorKind::FrontendSocket, None), 0);
    assert_eq!(fixture.call("GET", "/api/sessions", None).await.json()["total"], 1);
}

#[actix_web::test]
async fn sign_in_link_is_exchanged_for_a_cookie() {
    let fixture = fixture().await;
    let opened = fixture.send(anonymous("GET", &format!("/sessions?a=1&token={TOKEN}&b=2"))).await;
    assert_eq!((opened.status.as_u16(), opened.header("location")), (303, "/sessions?a=1&b=2"));
    let cookie = opened.header("set-cookie").to_owned();
    assert!(cookie.starts_with("greenroom_3000=") && !cookie.contains(TOKEN), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().expect("the cookie has a name and a value").to_owned();
    let read = anonymous("GET", "/api/sessions").insert_header(("cookie", pair.as_str()));
    assert_eq!(fixture.send(read).await.status, 200);
    let write = |origin: Option<&str>| {
        let request = anonymous("POST", "/api/sessions").insert_header(("cookie", pair.as_str()));
        let request = request.insert_header(("content-type", "application/json")).set_payload("{}");
        origin.into_iter().fold(request, |request, origin| request.insert_header(("origin", origin)))
    };
    assert_eq!(fixture.send(write(Some(&format!("http://{HOST}")))).await.status, 201);
    assert_eq!(fixture.send(write(None)).await.status, 403);
    let wrong = fixture.send(anonymous("GET", "/?token=wrong")).await;
    assert_eq!(wrong.error(), (401, "unauthenticated".to_owned()));
    assert!(wrong.text.contains("was replaced") && wrong.text.contains("`greenroom token`"), "{}", wrong.text);
}

#[actix_web::test]
async fn only_an_allowed_origin_gets_cors_headers() {
    let fixture = fixture().await;
    let from_allowed = |request: TestRequest| request.insert_header(("origin", "https://friend.test"));
    let preflight = fixture.send(from_allowed(anonymous("OPTIONS", "/api/sessions"))).await;
    assert_eq!(
        (preflight.status.as_u16(), preflight.header("access-control-allow-origin")),
        (204, "https://friend.test")
    );
    assert!(preflight.header("access-control-allow-headers").contains("idempotency-key"));
    let read = fixture.send(from_allowed(authenticated("GET", "/api/sessions", None))).await;
    assert_eq!((read.status.as_u16(), read.header("access-control-allow-origin")), (200, "https://friend.test"));
    let own = fixture.call("GET", "/api/sessions", None).await;
    assert_eq!(own.header("access-control-allow-origin"), "");
    assert!(preflight.header("access-control-allow-headers").contains("if-none-match"));
    // A page needs to read an error to show the reason.
    let form =
        authenticated("POST", "/api/sessions", None).insert_header(("content-type", "text/plain")).set_payload("{}");
    let check = async |request: TestRequest, status: u16| {
        let reply = fixture.send(from_allowed(request)).await;
        assert_eq!((reply.status.as_u16(), reply.header("vary")), (status, "Origin"), "{}", reply.text);
        assert_eq!(reply.header("access-control-allow-origin"), "https://friend.test", "{}", reply.text);
        assert_eq!(reply.header("access-control-expose-headers"), "location, retry-after");
    };
    check(anonymous("GET", "/api/sessions"), 401).await;
    check(form, 415).await;
    check(authenticated("PUT", "/api/sessions", None), 405).await;
    check(authenticated("GET", UNKNOWN_SESSION, None), 404).await;
    check(authenticated("POST", "/api/sessions", Some("{}")), 201).await;
    for foreign in [("host", "evil.test"), ("origin", "https://evil.test")] {
        let reply =
            fixture.send(from_allowed(authenticated("GET", "/api/sessions", None)).insert_header(foreign)).await;
        assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-origin")), (403, ""));
    }
}

#[actix_web::test]
async fn bad_handshake_gets_an_error_in_the_common_form() {
    let fixture = fixture().await;
    let half =
        |request: TestRequest| request.insert_header(("connection", "upgrade")).insert_header(("upgrade", "websocket"));
    let chat = format!("/ws{}/chat", UNKNOWN_SESSION.trim_start_matches("/api"));
    for request in [
        half(anonymous("GET", "/ws")),
        half(authenticated("GET", "/ws", None)),
        authenticated("GET", "/ws", None),
        authenticated("GET", &chat, None),
    ] {
        let reply = fixture.send(request).await;
        assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{}", reply.text);
        assert!(reply.text.contains("WebSocket"), "{}", reply.text);
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
}

#[actix_web::test]
async fn every_answer_has_the_security_headers() {
    let fixture = fixture().await;
    for uri in ["/", "/healthz", "/api/sessions", "/api/nothing", "/nothing"] {
        let reply = fixture.call("GET", uri, None).await;
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"), "{uri}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{uri}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{uri}");
        assert!(!reply.header("cache-control").is_empty(), "{uri}");
    }
}

#[actix_web::test]
async fn every_screen_is_the_shell_and_known_files_get_304() {
    let fixture = fixture().await;
    let shell = fixture.send(anonymous("GET", "/")).await;
    assert_eq!((shell.status.as_u16(), shell.header("content-type")), (200, "text/html; charset=utf-8"));
    for uri in ["/sessions", "/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE", "/admin", "/api/docs"] {
        let screen = fixture.send(anonymous("GET", uri)).await;
        assert_eq!(screen.text, shell.text, "{uri}");
        let named = screen.text.split('"').filter(|part| part.starts_with("/assets/"));
        for asset in named {
            assert_eq!(fixture.send(anonymous("GET", asset)).await.status, 200, "{asset}");
        }
    }
    let icon = fixture.send(anonymous("GET", "/favicon.svg")).await;
    let again =
        fixture.send(anonymous("GET", "/favicon.svg").insert_header(("if-none-match", icon.header("etag")))).await;
    assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
    assert_eq!(fixture.send(anonymous("GET", "/assets/none.js")).await.error().0, 404);
}

#[actix_web::test]
async fn preference_cookies_set_attributes_of_the_page() {
    let fixture = fixture().await;
    let created = fixture.call("POST", "/api/sessions", Some("{}")).await;
    let check = async |cookie: &str, root: &str| {
        for uri in ["/".to_owned(), format!("/sessions/{}", id_of(&created))] {
            let page = fixture.send(authenticated("GET", &uri, None).insert_header(("cookie", cookie))).await;
            assert!(page.text.contains(root), "{cookie} {uri}: {}", page.text);
        }
    };
    check("greenroom_theme=dark", r#"<html lang="en" data-theme="dark">"#).await;
    check("other=1; greenroom_theme=light", r#"<html lang="en" data-theme="light">"#).await;
    check("greenroom_sidebar=away", r#"<html lang="en" data-sidebar="away">"#).await;
    let both = r#"<html lang="en" data-theme="dark" data-sidebar="away">"#;
    check("greenroom_sidebar=away; greenroom_theme=dark", both).await;
    check("other=1", r#"<html lang="en">"#).await;
    check("greenroom_sidebar=there", r#"<html lang="en">"#).await;
    check("greenroom_theme=\"><script>", r#"<html lang="en">"#).await;
}

#[actix_web::test]
async fn session_page_contains_data_only_for_authenticated_clients() {
    let fixture = fixture().await;
    let title = json!({ "title": "</script><script>alert(1)</script>" }).to_string();
    let created = fixture.call("POST", "/api/sessions", Some(&title)).await;
    let uri = format!("/sessions/{}", id_of(&created));
    let shell = fixture.send(anonymous("GET", "/")).await;

    let page = fixture.call("GET", &uri, None).await;
    assert_eq!((page.header("cache-control"), page.header("etag")), ("no-store", ""));
    let (before, rest) =
        page.text.split_once(r#"<script id="given" type="application/json">"#).expect("the page has the data element");
    let (data, _) = rest.split_once("</script>").expect("the data element ends");
    assert!(before.contains("session-header") && !before.contains("alert"));
    let data: Value = serde_json::from_str(data).expect("the data is JSON");
    assert_eq!(data["session"]["title"], created.json()["title"]);
    let events = fixture.call("GET", &format!("/api{uri}/events"), None).await;
    assert_eq!(data["events"], events.json()["items"]);

    let unauthenticated =
        [anonymous("GET", &uri), authenticated("GET", &uri, None).insert_header(("sec-fetch-site", "cross-site"))];
    for request in
        unauthenticated.into_iter().chain([authenticated("GET", UNKNOWN_SESSION.trim_start_matches("/api"), None)])
    {
        let page = fixture.send(request).await;
        assert_eq!(page.text, shell.text);
        assert_eq!(page.header("cache-control"), "no-cache");
    }
    let head = fixture.send(authenticated("HEAD", &uri, None)).await;
    assert_eq!(head.status, 200);
    assert_eq!(fixture.call("POST", &uri, Some("{}")).await.error().0, 405);
}

/// The document is generated from the handlers. This test checks that a route exists at each
/// address in the document.
#[actix_web::test]
async fn every_documented_address_has_a_route() {
    let fixture = fixture().await;
    let document = serde_json::to_value(super::openapi::build()).expect("the document serializes");
    let paths = document["paths"].as_object().expect("the document has paths");
    assert!(paths.len() > 15, "{}", paths.len());
    for (path, methods) in paths {
        for method in methods.as_object().expect("a path has methods").keys() {
            let uri = path.replace("{id}", "01KAHTXV3M9W6N2Q4ZB8C5R7DE").replace("{name}", "x");
            let reply = fixture.call(&method.to_uppercase(), &uri, None).await;
            assert_ne!(reply.status, 405, "{method} {uri}");
            assert!(!reply.text.contains("there is nothing at"), "{method} {uri}: {}", reply.text);
        }
    }
}

#[actix_web::test]
async fn operators_see_actors_metrics_and_readiness() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let actors = fixture.call("GET", "/api/admin/actors", None).await.json();
    let rows = actors["items"].as_array().expect("rows");
    let is_session = |row: &&serde_json::Value| row["kind"] == "session" && row["session"] == id.as_str();
    assert_eq!(rows.iter().filter(is_session).count(), 1, "{actors}");
    assert!(rows.iter().any(|row| row["kind"] == "directory" && row["node"] == "node"), "{actors}");

    fixture.call("POST", &format!("/api/sessions/{id}/messages"), Some(r#"{"content":"hello"}"#)).await;
    let metrics = fixture.call("GET", "/metrics", None).await.text;
    assert!(!metrics.contains("greenroom_events_appended_total 0"), "{metrics}");
    for line in
        ["greenroom_actors{kind=\"directory\"} 1", "greenroom_events_appended_total", "process_resident_memory_bytes"]
    {
        assert!(metrics.contains(line), "`{line}` is missing in {metrics}");
    }
    let ready = fixture.call("GET", "/readyz", None).await;
    assert_eq!(ready.error(), (503, "not_ready".to_owned()));
    // Monitors send HEAD requests.
    for (uri, status) in [("/healthz", 200), ("/readyz", 503)] {
        assert_eq!(fixture.call("HEAD", uri, None).await.status, status, "{uri}");
    }
    assert_eq!(ready.json()["store"], "ok");
    assert!(fixture.call("GET", "/api/options", None).await.json()["models"].to_string().contains("\"demo\""));
    let swept = fixture.call("POST", "/api/admin/sweep", None).await;
    assert!(swept.status == 200 && swept.json()["sandboxes"] == 0, "{}", swept.text);
    assert_eq!(fixture.call("GET", &format!("/api/sessions/{id}/logs"), None).await.error().0, 404);
}

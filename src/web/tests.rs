mod fixture;
mod pages;
mod unreadable;

use actix_web::test::TestRequest;
use serde_json::{Value, json};
use utoipa::OpenApi;

use self::fixture::{ApiReply, HOST, TOKEN, anonymous, authenticated, fixture};
use crate::{
    actor_registry::ActorKind,
    store::{ReadLimit, SessionId},
};

const UNKNOWN_SESSION: &str = "/api/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE";

fn id_of(reply: &ApiReply) -> String {
    reply.json()["id"].as_str().expect("a session has an id").to_owned()
}

/// Every failure has the one form, names the thing, and has the fitting status.
#[actix_web::test]
async fn errors() {
    let stage = fixture().await;
    let check = async |method: &str, uri: &str, body: Option<&str>, status: u16, code: &str, part: &str| {
        let reply = stage.call(method, uri, body).await;
        assert_eq!(reply.error(), (status, code.to_owned()), "{method} {uri}: {}", reply.text);
        let message = reply.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.contains(part), "{method} {uri}: {message}");
    };
    check("GET", "/api/nothing", None, 404, "not_found", "`/api/nothing`").await;
    check("GET", "/nothing", None, 404, "not_found", "`/nothing`").await;
    check("GET", UNKNOWN_SESSION, None, 404, "not_found", "no session `01KAHTXV3M9W6N2Q4ZB8C5R7DE`").await;
    check("GET", "/api/sessions/7", None, 404, "not_found", "`7` is no session id").await;
    check("PUT", UNKNOWN_SESSION, None, 405, "method_not_allowed", "does not answer to PUT").await;
    check("DELETE", "/", None, 405, "method_not_allowed", "does not answer to DELETE").await;
    check("POST", "/api/sessions", Some("{"), 400, "invalid_json", "the body is no JSON").await;
    check("POST", "/api/sessions", Some("[]"), 400, "invalid_args", "the body").await;
    check("POST", "/api/sessions", Some(r#"{"titel":"x"}"#), 400, "invalid_args", "unknown field `titel`").await;
    check("POST", "/api/sessions", Some(r#"{"title":7}"#), 400, "invalid_args", "expected a string").await;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some("{}"), 400, "invalid_args", "missing field `content`")
        .await;
    let silent = r#"{"content":" ","attachments":["a"]}"#;
    check("POST", &format!("{UNKNOWN_SESSION}/messages"), Some(silent), 400, "invalid_args", "`content` is empty")
        .await;
    check("POST", &format!("{UNKNOWN_SESSION}/pause"), None, 404, "not_found", "no session").await;
    check("PATCH", UNKNOWN_SESSION, Some(r#"{"title":"x"}"#), 404, "not_found", "no session").await;
    check("DELETE", &format!("{UNKNOWN_SESSION}?purge=true"), None, 404, "not_found", "no session").await;
    check("GET", "/api/sessions?sate=idle", None, 400, "invalid_args", "unknown field `sate`").await;
    check("GET", "/api/sessions?state=tired", None, 400, "invalid_args", "`state`: unknown variant `tired`").await;
    check("GET", "/api/sessions?cursor=xx", None, 400, "invalid_args", "`xx` is no cursor").await;
    check("GET", "/api/sessions?limit=1&limit=2", None, 400, "invalid_args", "the query: duplicate field `limit`")
        .await;
    let limit = "the query: `limit`: invalid digit found in string; `/api/openapi.json` says what it takes";
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
        let why = format!("`{name}` has 1026 bytes; it may have 1024");
        check("POST", "/api/sessions", Some(&long(name, 513)), 400, "invalid_args", &why).await;
    }
    for (directory, why) in [
        ("work", "`directory` is an absolute path inside the sandbox, not `work`"),
        ("/work/../etc", "`directory` has no `..` in it"),
        ("/..", "give the path that it leads to"),
        ("/work\0", "`directory` has a control character"),
        ("a\u{1b}[2J", "`directory` has a control character, such as a line's end; leave it out"),
    ] {
        let body = json!({ "directory": directory }).to_string();
        check("POST", "/api/sessions", Some(&body), 400, "invalid_args", why).await;
    }
    let dots = stage.call("POST", "/api/sessions", Some(r#"{"directory":"/work/..a/b.."}"#)).await;
    assert_eq!(dots.status, 201, "{}", dots.text);
    let made = stage.call("POST", "/api/sessions", Some(&long("title", 200))).await;
    let session = format!("/api/sessions/{}", id_of(&made));
    check("PATCH", &session, Some(&long("title", 201)), 400, "invalid_args", title).await;
    check("PATCH", &session, Some(&long("model", 513)), 400, "invalid_args", "it may have 1024").await;
    assert_eq!(stage.call("GET", &session, None).await.json()["title"], "ä".repeat(200));
}

#[actix_web::test]
async fn a_file_comes_into_the_workspace_and_nowhere_else() {
    let stage = fixture().await;
    let id = id_of(&stage.call("POST", "/api/sessions", Some("{}")).await);
    let put = async |path: &str, content: &str, keep: bool| {
        let request = authenticated("PUT", &format!("/api/sessions/{id}/files/{path}"), None);
        let request =
            request.insert_header(("content-type", "application/octet-stream")).set_payload(content.to_owned());
        stage.send(if keep { request.insert_header(("if-none-match", "*")) } else { request }).await
    };
    let made = put("uploads/a%20b.txt", "one", true).await;
    assert_eq!((made.status.as_u16(), made.json()["path"].as_str()), (201, Some("uploads/a b.txt")), "{}", made.text);
    assert_eq!(made.json()["bytes"], 3);
    let read = |path: &str| std::fs::read_to_string(stage.workspace(&id).join(path)).unwrap_or_default();
    assert_eq!(read("uploads/a b.txt"), "one");
    assert_eq!(put("uploads/a%20b.txt", "two", true).await.error(), (412, "exists".to_owned()));
    assert_eq!(read("uploads/a b.txt"), "one");
    assert_eq!(put("uploads/a%20b.txt", "two", false).await.status, 200);
    assert_eq!(read("uploads/a b.txt"), "two");
    for path in ["../x", "%2e%2e/x", "a/..%2f..%2fx", "/etc/x", "a//b", ""] {
        let refused = put(path, "x", false).await;
        assert_eq!(refused.error(), (400, "invalid_args".to_owned()), "{path}: {}", refused.text);
    }
    assert_eq!(put("large", &"x".repeat(33), false).await.error(), (413, "too_large".to_owned()));
    assert_eq!(put("uploads", "x", false).await.error(), (409, "conflict".to_owned()));
    assert_eq!(put("uploads/a%20b.txt/c", "x", false).await.error(), (409, "conflict".to_owned()));
    std::os::unix::fs::symlink("/tmp", stage.workspace(&id).join("way")).expect("it is laid");
    assert_eq!(put("way/x", "x", false).await.error(), (409, "conflict".to_owned()));
    stage.call("DELETE", &format!("/api/sessions/{id}"), None).await;
    assert_eq!(put("late", "x", false).await.error(), (409, "ended".to_owned()));
    let elsewhere = authenticated("PUT", &format!("{UNKNOWN_SESSION}/files/x"), None).set_payload("x");
    assert_eq!(stage.send(elsewhere).await.error(), (404, "not_found".to_owned()));
}

#[actix_web::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let reply = fixture().await.call("PUT", UNKNOWN_SESSION, None).await;
    assert_eq!(reply.header("allow").split(", ").count(), 3, "{}", reply.header("allow"));
}

#[actix_web::test]
async fn a_session_from_its_making_to_its_purge() {
    let stage = fixture().await;
    let made = stage.call("POST", "/api/sessions", Some(r#"{"title":"One"}"#)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let id = id_of(&made);
    let session = format!("/api/sessions/{id}");
    assert_eq!(made.header("location"), session);

    let changed = stage.call("PATCH", &session, Some(r#"{"title":"Two","model":"demo"}"#)).await;
    assert_eq!(changed.json()["title"], "Two", "{}", changed.text);
    assert_eq!(changed.json(), stage.call("GET", &session, None).await.json());
    assert!(changed.json()["last_seq"].as_u64() > made.json()["last_seq"].as_u64(), "{}", changed.text);
    let listed = stage.call("GET", "/api/sessions?q=two", None).await.json();
    assert_eq!((&listed["total"], &listed["items"][0]["id"]), (&1.into(), &id.as_str().into()));
    assert_eq!(stage.call("GET", "/api/sessions?q=three", None).await.json()["total"], 0);

    let sent = stage.call("POST", &format!("{session}/messages"), Some(r#"{"content":"hello"}"#)).await;
    assert_eq!(sent.status, 202, "{}", sent.text);
    let seq = sent.json()["seq"].as_u64().expect("it has a number");
    let events = stage.call("GET", &format!("{session}/events?after={}&limit=1", seq - 1), None).await.json();
    assert_eq!(events["items"][0]["args"]["content"], "hello", "{events}");
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1));
    let newest = stage.call("GET", &format!("{session}/events?last=1"), None).await.json();
    let (items, last) = (newest["items"].as_array().expect("a list"), &newest["last_seq"]);
    assert_eq!((items.len(), &items[0]["seq"]), (1, last), "{newest}");
    let all = stage.call("GET", &format!("{session}/events?last=1000"), None).await.json();
    assert_eq!(all["items"][0]["seq"], 1, "{all}");
    let only = stage.call("GET", &format!("{session}/events?kind=message"), None).await.json();
    assert_eq!(only["items"].as_array().map(Vec::len), Some(1), "{only}");

    let markdown = stage.call("GET", &format!("{session}/export?format=md"), None).await;
    assert!(
        markdown.text.starts_with("# Two\n") && markdown.text.contains("(not given to the agent)\n\nhello\n"),
        "{}",
        markdown.text
    );
    let lines = stage.call("GET", &format!("{session}/export"), None).await;
    let last_seq = events["last_seq"].as_u64().expect("a number") as usize;
    assert!(lines.text.lines().count() > last_seq, "a line for each event, and one before: {}", lines.text);
    assert!(lines.header("content-disposition").starts_with("attachment"));

    assert_eq!(stage.call("DELETE", &session, None).await.json()["state"], "ended");
    let late = stage.call("POST", &format!("{session}/messages"), Some(r#"{"content":"late"}"#)).await;
    assert_eq!(late.error(), (409, "ended".to_owned()));
    assert_eq!(stage.call("DELETE", &format!("{session}?purge=true"), None).await.status, 204);
    assert_eq!(stage.call("GET", &session, None).await.status, 404);
}

#[actix_web::test]
async fn the_same_key_acts_once() {
    let stage = fixture().await;
    let make = || authenticated("POST", "/api/sessions", Some("{}")).insert_header(("idempotency-key", "k"));
    let (first, second) = (stage.send(make()).await, stage.send(make()).await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 200));
    assert_eq!(id_of(&first), id_of(&second));
    let again = |body| authenticated("POST", "/api/sessions", Some(body)).insert_header(("idempotency-key", "k"));
    let renamed = stage.send(again(r#"{"title":"other"}"#)).await;
    assert_eq!((renamed.status.as_u16(), id_of(&renamed)), (200, id_of(&first)), "its name is not what it is");
    let other = stage.send(again(r#"{"task":"other"}"#)).await;
    assert_eq!(other.error(), (409, "id_reused".to_owned()));

    let say = |message: &str| {
        let uri = format!("/api/sessions/{}/messages", id_of(&first));
        authenticated("POST", &uri, Some(message)).insert_header(("idempotency-key", "m"))
    };
    let once = r#"{"content":"once"}"#;
    let (one, two) = (stage.send(say(once)).await.json(), stage.send(say(once)).await.json());
    assert_eq!(one["seq"], two["seq"]);
    let another = stage.send(say(r#"{"content":"another"}"#)).await;
    assert_eq!(another.error(), (409, "id_reused".to_owned()));
    let bad =
        stage.send(authenticated("POST", "/api/sessions", Some("{}")).insert_header(("idempotency-key", ""))).await;
    assert_eq!(bad.error(), (400, "invalid_args".to_owned()));
}

#[actix_web::test]
async fn a_large_content_is_a_download_and_never_a_page() {
    let stage = fixture().await;
    let id = id_of(&stage.call("POST", "/api/sessions", Some("{}")).await);
    let session: SessionId = id.parse().expect("an id");
    let name = stage.store.put_content(session, "<script>1</script>".into()).await.expect("it is kept");
    let reply = stage.call("GET", &format!("/api/sessions/{id}/contents/{name}"), None).await;
    assert_eq!(reply.text, "<script>1</script>");
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    assert!(reply.header("content-disposition").starts_with("attachment"));
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    for name in ["nothing", "..%2f..%2ftoken", "%2e%2e"] {
        let reply = stage.call("GET", &format!("/api/sessions/{id}/contents/{name}"), None).await;
        assert_eq!(reply.error().0, 404, "{name}");
    }
}

/// Not one actor starts, and not one event is written, for somebody who may not.
#[actix_web::test]
async fn strangers_change_nothing() {
    let stage = fixture().await;
    let id = id_of(&stage.call("POST", "/api/sessions", Some("{}")).await);
    let session: SessionId = id.parse().expect("an id");
    let before = stage.store.read(session, 0, ReadLimit { events: 100, bytes: 1 << 20 }).await.expect("it is read");
    let check = async |request: TestRequest, expected: u16| {
        let reply = stage.send(request).await;
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
    for (address, why) in
        [(socket.clone(), "the token is missing"), (format!("{socket}&token=wrong"), "the token is not")]
    {
        let reply = stage.send(upgrade(anonymous("GET", &address))).await;
        // A close frame, whose first two bytes are the code 4401.
        assert!(reply.status == 101 && reply.text.contains(&format!("\u{11}\u{31}{why}")), "{reply:?}");
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

    let after = stage.store.read(session, 0, ReadLimit { events: 100, bytes: 1 << 20 }).await.expect("it is read");
    assert_eq!(after, before);
    assert_eq!(stage.actor_registry.count(ActorKind::FrontendSocket, None), 0);
    assert_eq!(stage.call("GET", "/api/sessions", None).await.json()["total"], 1);
}

#[actix_web::test]
async fn the_link_is_traded_for_a_cookie() {
    let stage = fixture().await;
    let opened = stage.send(anonymous("GET", &format!("/sessions?a=1&token={TOKEN}&b=2"))).await;
    assert_eq!((opened.status.as_u16(), opened.header("location")), (303, "/sessions?a=1&b=2"));
    let cookie = opened.header("set-cookie").to_owned();
    assert!(cookie.starts_with("greenroom_3000=") && !cookie.contains(TOKEN), "{cookie}");
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let pair = cookie.split(';').next().expect("it has a first part").to_owned();
    let read = anonymous("GET", "/api/sessions").insert_header(("cookie", pair.as_str()));
    assert_eq!(stage.send(read).await.status, 200);
    let write = |origin: Option<&str>| {
        let request = anonymous("POST", "/api/sessions").insert_header(("cookie", pair.as_str()));
        let request = request.insert_header(("content-type", "application/json")).set_payload("{}");
        origin.into_iter().fold(request, |request, origin| request.insert_header(("origin", origin)))
    };
    assert_eq!(stage.send(write(Some(&format!("http://{HOST}")))).await.status, 201);
    assert_eq!(stage.send(write(None)).await.status, 403);
    let wrong = stage.send(anonymous("GET", "/?token=wrong")).await;
    assert_eq!(wrong.error(), (401, "unauthenticated".to_owned()));
    assert!(wrong.text.contains("was replaced") && wrong.text.contains("`greenroom token`"), "{}", wrong.text);
}

#[actix_web::test]
async fn a_friend_is_told_so_and_nobody_else() {
    let stage = fixture().await;
    let friend = |request: TestRequest| request.insert_header(("origin", "https://friend.test"));
    let asked = stage.send(friend(anonymous("OPTIONS", "/api/sessions"))).await;
    assert_eq!((asked.status.as_u16(), asked.header("access-control-allow-origin")), (204, "https://friend.test"));
    assert!(asked.header("access-control-allow-headers").contains("idempotency-key"));
    let read = stage.send(friend(authenticated("GET", "/api/sessions", None))).await;
    assert_eq!((read.status.as_u16(), read.header("access-control-allow-origin")), (200, "https://friend.test"));
    let own = stage.call("GET", "/api/sessions", None).await;
    assert_eq!(own.header("access-control-allow-origin"), "");
    assert!(asked.header("access-control-allow-headers").contains("if-none-match"));
    // A page that cannot read an answer cannot say what is wrong.
    let form =
        authenticated("POST", "/api/sessions", None).insert_header(("content-type", "text/plain")).set_payload("{}");
    let check = async |request: TestRequest, status: u16| {
        let reply = stage.send(friend(request)).await;
        assert_eq!((reply.status.as_u16(), reply.header("vary")), (status, "Origin"), "{}", reply.text);
        assert_eq!(reply.header("access-control-allow-origin"), "https://friend.test", "{}", reply.text);
        assert_eq!(reply.header("access-control-expose-headers"), "location, retry-after");
    };
    check(anonymous("GET", "/api/sessions"), 401).await;
    check(form, 415).await;
    check(authenticated("PUT", "/api/sessions", None), 405).await;
    check(authenticated("GET", UNKNOWN_SESSION, None), 404).await;
    check(authenticated("POST", "/api/sessions", Some("{}")), 201).await;
    for stranger in [("host", "evil.test"), ("origin", "https://evil.test")] {
        let reply = stage.send(friend(authenticated("GET", "/api/sessions", None)).insert_header(stranger)).await;
        assert_eq!((reply.status.as_u16(), reply.header("access-control-allow-origin")), (403, ""));
    }
}

#[actix_web::test]
async fn what_opens_no_socket_is_told_so_in_the_one_form() {
    let stage = fixture().await;
    let half =
        |request: TestRequest| request.insert_header(("connection", "upgrade")).insert_header(("upgrade", "websocket"));
    let chat = format!("/ws{}/chat", UNKNOWN_SESSION.trim_start_matches("/api"));
    for request in [
        half(anonymous("GET", "/ws")),
        half(authenticated("GET", "/ws", None)),
        authenticated("GET", "/ws", None),
        authenticated("GET", &chat, None),
    ] {
        let reply = stage.send(request).await;
        assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{}", reply.text);
        assert!(reply.text.contains("WebSocket"), "{}", reply.text);
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
}

#[actix_web::test]
async fn every_answer_keeps_the_browser_in_bounds() {
    let stage = fixture().await;
    for uri in ["/", "/healthz", "/api/sessions", "/api/nothing", "/nothing"] {
        let reply = stage.call("GET", uri, None).await;
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"), "{uri}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{uri}");
        assert_eq!(reply.header("referrer-policy"), "no-referrer", "{uri}");
        assert!(!reply.header("cache-control").is_empty(), "{uri}");
    }
}

#[actix_web::test]
async fn every_screen_is_the_shell_and_a_known_file_is_not_sent_again() {
    let stage = fixture().await;
    let shell = stage.send(anonymous("GET", "/")).await;
    assert_eq!((shell.status.as_u16(), shell.header("content-type")), (200, "text/html; charset=utf-8"));
    for uri in ["/sessions", "/sessions/01KAHTXV3M9W6N2Q4ZB8C5R7DE", "/admin", "/api/docs"] {
        let screen = stage.send(anonymous("GET", uri)).await;
        assert_eq!(screen.text, shell.text, "{uri}");
        let named = screen.text.split('"').filter(|part| part.starts_with("/assets/"));
        for asset in named {
            assert_eq!(stage.send(anonymous("GET", asset)).await.status, 200, "{asset}");
        }
    }
    let icon = stage.send(anonymous("GET", "/favicon.svg")).await;
    let again =
        stage.send(anonymous("GET", "/favicon.svg").insert_header(("if-none-match", icon.header("etag")))).await;
    assert_eq!((again.status.as_u16(), again.text.as_str()), (304, ""));
    assert_eq!(stage.send(anonymous("GET", "/assets/none.js")).await.error().0, 404);
}

#[actix_web::test]
async fn the_page_comes_as_it_was_set_up() {
    let stage = fixture().await;
    let made = stage.call("POST", "/api/sessions", Some("{}")).await;
    let check = async |cookie: &str, root: &str| {
        for uri in ["/".to_owned(), format!("/sessions/{}", id_of(&made))] {
            let page = stage.send(authenticated("GET", &uri, None).insert_header(("cookie", cookie))).await;
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
async fn the_page_of_a_session_comes_with_it_to_those_who_are_let_in() {
    let stage = fixture().await;
    let title = json!({ "title": "</script><script>alert(1)</script>" }).to_string();
    let made = stage.call("POST", "/api/sessions", Some(&title)).await;
    let uri = format!("/sessions/{}", id_of(&made));
    let shell = stage.send(anonymous("GET", "/")).await;

    let page = stage.call("GET", &uri, None).await;
    assert_eq!((page.header("cache-control"), page.header("etag")), ("no-store", ""));
    let (before, rest) = page.text.split_once(r#"<script id="given" type="application/json">"#).expect("its place");
    let (given, _) = rest.split_once("</script>").expect("it ends");
    assert!(before.contains("session-header") && !before.contains("alert"));
    let given: Value = serde_json::from_str(given).expect("it is JSON");
    assert_eq!(given["session"]["title"], made.json()["title"]);
    let events = stage.call("GET", &format!("/api{uri}/events"), None).await;
    assert_eq!(given["events"], events.json()["items"]);

    let as_anybody =
        [anonymous("GET", &uri), authenticated("GET", &uri, None).insert_header(("sec-fetch-site", "cross-site"))];
    for request in
        as_anybody.into_iter().chain([authenticated("GET", UNKNOWN_SESSION.trim_start_matches("/api"), None)])
    {
        let page = stage.send(request).await;
        assert_eq!(page.text, shell.text);
        assert_eq!(page.header("cache-control"), "no-cache");
    }
    let head = stage.send(authenticated("HEAD", &uri, None)).await;
    assert_eq!(head.status, 200);
    assert_eq!(stage.call("POST", &uri, Some("{}")).await.error().0, 405);
}

/// The document is made from the handlers; this says that each of them is reached at the address it names.
#[actix_web::test]
async fn every_documented_address_answers() {
    let stage = fixture().await;
    let document = serde_json::to_value(super::openapi::ApiDoc::openapi()).expect("it serializes");
    let paths = document["paths"].as_object().expect("it has paths");
    assert!(paths.len() > 15, "{}", paths.len());
    for (path, methods) in paths {
        for method in methods.as_object().expect("it has methods").keys() {
            let uri = path.replace("{id}", "01KAHTXV3M9W6N2Q4ZB8C5R7DE").replace("{name}", "x");
            let reply = stage.call(&method.to_uppercase(), &uri, None).await;
            assert_ne!(reply.status, 405, "{method} {uri}");
            assert!(!reply.text.contains("there is nothing at"), "{method} {uri}: {}", reply.text);
        }
    }
}

#[actix_web::test]
async fn operators_see_what_lives() {
    let stage = fixture().await;
    let id = id_of(&stage.call("POST", "/api/sessions", Some("{}")).await);
    let actors = stage.call("GET", "/api/admin/actors", None).await.json();
    let rows = actors["items"].as_array().expect("rows");
    let is_ours = |row: &&serde_json::Value| row["kind"] == "session" && row["session"] == id.as_str();
    assert_eq!(rows.iter().filter(is_ours).count(), 1, "{actors}");
    assert!(rows.iter().any(|row| row["kind"] == "directory" && row["node"] == "node"), "{actors}");

    stage.call("POST", &format!("/api/sessions/{id}/messages"), Some(r#"{"content":"hello"}"#)).await;
    let metrics = stage.call("GET", "/metrics", None).await.text;
    assert!(!metrics.contains("greenroom_events_appended_total 0"), "{metrics}");
    for line in
        ["greenroom_actors{kind=\"directory\"} 1", "greenroom_events_appended_total", "process_resident_memory_bytes"]
    {
        assert!(metrics.contains(line), "`{line}` is missing in {metrics}");
    }
    let ready = stage.call("GET", "/readyz", None).await;
    assert_eq!(ready.error(), (503, "not_ready".to_owned()));
    // As monitors ask.
    for (uri, status) in [("/healthz", 200), ("/readyz", 503)] {
        assert_eq!(stage.call("HEAD", uri, None).await.status, status, "{uri}");
    }
    assert_eq!(ready.json()["store"], "ok");
    assert!(stage.call("GET", "/api/options", None).await.json()["models"].to_string().contains("\"demo\""));
    let swept = stage.call("POST", "/api/admin/sweep", None).await;
    assert!(swept.status == 200 && swept.json()["sandboxes"] == 0, "{}", swept.text);
    assert_eq!(stage.call("GET", &format!("/api/sessions/{id}/logs"), None).await.error().0, 404);
}

#[test]
fn a_quarter_of_the_descriptors_is_left_to_others() {
    assert_eq!(super::max_connections(25_000, 20_000), 15_000);
    assert_eq!(super::max_connections(25_000, 1_048_576), 25_000);
    assert_eq!(super::max_connections(8, usize::MAX), 8);
    assert_eq!(super::max_connections(25_000, 3), 3, "however few there are");
}

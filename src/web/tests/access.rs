//! Authorization, sign-in, other origins, and the security headers.

use actix_web::test::TestRequest;
use serde_json::json;

use super::{
    UNKNOWN_SESSION,
    fixture::{HOST, TOKEN, anonymous, authenticated, fixture},
    id_of,
};
use crate::{
    actor_registry::ActorKind,
    store::{ReadLimit, SessionId},
};

/// RFC 9110, section 11.1: the name of a scheme has no case.
#[actix_web::test]
async fn bearer_is_taken_in_any_case() {
    let fixture = fixture().await;
    let check = async |value: String, expected: u16| {
        let request = anonymous("GET", "/api/sessions").insert_header(("authorization", value.clone()));
        assert_eq!(fixture.send(request).await.status.as_u16(), expected, "{value}");
    };
    for scheme in ["Bearer", "bearer", "BEARER", "bEARER", "Bearer "] {
        check(format!("{scheme} {TOKEN}"), 200).await;
    }
    for value in
        [format!("Basic {TOKEN}"), format!("Bearer{TOKEN}"), format!("Bearer Bearer {TOKEN}"), TOKEN.to_owned()]
    {
        check(value, 401).await;
    }
}

/// The answers to wrong tokens come ever later. The right token never waits.
#[actix_web::test]
async fn wrong_tokens_are_delayed_and_the_right_one_never() {
    let fixture = fixture().await;
    tokio::time::pause();
    let from = |address: &str, token: &str| {
        let peer = format!("{address}:4000").parse().expect("an address");
        let header = ("authorization", format!("Bearer {token}"));
        anonymous("GET", "/api/sessions").peer_addr(peer).insert_header(header)
    };
    let waited = async |address: &str, token: &str| {
        let began = tokio::time::Instant::now();
        fixture.send(from(address, token)).await;
        began.elapsed().as_millis()
    };
    let mut delays = Vec::new();
    for _ in 0..8 {
        delays.push(waited("10.0.0.1", "wrong").await);
        assert_eq!(waited("10.0.0.1", TOKEN).await, 0);
    }
    assert!(delays.is_sorted() && delays[0] == 0 && delays[7] >= 3000, "{delays:?}");
    assert_eq!(waited("10.0.0.2", "wrong").await, 0);
    let cookie = anonymous("GET", "/api/sessions").peer_addr("10.0.0.1:1".parse().expect("an address"));
    let began = tokio::time::Instant::now();
    let name = fixture.cookie_name.clone();
    let cookie =
        cookie.insert_header(("cookie", format!("{name}=wrong"))).insert_header(("x-greenroom-secret", "wrong"));
    fixture.send(cookie).await;
    assert!(began.elapsed().as_millis() >= 3000, "a wrong cookie is a wrong token");
    let field = anonymous("POST", "/api/sign-in").peer_addr("10.0.0.1:1".parse().expect("an address"));
    let began = tokio::time::Instant::now();
    let reply = fixture.send(field.set_json(json!({ "token": "wrong" }))).await;
    assert_eq!(reply.error(), (401, "unauthenticated".to_owned()));
    assert!(began.elapsed().as_millis() >= 3000, "a wrong token in the field is a wrong token");
    // No token at all is no guess.
    let began = tokio::time::Instant::now();
    fixture.send(anonymous("GET", "/api/sessions").peer_addr("10.0.0.1:1".parse().expect("an address"))).await;
    assert_eq!(began.elapsed().as_millis(), 0);
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

/// A chat client that reconnects for ever gives up at a status, and not at a close code. A page
/// sees only the code.
#[actix_web::test]
async fn chat_client_that_is_no_page_is_rejected_before_the_upgrade() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let upgrade = |request: TestRequest| {
        let headers = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        let request = headers.into_iter().fold(request, |request, header| request.insert_header(header));
        request.insert_header(("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="))
    };
    let chat = |id: &str| format!("/ws/sessions/{id}/chat");
    let (known, unknown) = (chat(&id), chat("01KAHTXV3M9W6N2Q4ZB8C5R7DE"));
    for (address, code) in [(&unknown, "not_found"), (&chat("nonsense"), "not_found")] {
        let reply = fixture.send(upgrade(authenticated("GET", address, None))).await;
        assert_eq!(reply.error(), (404, code.to_owned()), "{address}");
    }
    for address in [&known, &unknown, &format!("{known}?token=wrong")] {
        let reply = fixture.send(upgrade(anonymous("GET", address))).await;
        assert_eq!(reply.error(), (401, "unauthenticated".to_owned()), "{address}");
    }
    let from_page = |request: TestRequest| request.insert_header(("origin", format!("http://{HOST}")));
    let closed_with = |code: u16| String::from_utf8(code.to_be_bytes().to_vec()).expect("the codes of a chat are text");
    for (request, code) in [
        (authenticated("GET", &unknown, None), 4404),
        (anonymous("GET", &known), 4401),
        (anonymous("GET", &format!("{known}?token=wrong")), 4401),
    ] {
        let reply = fixture.send(from_page(upgrade(request))).await;
        assert!(reply.status == 101 && reply.text.contains(&closed_with(code)), "{code}: {reply:?}");
    }
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

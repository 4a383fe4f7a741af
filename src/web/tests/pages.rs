//! Pages for a person who opens an address of this server in a browser.

use actix_web::test::TestRequest;
use serde_json::{Value, json};

use super::{
    UNKNOWN_SESSION,
    fixture::{anonymous, authenticated, fixture},
    id_of,
};

#[actix_web::test]
async fn browser_gets_errors_as_pages() {
    let fixture = fixture().await;
    let open = async |request: TestRequest| {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        fixture.send(request.insert_header(("accept", browser))).await
    };
    let check = async |request: TestRequest, status: u16, part: &str| {
        let page = open(request).await;
        let kind = page.header("content-type");
        assert_eq!((page.status.as_u16(), kind), (status, "text/html; charset=utf-8"), "{}", page.text);
        assert!(page.text.starts_with("<!doctype html>") && page.text.contains(part), "{}", page.text);
        assert!(page.header("content-security-policy").starts_with("default-src 'none';"));
        assert_eq!((page.header("cache-control"), page.header("x-content-type-options")), ("no-store", "nosniff"));
        page
    };
    let signed_out = check(anonymous("GET", "/?token=%3Cb%3E"), 401, "<code>greenroom token</code> prints").await;
    assert_eq!(signed_out.header("www-authenticate"), "Bearer");
    check(anonymous("GET", "/nowhere"), 401, "the token is missing").await;
    check(authenticated("GET", "/nowhere", None), 404, "there is nothing at <code>/nowhere</code>").await;
    check(authenticated("GET", "/%3Cscript%3E%26amp;", None), 404, "<code>/&lt;script>&amp;amp;</code>").await;
    check(anonymous("GET", "/assets/none.js"), 404, "there is nothing at").await;
    check(
        anonymous("GET", "/").insert_header(("host", "evil.test<i>")),
        403,
        "<code>evil.test&lt;i></code> is not a name of this server",
    )
    .await;
    let head = open(anonymous("HEAD", "/?token=wrong")).await;
    assert_eq!((head.status.as_u16(), head.header("content-type")), (401, "text/html; charset=utf-8"));
    for request in [
        authenticated("GET", "/api/nothing", None),
        authenticated("GET", "/%61pi/nothing", None),
        authenticated("GET", "/ws", None),
        authenticated("POST", "/nowhere", Some("{}")),
        authenticated("GET", UNKNOWN_SESSION, None),
    ] {
        open(request).await.error();
    }
    assert_eq!(
        fixture.send(authenticated("GET", "/nowhere", None).insert_header(("accept", "*/*"))).await.error().0,
        404
    );
    assert_eq!(open(anonymous("GET", "/sessions")).await.status, 200);
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

//! Pages for a person who opens an address of this server in a browser.

use actix_web::test::TestRequest;

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
    let missing = check(anonymous("GET", "/nowhere"), 404, "There is nothing at <code>/nowhere</code>.").await;
    assert!(missing.text.contains(r#"<link rel="stylesheet" href="/assets/style-"#), "{}", missing.text);
    check(anonymous("GET", "/metrics"), 401, "The token is missing;").await;
    let dark = authenticated("GET", "/nowhere", None).insert_header(("cookie", "greenroom_theme=dark"));
    check(dark, 404, r#"<html lang="en" data-theme="dark">"#).await;
    let stale = format!("{}/export?ticket=0123", UNKNOWN_SESSION);
    check(anonymous("GET", &stale), 401, "older than 60 s").await;
    check(authenticated("GET", "/%3Cscript%3E%26amp;", None), 404, "<code>/&lt;script>&amp;amp;</code>").await;
    check(anonymous("GET", "/assets/none.js"), 404, "There is nothing at").await;
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
    check("greenroom_theme=dark", r#"<html lang="en" data-theme="dark" data-server="#).await;
    check("other=1; greenroom_theme=light", r#"<html lang="en" data-theme="light" data-server="#).await;
    check("greenroom_sidebar=away", r#"<html lang="en" data-sidebar="away" data-server="#).await;
    let both = r#"<html lang="en" data-theme="dark" data-sidebar="away" data-server="#;
    check("greenroom_sidebar=away; greenroom_theme=dark", both).await;
    check("other=1", r#"<html lang="en" data-server="#).await;
    check("greenroom_sidebar=there", r#"<html lang="en" data-server="#).await;
    check("greenroom_theme=\"><script>", r#"<html lang="en" data-server="#).await;
}

//! Pages for a person who opens an address of this server in a browser.

use actix_web::test::TestRequest;

use super::{
    UNKNOWN_SESSION,
    fixture::{anonymous, authenticated, fixture},
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
    check(anonymous("HEAD", "/?token=wrong"), 401, "").await;
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

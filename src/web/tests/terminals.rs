//! Terminals of sessions whose sandbox does not run.

use super::{UNKNOWN_SESSION, fixture::fixture, id_of};

#[actix_web::test]
async fn session_without_a_sandbox_has_no_terminals() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let (all, main) = (format!("/api/sessions/{id}/terminals"), format!("/api/sessions/{id}/terminals/main"));
    let rename = Some(r#"{"name":"build"}"#);
    for action in ["", "stop", "end"] {
        let code = match action {
            "" => "not_found",
            "end" => {
                fixture.call("DELETE", &format!("/api/sessions/{id}"), None).await;
                "ended"
            }
            action => {
                fixture.call("POST", &format!("/api/sessions/{id}/{action}"), Some("{}")).await;
                "not_found"
            }
        };
        let listed = fixture.call("GET", &all, None).await;
        assert_eq!((listed.status.as_u16(), listed.text.as_str()), (200, r#"{"items":[]}"#), "after `{action}`");
        assert_eq!(fixture.call("PATCH", &main, rename).await.error().1, code, "after `{action}`");
        assert_eq!(fixture.call("DELETE", &main, None).await.error().1, code, "after `{action}`");
    }
}

#[actix_web::test]
async fn names_are_checked() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let main = format!("/api/sessions/{id}/terminals/main");
    for body in [r#"{"name":""}"#, r#"{"name":"a b"}"#, r#"{"name":".."}"#, "{}", r#"{"name":"a","x":1}"#] {
        let reply = fixture.call("PATCH", &main, Some(body)).await;
        assert_eq!(reply.error(), (400, "invalid_args".to_owned()), "{body}");
    }
    for uri in [
        format!("/api/sessions/{id}/terminals/a%20b"),
        format!("{UNKNOWN_SESSION}/terminals/main"),
        "/api/sessions/x/terminals/main".to_owned(),
    ] {
        assert_eq!(fixture.call("DELETE", &uri, None).await.error(), (404, "not_found".to_owned()), "{uri}");
    }
    assert_eq!(fixture.call("GET", &format!("{UNKNOWN_SESSION}/terminals"), None).await.error().0, 404);
}

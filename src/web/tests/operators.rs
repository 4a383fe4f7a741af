//! Routes for operators, and the OpenAPI document.

use super::{fixture::fixture, id_of};
use crate::web::openapi;

/// The document is generated from the handlers. This test checks that a route exists at each
/// address in the document.
#[actix_web::test]
async fn every_documented_address_has_a_route() {
    let fixture = fixture().await;
    let document = serde_json::to_value(openapi::build()).expect("the document serializes");
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
    let options = fixture.call("GET", "/api/options", None).await.json();
    let demo = options["models"].as_array().expect("a list").last().expect("the demo model is always offered");
    assert_eq!((&demo["name"], &demo["takes_images"]), (&"demo".into(), &false.into()));
    assert_eq!(options["defaults"]["effort"], serde_json::Value::Null);
    assert!(options["prices_as_of"].as_str().is_some_and(|month| month.len() == 7), "{options}");
    let swept = fixture.call("POST", "/api/admin/sweep", None).await;
    assert!(swept.status == 200 && swept.json()["sandboxes"] == 0, "{}", swept.text);
    assert_eq!(fixture.call("GET", &format!("/api/sessions/{id}/logs"), None).await.error().0, 404);
}

//! Routes for operators.

use actix_web::http::header::HeaderMap;

use super::{
    fixture::{authenticated, fixture},
    id_of,
};
use crate::{store::SessionId, web::openapi};

/// `HEAD` has the status and the headers of `GET`, and no body.
#[actix_web::test]
async fn every_address_with_get_takes_head() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some(r#"{"task":"x"}"#)).await);
    std::fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    std::fs::write(fixture.workspace(&id).join("x"), "content").expect("the file is written");
    let document = serde_json::to_value(openapi::build()).expect("the document serializes");
    let documented = document["paths"].as_object().expect("the document has paths").iter();
    let readable = documented.filter(|(_, methods)| methods.get("get").is_some()).map(|(path, _)| path.clone());
    let others =
        ["/", "/sessions", "/sessions/{id}", "/api/docs", "/api/openapi.json", "/ws", "/ws/sessions/{id}/chat", "/no"];
    let paths: Vec<String> = readable.chain(others.map(str::to_owned)).collect();
    assert!(paths.len() > 18, "{paths:?}");
    for path in &paths {
        for session in [id.clone(), SessionId::generate().to_string()] {
            let uri = path.replace("{id}", &session).replace("{name}", "x").replace("{path}", "x");
            let get = fixture.call("GET", &uri, None).await;
            let head = fixture.call("HEAD", &uri, None).await;
            assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{uri}");
            let names = |headers: &HeaderMap| {
                let mut names: Vec<_> = headers.keys().map(ToString::to_string).collect();
                names.sort();
                names
            };
            assert_eq!(names(&head.headers), names(&get.headers), "{uri}");
            assert_eq!(head.header("content-type"), get.header("content-type"), "{uri}");
        }
    }
    // A stream that never ends for `GET`.
    let stream = |method| {
        let uri = format!("/api/sessions/{id}/events");
        fixture.send(authenticated(method, &uri, None).insert_header(("accept", "text/event-stream")))
    };
    let head = stream("HEAD").await;
    assert_eq!((head.status.as_u16(), head.text.as_str(), head.header("content-type")), (200, "", "text/event-stream"));
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
    for line in [
        "greenroom_actors{kind=\"directory\"} 1",
        "greenroom_actors{kind=\"terminal_socket\"} 0",
        "greenroom_sessions{state=\"awaiting_confirmation\"} 0",
        "greenroom_sandboxes{driver=\"docker\",state=\"frozen\"} 0",
        "greenroom_sandboxes{driver=\"process\",state=\"running\"} 0",
        "greenroom_sandbox_start_seconds_bucket{driver=\"docker\",le=\"0.1\"}",
        "greenroom_model_calls_total{model=\"demo\",provider=\"demo\"}",
        "greenroom_model_errors_total{model=\"other\",provider=\"gemini\"}",
        "greenroom_events_appended_total",
        "process_resident_memory_bytes",
    ] {
        assert!(metrics.contains(line), "`{line}` is missing in {metrics}");
    }
    let ready = fixture.call("GET", "/readyz", None).await;
    assert_eq!(ready.error(), (503, "not_ready".to_owned()));
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

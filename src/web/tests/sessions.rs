//! Sessions over REST, with their uploads and contents.

use super::{
    UNKNOWN_SESSION,
    fixture::{authenticated, fixture},
    id_of,
};
use crate::store::SessionId;

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
async fn effort_is_chosen_recorded_and_changed() {
    let fixture = fixture().await;
    let create = async |body| fixture.call("POST", "/api/sessions", Some(body)).await;
    assert_eq!(create("{}").await.json()["effort"], serde_json::Value::Null);
    assert_eq!(create(r#"{"effort":"huge"}"#).await.error(), (400, "invalid_args".to_owned()));
    let created = create(r#"{"effort":"high"}"#).await;
    assert_eq!(created.json()["effort"], "high", "{}", created.text);
    let session = format!("/api/sessions/{}", id_of(&created));
    let low = fixture.call("PATCH", &session, Some(r#"{"effort":"low"}"#)).await;
    assert_eq!((&low.json()["effort"], &low.json()["model"]), (&"low".into(), &created.json()["model"]));
    let default = fixture.call("PATCH", &session, Some(r#"{"effort":"default"}"#)).await;
    assert_eq!(default.json()["effort"], serde_json::Value::Null, "{}", default.text);
    let events = fixture.call("GET", &format!("{session}/events?kind=set_model"), None).await.json();
    let efforts: Vec<_> =
        events["items"].as_array().expect("a list").iter().map(|event| &event["args"]["effort"]).collect();
    assert_eq!(efforts, [&"low".into(), &serde_json::Value::Null]);
}

#[actix_web::test]
async fn mode_and_analyzer_are_chosen_at_the_creation() {
    let fixture = fixture().await;
    let create = async |body| fixture.call("POST", "/api/sessions", Some(body)).await;
    let default = create("{}").await.json();
    assert_eq!((&default["mode"], &default["analyzer"]), (&"auto".into(), &"rules".into()), "{default}");
    let named = create(r#"{"mode":"plan","analyzer":"none"}"#).await.json();
    assert_eq!((&named["mode"], &named["analyzer"]), (&"plan".into(), &"none".into()), "{named}");
    let unknown = create(r#"{"analyzer":"llm"}"#).await;
    assert_eq!(unknown.error(), (400, "invalid_args".to_owned()));
    assert!(unknown.text.contains("the known analyzers are `none`, `rules`"), "{}", unknown.text);
    assert_eq!(fixture.call("GET", "/api/sessions", None).await.json()["total"], 2, "an error creates nothing");
    let options = fixture.call("GET", "/api/options", None).await.json();
    assert_eq!(options["modes"], serde_json::json!(["plan", "ask", "edits", "auto"]));
    assert_eq!(options["analyzers"], serde_json::json!(["none", "rules"]));
    assert_eq!((&options["defaults"]["mode"], &options["defaults"]["analyzer"]), (&"auto".into(), &"rules".into()));
    assert_eq!(options["approvals"]["timeout_s"], serde_json::Value::Null);
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
    let elsewhere = authenticated("PUT", &format!("{UNKNOWN_SESSION}/files/x"), Some("x"));
    assert_eq!(fixture.send(elsewhere).await.error(), (404, "not_found".to_owned()));
}

#[actix_web::test]
async fn upload_without_body_changes_nothing() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let uri = format!("/api/sessions/{id}/files/a.txt");
    assert_eq!(fixture.call("PUT", &uri, Some("text")).await.status, 201);
    let read = || std::fs::read_to_string(fixture.workspace(&id).join("a.txt")).expect("the file is readable");
    let put = || authenticated("PUT", &uri, None);
    // Many clients send the length 0 for an absent body.
    for request in [put(), put().insert_header(("content-length", "0"))] {
        let rejected = fixture.send(request).await;
        assert_eq!(rejected.error(), (400, "invalid_args".to_owned()));
        assert!(rejected.text.contains("the body is missing; to upload an empty file"), "{}", rejected.text);
        assert_eq!(read(), "text");
    }
    // An empty file is a body with a type, or one that comes in chunks.
    for header in [("content-type", "text/plain"), ("transfer-encoding", "chunked")] {
        assert_eq!(fixture.call("PUT", &uri, Some("text")).await.status, 200);
        assert_eq!(fixture.send(put().insert_header(header)).await.json()["bytes"], 0, "{header:?}");
        assert_eq!(read(), "");
    }
}

#[actix_web::test]
async fn path_that_is_no_utf8_names_no_file() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    for path in ["%ff", "a/%c3%28", "%ed%a0%80.txt", "a%e2%82"] {
        let uri = format!("/api/sessions/{id}/files/{path}");
        for (method, body) in [("PUT", Some("x")), ("GET", None)] {
            let rejected = fixture.call(method, &uri, body).await;
            assert_eq!(rejected.error(), (400, "invalid_args".to_owned()), "{method} {path}: {}", rejected.text);
            assert!(rejected.text.contains("is not UTF-8"), "{method} {path}: {}", rejected.text);
        }
    }
    assert!(!fixture.workspace(&id).exists(), "nothing is written");
    // The replacement character itself is a character like any other.
    let uri = format!("/api/sessions/{id}/files/%ef%bf%bd%2525");
    assert_eq!(fixture.call("PUT", &uri, Some("x")).await.json()["path"], "\u{fffd}%25");
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
    let stored = fixture.store.put_content(session, epoch, b"\xff\xd8\xff\xe0<script>"[..].into()).await;
    let picture = stored.expect("the store keeps the picture");
    let reply = fixture.call("GET", &format!("/api/sessions/{id}/contents/{picture}"), None).await;
    assert_eq!((reply.header("content-type"), reply.header("content-disposition")), ("image/jpeg", "inline"));
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    for name in ["nothing", "..%2f..%2ftoken", "%2e%2e"] {
        let reply = fixture.call("GET", &format!("/api/sessions/{id}/contents/{name}"), None).await;
        assert_eq!(reply.error().0, 404, "{name}");
    }
}

//! Checkpoints of a workspace: shapes and errors of the routes.

use std::{fs, sync::Arc};

use serde_json::json;

use super::{
    UNKNOWN_SESSION,
    fixture::{FixtureSetup, fixture, fixture_with_files},
    id_of,
};
use crate::checkpoints::Checkpoints;

/// Captures the present workspace as that before the first turn.
async fn record_start(checkpoints: &Arc<Checkpoints>, session: &str) {
    let session = session.parse().expect("the id of a session");
    checkpoints.capture_start(session).await.expect("the start is captured");
}

#[actix_web::test]
async fn checkpoints_are_listed_compared_and_restored() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let at = |rest: &str| format!("/api/sessions/{id}/{rest}");
    let workspace = fixture.workspace(&id);
    fs::create_dir_all(&workspace).expect("the workspace is created");
    record_start(&fixture.checkpoints, &id).await;
    let list = fixture.call("GET", &at("checkpoints"), None).await.json();
    assert_eq!((&list["offered"], &list["items"]), (&json!(true), &json!([])));
    fs::write(workspace.join("a\n"), "one\n").expect("the file is written");
    fs::write(workspace.join("b"), [0]).expect("the file is written");
    fs::create_dir(workspace.join("target")).expect("the directory is created");

    let diff = fixture.call("GET", &at("diff?from=base"), None).await.json();
    assert_eq!((&diff["from"], &diff["to"], &diff["added"]), (&json!("start"), &json!("now"), &json!(1)));
    let left_out = json!([{ "path": "target", "reason": "ignored" }]);
    assert_eq!(diff["left_out"], left_out);
    let file = json!({
        "path": "a%0A", "encoded": true, "change": "created", "from": null, "from_encoded": false, "old_mode": null,
        "new_mode": "100644", "binary": false, "added": 1, "removed": 0, "old_bytes": null, "new_bytes": 4,
        "diff": "@@ -0,0 +1,1 @@\n+one\n", "truncated": false,
    });
    assert_eq!(diff["files"][0], file);
    assert_eq!((&diff["files"][1]["binary"], &diff["files"][1]["diff"]), (&json!(true), &json!(null)));
    let one = fixture.call("GET", &at("diff?path=a%250A&encoded=true"), None).await.json();
    assert_eq!(one["files"], json!([file]));

    let restored = fixture.call("POST", &at("checkpoints/start/restore"), Some("{}")).await;
    assert_eq!(restored.status, 200, "{}", restored.text);
    let restored = restored.json();
    assert_eq!((&restored["removed"], &restored["failed"]), (&json!(2), &json!([])));
    assert!(!workspace.join("b").exists() && workspace.join("target").exists());
    let list = fixture.call("GET", &at("checkpoints"), None).await.json();
    let kinds: Vec<_> = list["items"].as_array().expect("a list").iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds, ["before_restore", "restore"]);
    let before = restored["before"].as_str().expect("a name");
    let file = fixture.call("GET", &at(&format!("checkpoints/{before}/files/a%250A?encoded=true")), None).await;
    assert_eq!((file.text.as_str(), file.header("content-type")), ("one\n", "application/octet-stream"));
    let patch = fixture.call("GET", &at(&format!("patch?from=start&to={before}")), None).await;
    assert!(patch.text.starts_with("diff --git \"a/a\\n\" \"b/a\\n\"\nnew file mode 100644\n"), "{}", patch.text);
    assert_eq!(patch.header("content-disposition"), format!("attachment; filename=\"start-{before}.patch\""));
    let scope = r#"{"path":"a%0A","encoded":true}"#;
    let one = fixture.call("POST", &at(&format!("checkpoints/{before}/restore")), Some(scope)).await.json();
    assert_eq!((&one["restored"], &one["removed"]), (&json!(1), &json!(0)));
}

#[actix_web::test]
async fn requests_without_an_answer_are_rejected() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    let check = async |method: &str, path: &str, body: Option<&str>, error: (u16, &str)| {
        let reply = fixture.call(method, path, body).await;
        assert_eq!(reply.error(), (error.0, error.1.to_owned()), "{method} {path}: {}", reply.text);
    };
    let at = |rest: &str| format!("/api/sessions/{id}/{rest}");
    check("GET", &at("diff?from=turn-9"), None, (404, "not_found")).await;
    check("GET", &at("diff"), None, (404, "not_found")).await;
    check("POST", &at("checkpoints/start/restore"), Some("{}"), (404, "not_found")).await;
    record_start(&fixture.checkpoints, &id).await;
    check("GET", &at("diff?from=a/b"), None, (400, "invalid_args")).await;
    check("GET", &at("diff?path=../a"), None, (400, "invalid_args")).await;
    check("GET", &at("patch?to=turn-9"), None, (404, "not_found")).await;
    check("GET", &at("checkpoints/start/files/a"), None, (404, "not_found")).await;
    check("POST", &at("checkpoints/turn-9/restore"), Some("{}"), (404, "not_found")).await;
    check("POST", &at("checkpoints/start/restore"), Some(r#"{"path":"a"}"#), (404, "not_found")).await;
    check("POST", &at("checkpoints/start/restore"), Some(r#"{"path":"../a"}"#), (400, "invalid_args")).await;
    check("POST", &at("checkpoints/a.b/restore"), Some("{}"), (404, "not_found")).await;
    check("POST", &format!("{UNKNOWN_SESSION}/checkpoints/start/restore"), Some("{}"), (404, "not_found")).await;
    let missing = fixture.call("POST", &at("checkpoints/start/restore"), Some(r#"{"path":"a"}"#)).await;
    assert!(missing.text.contains("checkpoint `start` has no file `a`; `GET"), "{}", missing.text);
    for rest in ["checkpoints", "diff", "patch"] {
        check("GET", &format!("{UNKNOWN_SESSION}/{rest}"), None, (404, "not_found")).await;
    }
    fixture.call("DELETE", &format!("/api/sessions/{id}"), None).await;
    check("POST", &at("checkpoints/start/restore"), Some("{}"), (409, "ended")).await;
    assert_eq!(fixture.call("GET", &at("diff"), None).await.status, 200, "an ended session can be compared");
}

#[actix_web::test]
async fn shared_workspace_offers_none() {
    let shared = tempfile::tempdir().expect("a directory");
    let setup = FixtureSetup { shared_workspace: Some(shared.path().to_owned()), ..FixtureSetup::default() };
    let fixture = fixture_with_files(setup).await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let list = fixture.call("GET", &format!("/api/sessions/{id}/checkpoints"), None).await.json();
    assert_eq!(list["offered"], false);
    let diff = fixture.call("GET", &format!("/api/sessions/{id}/diff"), None).await;
    assert_eq!(diff.error(), (409, "conflict".to_owned()));
    let restore = fixture.call("POST", &format!("/api/sessions/{id}/checkpoints/start/restore"), Some("{}")).await;
    assert_eq!(restore.error(), (409, "conflict".to_owned()));
    assert!(restore.text.contains("checkpoints are off: all sessions share one workspace"), "{}", restore.text);
}

//! Lists, uploads, moves, removals and archives of files over REST.

use std::{fs, io::Read, os::unix::fs::symlink};

use actix_web::body::MessageBody;
use serde_json::{Value, json};

use super::{
    UNKNOWN_SESSION,
    fixture::{ApiReply, FixtureSetup, anonymous, authenticated, fixture, fixture_with_files},
    id_of,
};
use crate::config::FilesConfig;

const BOUNDARY: &str = "----boundary";
const MULTIPART: (&str, &str) = ("content-type", "multipart/form-data; boundary=----boundary");

/// Files of a form by name and content, and the status and code of its rejection.
type RejectedForm<'a> = (&'a [(&'a str, &'a str)], u16, &'a str);

/// Returns the body of a form with these files.
fn form(files: &[(&str, &str)]) -> String {
    let parts = files.iter().map(|(name, content)| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
             Content-Type: application/x-anything\r\n\r\n{content}\r\n"
        )
    });
    parts.collect::<String>() + &format!("--{BOUNDARY}--\r\n")
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().expect("items").iter().map(|item| item["path"].as_str().expect("a path")).collect()
}

#[actix_web::test]
async fn files_are_listed_and_searched_by_pages() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let list = async |query: &str| fixture.call("GET", &format!("/api/sessions/{id}/files{query}"), None).await;
    let empty = list("").await.json();
    assert_eq!((names(&empty), &empty["shared"], &empty["next_cursor"]), (vec![], &json!(false), &Value::Null));
    assert!(!fixture.workspace(&id).exists(), "a list creates nothing");
    fs::create_dir_all(fixture.workspace(&id).join("src/deep")).expect("directories");
    for name in ["src/a.rs", "src/deep/b.rs", "c.txt"] {
        fs::write(fixture.workspace(&id).join(name), "text").expect("a file");
    }
    assert_eq!(names(&list("").await.json()), ["c.txt", "src"]);
    assert_eq!(names(&list("?path=src").await.json()), ["src/a.rs", "src/deep"]);
    assert_eq!(names(&list("?recursive=true&q=*.rs").await.json()), ["src/a.rs", "src/deep/b.rs"]);
    let first = list("?recursive=true&limit=2").await.json();
    assert_eq!(names(&first), ["c.txt", "src"]);
    let cursor = first["next_cursor"].as_str().expect("there is more");
    let second = list(&format!("?recursive=true&limit=2&cursor={cursor}")).await.json();
    assert_eq!(names(&second), ["src/a.rs", "src/deep"]);
    let (item, tag) =
        (&second["items"][0], fixture.call("HEAD", &format!("/api/sessions/{id}/files/src/a.rs"), None).await);
    assert_eq!(
        (&item["kind"], &item["bytes"], item["etag"].as_str()),
        (&json!("file"), &json!(4), Some(tag.header("etag")))
    );
    for (query, status, part) in [
        ("?path=c.txt", 409, "not a directory"),
        ("?path=none", 404, "there is no `none`"),
        ("?path=../x", 400, "inside the workspace"),
        ("?path=/etc", 400, "inside the workspace"),
        ("?path=%252e%252e&encoded=true", 400, "inside the workspace"),
        ("?q=[", 400, "`q`"),
        ("?path=src&cursor=c%2Etxt", 400, "`cursor`"),
        ("?cursor=..", 400, "`cursor`"),
        ("?unknown=1", 400, "unknown"),
    ] {
        let reply = list(query).await;
        assert!(reply.status == status && reply.text.contains(part), "{query}: {}", reply.text);
    }
    assert_eq!(fixture.call("GET", &format!("{UNKNOWN_SESSION}/files"), None).await.error().0, 404);
}

#[actix_web::test]
async fn edit_with_an_old_tag_is_rejected_with_the_present_one() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let uri = format!("/api/sessions/{id}/files/notes.md");
    let put = async |text: &str, tag: &str| {
        fixture.send(authenticated("PUT", &uri, Some(text)).insert_header(("if-match", tag))).await
    };
    let created = fixture.call("PUT", &uri, Some("one")).await;
    let first = created.header("etag").to_owned();
    assert_eq!((created.status.as_u16(), created.json()["etag"].as_str()), (201, Some(first.as_str())));
    assert_eq!(fixture.call("GET", &uri, None).await.header("etag"), first, "a download has the same tag");
    let second = put("two", &format!("\"other\", {first}")).await;
    assert_eq!(second.status, 200, "{}", second.text);
    let stale = put("three", &first).await;
    assert_eq!((stale.error(), stale.header("etag")), ((412, "changed".to_owned()), second.header("etag")));
    assert_eq!(fixture.call("GET", &uri, None).await.text, "two");
    let none =
        fixture.send(authenticated("PUT", &format!("{uri}.new"), Some("x")).insert_header(("if-match", "*"))).await;
    assert_eq!((none.error(), none.header("etag")), ((412, "changed".to_owned()), ""));
    let both =
        authenticated("PUT", &uri, Some("x")).insert_header(("if-match", "*")).insert_header(("if-none-match", "*"));
    assert_eq!(fixture.send(both).await.error(), (400, "invalid_args".to_owned()));
}

#[actix_web::test]
async fn form_uploads_all_files_or_none() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let upload = async |query: &str, files: &[(&str, &str)]| -> ApiReply {
        let request = authenticated("POST", &format!("/api/sessions/{id}/files{query}"), None);
        fixture.send(request.insert_header(MULTIPART).set_payload(form(files))).await
    };
    let read = |path: &str| fs::read_to_string(fixture.workspace(&id).join(path)).ok();
    let done = upload("?path=up", &[("a.txt", "one"), ("dir/ä.txt", "two")]).await;
    assert_eq!(done.status, 201, "{}", done.text);
    let paths: Vec<_> =
        done.json()["files"].as_array().expect("files").iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, ["up/a.txt", "up/dir/ä.txt"]);
    assert_eq!((read("up/a.txt").as_deref(), read("up/dir/ä.txt").as_deref()), (Some("one"), Some("two")));
    let long = "x".repeat(33);
    let cases: [RejectedForm<'_>; 9] = [
        (&[("new/b", "1"), ("a.txt", "2")], 412, "exists"),
        (&[("new/b", "1"), ("c", long.as_str())], 413, "too_large"),
        (&[("new/b", "1"), ("c", "2"), ("d", "3"), ("e", "4")], 413, "too_many_files"),
        (&[("new/b", "1"), ("new/b", "2")], 400, "invalid_args"),
        (&[("new/b", "1"), ("../out", "2")], 400, "invalid_args"),
        (&[("new/b", "1"), ("/etc/x", "2")], 400, "invalid_args"),
        (&[("new/b", "1"), ("dir", "2")], 412, "exists"),
        (&[("new/b", "1"), ("a.txt/x", "2")], 409, "conflict"),
        (&[], 400, "invalid_args"),
    ];
    for (files, status, code) in cases {
        let rejected = upload("?path=up", files).await;
        assert_eq!(rejected.error(), (status, code.to_owned()), "{files:?}: {}", rejected.text);
        assert_eq!((read("up/new/b"), fixture.workspace(&id).join("up/new").exists()), (None, false), "{files:?}");
        assert_eq!(read("up/a.txt").as_deref(), Some("one"));
    }
    let limit = upload("", &[("1", ""), ("2", ""), ("3", ""), ("4", "")]).await;
    assert!(limit.text.contains("3 files, which is `files.max_files`"), "{}", limit.text);
    assert_eq!(upload("?path=up&overwrite=true", &[("a.txt", "three"), ("b", "")]).await.status, 201);
    assert_eq!(read("up/a.txt").as_deref(), Some("three"));
    let uri = format!("/api/sessions/{id}/files");
    let cut = authenticated("POST", &uri, None)
        .insert_header(MULTIPART)
        .set_payload(form(&[("cut", "text")])[..120].to_owned());
    assert_eq!(fixture.send(cut).await.error().0, 400);
    assert_eq!(read("cut"), None, "half a form leaves nothing");
    let no_boundary =
        authenticated("POST", &uri, None).insert_header(("content-type", "multipart/form-data")).set_payload("x");
    assert_eq!(fixture.send(no_boundary).await.error(), (415, "not_multipart".to_owned()));
    assert_eq!(fixture.call("POST", &uri, Some("{}")).await.error(), (415, "not_multipart".to_owned()));
    let no_file =
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ntext\r\n--{BOUNDARY}--\r\n");
    let no_file = authenticated("POST", &uri, None).insert_header(MULTIPART).set_payload(no_file);
    assert_eq!(fixture.send(no_file).await.error(), (400, "invalid_args".to_owned()));
}

/// A page of another origin can send a form without a preflight.
#[actix_web::test]
async fn form_of_another_origin_is_rejected() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let uri = format!("/api/sessions/{id}/files");
    let post = |origin: &str| {
        let request = authenticated("POST", &uri, None).insert_header(("origin", origin.to_owned()));
        request.insert_header(MULTIPART).set_payload(form(&[("a", "1")]))
    };
    assert_eq!(fixture.send(post("https://evil.test")).await.error(), (403, "foreign_origin".to_owned()));
    assert_eq!(fixture.send(post("null")).await.error(), (403, "foreign_origin".to_owned()));
    let unknown = anonymous("POST", &uri).insert_header(MULTIPART).set_payload(form(&[("a", "1")]));
    assert_eq!(fixture.send(unknown).await.error(), (401, "unauthenticated".to_owned()));
    assert!(!fixture.workspace(&id).join("a").exists());
    // At another address a form is no JSON.
    let elsewhere = authenticated("POST", &format!("/api/sessions/{id}/messages"), None).insert_header(MULTIPART);
    assert_eq!(fixture.send(elsewhere.set_payload(form(&[]))).await.error(), (415, "not_json".to_owned()));
}

#[actix_web::test]
async fn denied_types_name_the_key() {
    let parse = |text: &[&str]| text.iter().map(|one| one.parse().expect("a pattern")).collect::<Vec<_>>();
    let files =
        FilesConfig { max_files: 3, allowed_types: parse(&[".png", ".sh", "image/*"]), denied_types: parse(&[".sh"]) };
    let fixture = fixture_with_files(FixtureSetup { files, shared_workspace: None }).await;
    let limits = fixture.call("GET", "/api/options", None).await.json()["limits"].take();
    let offered = [&limits["upload_files"], &limits["allowed_types"], &limits["denied_types"]];
    assert_eq!(offered, [&json!(3), &json!([".png", ".sh", "image/*"]), &json!([".sh"])]);
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let put = async |name: &str, content: &'static [u8]| {
        let uri = format!("/api/sessions/{id}/files/{name}");
        fixture.send(authenticated("PUT", &uri, None).set_payload(content)).await
    };
    assert_eq!(put("a.png", b"\x89PNG\r\n\x1a\n").await.status, 201);
    let cases: [(&str, &'static [u8], &str); 3] = [
        ("b.png", b"#!/bin/sh", "files.allowed_types"),
        ("b.txt", b"\x89PNG\r\n\x1a\n", "files.allowed_types"),
        ("b.SH", b"\x89PNG\r\n\x1a\n", "files.denied_types"),
    ];
    for (name, content, key) in cases {
        let rejected = put(name, content).await;
        assert_eq!(rejected.error(), (415, "type_denied".to_owned()), "{name}");
        assert!(rejected.text.contains(key) && rejected.text.contains(name), "{}", rejected.text);
        assert!(!fixture.workspace(&id).join(name).exists());
    }
    let request = authenticated("POST", &format!("/api/sessions/{id}/files"), None).insert_header(MULTIPART);
    let rejected = fixture.send(request.set_payload(form(&[("c.png", "GIF89a"), ("d.png", "text")]))).await;
    assert_eq!(rejected.error(), (415, "type_denied".to_owned()));
    assert_eq!(fs::read_dir(fixture.workspace(&id)).expect("a directory").count(), 1);
}

#[actix_web::test]
async fn entries_are_made_moved_and_removed_until_the_session_ends() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let session = format!("/api/sessions/{id}");
    let post = async |action: &str, body: Value| {
        fixture.call("POST", &format!("{session}/files:{action}"), Some(&body.to_string())).await
    };
    let delete = async |path: &str| fixture.call("DELETE", &format!("{session}/files/{path}"), None).await;
    assert_eq!(post("mkdir", json!({ "path": "a/b" })).await.status, 201);
    assert_eq!(post("mkdir", json!({ "path": "a/b" })).await.status, 200);
    assert_eq!(fixture.call("PUT", &format!("{session}/files/a/file"), Some("text")).await.status, 201);
    assert_eq!(post("mkdir", json!({ "path": "a/file" })).await.error(), (412, "exists".to_owned()));
    assert_eq!(post("mkdir", json!({ "path": "../x" })).await.error(), (400, "invalid_args".to_owned()));
    let moved = post("move", json!({ "from": "a/file", "to": "moved" })).await.json();
    assert_eq!((moved["path"].as_str(), moved["kind"].as_str()), (Some("moved"), Some("file")));
    assert_eq!(post("move", json!({ "from": "moved", "to": "a" })).await.error(), (412, "exists".to_owned()));
    assert_eq!(post("move", json!({ "from": "a", "to": "a/b/c" })).await.error(), (409, "conflict".to_owned()));
    assert_eq!(post("move", json!({ "from": "none", "to": "x" })).await.error(), (404, "not_found".to_owned()));
    let odd = post("move", json!({ "from": "moved", "to": "bad%FF%0Aname", "to_encoded": true })).await.json();
    assert_eq!((&odd["name"], &odd["encoded"]), (&json!("bad%FF%0Aname"), &json!(true)));
    let reply = fixture.call("GET", &format!("{session}/files/bad%25FF%250Aname?encoded=true"), None).await;
    assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "text"));
    assert!(!reply.header("content-disposition").contains('\n'));
    let put = fixture.call("PUT", &format!("{session}/files/bad%25FF%250Aname?encoded=true"), Some("new")).await;
    assert_eq!((put.status.as_u16(), &put.json()["encoded"]), (200, &json!(true)));
    assert_eq!(delete("bad%25FF%250Aname?encoded=true").await.status, 204);
    assert_eq!(delete("a").await.error(), (409, "conflict".to_owned()));
    assert_eq!(delete("a?recursive=true").await.status, 204);
    assert_eq!(delete("a").await.error(), (404, "not_found".to_owned()));
    assert_eq!(delete("").await.error(), (400, "invalid_args".to_owned()));
    fs::write(fixture.workspace(&id).join("last"), "text").expect("a file");
    fixture.call("DELETE", &session, None).await;
    for reply in [
        post("mkdir", json!({ "path": "x" })).await,
        post("move", json!({ "from": "last", "to": "x" })).await,
        delete("last").await,
        fixture
            .send(
                authenticated("POST", &format!("{session}/files"), None)
                    .insert_header(MULTIPART)
                    .set_payload(form(&[("x", "")])),
            )
            .await,
    ] {
        assert_eq!(reply.error(), (409, "ended".to_owned()));
    }
    assert_eq!(names(&fixture.call("GET", &format!("{session}/files"), None).await.json()), ["last"]);
    assert_eq!(fixture.call("GET", &format!("{session}/archive"), None).await.status, 200);
}

#[actix_web::test]
async fn directory_is_downloaded_as_an_archive() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id).join("ä \"dir\"")).expect("directories");
    fs::write(fixture.workspace(&id).join("ä \"dir\"/file"), "text").expect("a file");
    symlink("/etc/passwd", fixture.workspace(&id).join("link")).expect("a link");
    let uri = format!("/api/sessions/{id}/archive");
    let response = fixture.respond(authenticated("GET", &format!("{uri}?path=%C3%A4%20%22dir%22"), None)).await;
    let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    assert_eq!(header("content-type").as_deref(), Some("application/gzip"));
    let disposition = response.headers().get("content-disposition").expect("a header").as_bytes().to_vec();
    assert!(
        String::from_utf8_lossy(&disposition).contains("filename*=UTF-8''%C3%A4%20%22dir%22.tar.gz"),
        "{disposition:?}"
    );
    let Ok(body) = actix_web::body::to_bytes(response.into_body().boxed()).await else {
        panic!("the archive is complete")
    };
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut text).expect("gzip");
    assert!(text.windows(4).any(|part| part == b"text"));
    let zip = fixture.call("GET", &format!("{uri}?format=zip"), None).await;
    assert_eq!((zip.status.as_u16(), zip.header("content-type")), (200, "application/zip"));
    assert_eq!(zip.header("content-disposition"), "attachment; filename=\"workspace.zip\"");
    assert_eq!(fixture.call("GET", &format!("{uri}?path=none"), None).await.error().0, 404);
    assert_eq!(fixture.call("GET", &format!("{uri}?path=../x"), None).await.error().0, 400);
    assert_eq!(fixture.call("HEAD", &uri, None).await.status, 200);
}

#[actix_web::test]
async fn shared_workspace_is_served_and_marked() {
    let shared = tempfile::tempdir().expect("a temporary directory");
    let files = FilesConfig { max_files: 3, ..FilesConfig::default() };
    let setup = FixtureSetup { files, shared_workspace: Some(shared.path().to_owned()) };
    let fixture = fixture_with_files(setup).await;
    let one = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    let two = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    assert_eq!(fixture.call("PUT", &format!("/api/sessions/{one}/files/a"), Some("text")).await.status, 201);
    let list = fixture.call("GET", &format!("/api/sessions/{two}/files"), None).await.json();
    assert_eq!((names(&list), &list["shared"]), (vec!["a"], &json!(true)));
    assert_eq!(fs::read_to_string(shared.path().join("a")).expect("a file"), "text");
}

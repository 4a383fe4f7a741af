//! Downloads from a workspace, and changes of it.

use std::{
    fs::{self, File},
    future::poll_fn,
    os::unix::fs::symlink,
    pin::Pin,
};

use actix_web::body::{BodySize, MessageBody, to_bytes};

use super::{
    UNKNOWN_SESSION,
    fixture::{ApiReply, authenticated, fixture},
    id_of,
};

const TEXT: &str = "text/plain; charset=utf-8";
const BYTES: &str = "application/octet-stream";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

#[actix_web::test]
async fn download_returns_file_in_every_state() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id).join("a")).expect("the directories are created");
    fs::write(fixture.workspace(&id).join("a/b c.html"), "<script>1</script>").expect("the file is written");
    let uri = format!("/api/sessions/{id}/files/a/b%20c.html");
    for action in ["", "stop", "end"] {
        match action {
            "" => {}
            "end" => drop(fixture.call("DELETE", &format!("/api/sessions/{id}"), None).await),
            action => drop(fixture.call("POST", &format!("/api/sessions/{id}/{action}"), Some("{}")).await),
        }
        let reply = fixture.call("GET", &uri, None).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (200, "<script>1</script>"), "after `{action}`");
        assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
        let policies: Vec<_> = reply.headers.get_all("content-security-policy").collect();
        assert_eq!((policies.len(), policies[1].to_str().ok()), (2, Some("default-src 'none'; sandbox")));
        assert_eq!(reply.header("content-disposition"), "attachment; filename=\"b c.html\"");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("cache-control"), "private, no-cache");
    }
    let part = fixture.send(authenticated("GET", &uri, None).insert_header(("range", "bytes=1-6"))).await;
    assert_eq!((part.status.as_u16(), part.text.as_str()), (206, "script"));
    let etag = part.header("etag");
    let unchanged = fixture.send(authenticated("GET", &uri, None).insert_header(("if-none-match", etag))).await;
    assert_eq!(unchanged.status, 304);
    for (tag, status) in [(etag, 206), ("\"other\"", 200)] {
        let request =
            authenticated("GET", &uri, None).insert_header(("range", "bytes=1-6")).insert_header(("if-range", tag));
        assert_eq!(fixture.send(request).await.status, status, "{tag}");
    }
    let beyond = fixture.send(authenticated("GET", &uri, None).insert_header(("range", "bytes=99-"))).await;
    assert_eq!((beyond.error(), beyond.header("content-range")), ((416, "invalid_args".to_owned()), ""));
}

#[actix_web::test]
async fn only_pictures_by_content_are_shown_in_place() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    let check = async |name: &str, content: &[u8], expected: &str| {
        fs::write(fixture.workspace(&id).join(name), content).expect("the file is written");
        let reply = fixture.call("GET", &format!("/api/sessions/{id}/files/{name}"), None).await;
        assert_eq!(reply.header("content-type"), expected, "{name}");
        let disposition = if expected.starts_with("image/") { "inline" } else { "attachment" };
        assert!(reply.header("content-disposition").starts_with(disposition), "{name}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    };
    check("a.txt", PNG, "image/png").await;
    check("b", b"\xff\xd8\xff\xe0", "image/jpeg").await;
    check("c.png", b"GIF89a..", "image/gif").await;
    check("d", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp").await;
    check("e.png", b"<script>alert(1)</script>", TEXT).await;
    check("f.svg", b"<svg xmlns='http://www.w3.org/2000/svg'><script/></svg>", TEXT).await;
    check("g.webp", b"RIFF\0\0\0\0WAVE", BYTES).await;
    check("h.png", &PNG[..7], BYTES).await;
    check("i", b"", TEXT).await;
    let picture = fixture.call("GET", &format!("/api/sessions/{id}/files/a.txt?download"), None).await;
    assert!(picture.header("content-disposition").starts_with("attachment"));
}

#[actix_web::test]
async fn download_stays_inside_the_workspace() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    let get =
        async |path: &str| -> ApiReply { fixture.call("GET", &format!("/api/sessions/{id}/files/{path}"), None).await };
    let workspace = fixture.workspace(&id);
    fs::create_dir(workspace.join("dir")).expect("the directory is created");
    fs::write(workspace.join("file"), "text").expect("the file is written");
    symlink("/etc/passwd", workspace.join("link")).expect("the link is created");
    symlink("/etc", workspace.join("way")).expect("the link is created");
    symlink("/dev/zero", workspace.join("zero")).expect("the link is created");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, workspace.join("fifo"), rustix::fs::FileType::Fifo, mode, 0)
        .expect("the FIFO is created");
    for path in ["../x", "%2e%2e/%2e%2e/token", "a/..%2f..%2fx", "/etc/passwd", "a//b", "", "a%00b"] {
        assert_eq!(get(path).await.error(), (400, "invalid_args".to_owned()), "{path}");
    }
    for path in ["dir", "link", "way/passwd", "file/x", "zero", "fifo"] {
        assert_eq!(get(path).await.error(), (409, "conflict".to_owned()), "{path}");
    }
    for path in ["none", "none/file"] {
        assert_eq!(get(path).await.error(), (404, "not_found".to_owned()), "{path}");
    }
    let elsewhere = fixture.call("GET", &format!("{UNKNOWN_SESSION}/files/file"), None).await;
    assert_eq!(elsewhere.error(), (404, "not_found".to_owned()));
}

#[actix_web::test]
async fn huge_file_is_read_in_small_parts() {
    const HUGE: u64 = 1 << 40;
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    let file = File::create(fixture.workspace(&id).join("sparse")).expect("the file is created");
    file.set_len(HUGE).expect("the file is sparse");
    let request = authenticated("GET", &format!("/api/sessions/{id}/files/sparse"), None);
    let mut body = fixture.respond(request).await.into_body();
    assert_eq!(body.size(), BodySize::Sized(HUGE));
    for _ in 0..4 {
        let part = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await;
        let part = part.expect("the file continues").expect("the file is readable");
        assert!(part.len() <= 1 << 20, "a part has {} bytes", part.len());
    }
}

#[actix_web::test]
async fn file_that_grows_is_sent_as_it_was() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    fs::write(fixture.workspace(&id).join("log"), "before").expect("the file is written");
    let body = fixture.respond(authenticated("GET", &format!("/api/sessions/{id}/files/log"), None)).await.into_body();
    fs::write(fixture.workspace(&id).join("log"), "before and after").expect("the file is written");
    assert_eq!(to_bytes(body).await.expect("the answer is complete"), "before");
}

#[actix_web::test]
async fn file_that_shrinks_ends_its_download_with_an_error() {
    let fixture = fixture().await;
    let id = id_of(&fixture.call("POST", "/api/sessions", Some("{}")).await);
    fs::create_dir_all(fixture.workspace(&id)).expect("the workspace is created");
    let file = File::create(fixture.workspace(&id).join("log")).expect("the file is created");
    file.set_len(1000).expect("the file grows");
    let request = authenticated("GET", &format!("/api/sessions/{id}/files/log"), None);
    let body = fixture.respond(request).await.into_body();
    file.set_len(10).expect("the file shrinks");
    to_bytes(body).await.expect_err("a short body is no complete answer");
}

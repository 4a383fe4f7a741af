//! Files of a workspace over REST, while a sandbox, the server or the disk fails.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use reqwest::{Method, Response};
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::mpsc;

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host, on_each_driver,
    rest::{RestReply, send},
    server::{TestServer, TestServerHome, TestServerOptions},
    within,
};

const BOUNDARY: &str = "boundary";

on_each_driver!(sandbox_kill_disturbs_no_transfer);

/// Server with a session at rest, whose workspace has the file `noise`.
struct TransferFixture {
    server: TestServer,
    session: String,
    workspace: PathBuf,
    noise: Vec<u8>,
}

/// Upload whose body is sent piece by piece.
struct PiecewiseUpload {
    pieces: mpsc::UnboundedSender<Result<Bytes, std::io::Error>>,
    answer: tokio::task::JoinHandle<Option<RestReply>>,
}

impl TransferFixture {
    async fn start(server: TestServer) -> TransferFixture {
        let session = server.rest.create(json!({})).await;
        server.rest.until_state(&session, "idle").await;
        let workspace = server.data().join("workspaces").join(&session);
        // Noise does not compress.
        let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(8 << 20).collect();
        fs::write(workspace.join("noise"), &noise).expect("the test may write into the workspace");
        TransferFixture { server, session, workspace, noise }
    }

    fn address(&self, rest: &str) -> String {
        format!("/api/sessions/{}/{rest}", self.session)
    }

    /// Begins a download and returns it after its first bytes.
    async fn begin(&self, rest: &str) -> (Response, Vec<u8>) {
        let response = self.server.rest.request(Method::GET, &self.address(rest)).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        let mut response = response;
        let first = within("the first bytes", response.chunk()).await.expect("the file is readable");
        (response, first.expect("the file is not empty").to_vec())
    }

    /// Begins an upload and returns it when the server has the first piece.
    async fn begin_upload(&self, method: Method, rest: &str, first: Vec<u8>) -> PiecewiseUpload {
        let (pieces, mut receiver) = mpsc::unbounded_channel();
        let (taken, is_taken) = tokio::sync::oneshot::channel();
        let mut taken = Some(taken);
        let body = futures::stream::poll_fn(move |cx| {
            let polled = receiver.poll_recv(cx);
            // The second poll comes when the connection has the first piece.
            if polled.is_pending()
                && let Some(taken) = taken.take()
            {
                let _nobody_waits = taken.send(());
            }
            polled
        });
        pieces.send(Ok(first.into())).expect("the upload has begun");
        let request = self.server.rest.request(method, &self.address(rest));
        let request = request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
        let request = request.body(reqwest::Body::wrap_stream(body));
        let answer = tokio::spawn(async move {
            let response = request.send().await.ok()?;
            let (status, headers) = (response.status(), response.headers().clone());
            Some(RestReply { status, headers, text: response.text().await.ok()? })
        });
        within("the server to take the first piece", is_taken).await.expect("the body is polled");
        PiecewiseUpload { pieces, answer }
    }

    fn names(&self) -> BTreeSet<String> {
        names_in(&self.workspace)
    }
}

impl PiecewiseUpload {
    /// Sends the rest, and returns the answer.
    async fn finish(self, rest: Vec<u8>) -> RestReply {
        self.pieces.send(Ok(rest.into())).expect("the upload goes on");
        drop(self.pieces);
        within("the answer to the upload", self.answer).await.expect("no panic").expect("an answer")
    }
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

async fn read_all(response: &mut Response, bytes: &mut Vec<u8>) -> reqwest::Result<()> {
    while let Some(chunk) = within("more bytes", response.chunk()).await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(())
}

fn form_part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"{name}\"\r\n\r\n");
    [head.as_bytes(), content, b"\r\n"].concat()
}

fn form_end() -> Vec<u8> {
    format!("--{BOUNDARY}--\r\n").into_bytes()
}

async fn sandbox_kill_disturbs_no_transfer(driver: TestDriver) {
    let fixture = TransferFixture::start(TestServer::start(TestServerOptions::new(driver)).await).await;
    let noise = &fixture.noise;
    let (mut download, mut downloaded) = fixture.begin("files/noise").await;
    let (mut archive, mut archived) = fixture.begin("archive").await;
    let upload = fixture.begin_upload(Method::PUT, "files/up", noise[..4 << 20].to_vec()).await;
    let form = fixture.begin_upload(Method::POST, "files", form_part("one", &noise[..1 << 20])).await;
    let agents = host::agents(fixture.server.home());
    assert!(!agents.is_empty());
    agents.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
    eventually("the agents to be gone", || async {
        let left = host::agents(fixture.server.home());
        !left.iter().any(|agent| agents.iter().any(|killed| killed.pid == agent.pid))
    })
    .await;
    read_all(&mut download, &mut downloaded).await.expect("the download is complete");
    assert!(downloaded == *noise);
    read_all(&mut archive, &mut archived).await.expect("the archive is complete");
    let mut unpacked = Vec::new();
    GzDecoder::new(&archived[..]).read_to_end(&mut unpacked).expect("the archive is complete");
    assert!(unpacked.windows(1024).step_by(512).any(|part| part == &noise[..1024]));
    upload.finish(noise[4 << 20..].to_vec()).await.expect(201);
    form.finish([form_part("two", b"2"), form_end()].concat()).await.expect(201);
    assert!(fs::read(fixture.workspace.join("up")).expect("the file is there") == *noise);
    assert_eq!(fs::read(fixture.workspace.join("two")).expect("the file is there"), b"2");
    fixture.server.leaves_nothing().await;
}

#[tokio::test]
async fn server_kill_leaves_no_half_file() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let fixture = TransferFixture::start(server).await;
    let (removed, noise) = (fixture.workspace.join("removed"), &fixture.noise);
    fs::create_dir(&removed).expect("a directory");
    for n in 0..20_000 {
        fs::File::create(removed.join(n.to_string())).expect("a file");
    }
    let before = fixture.names();
    let (mut download, mut downloaded) = fixture.begin("files/noise").await;
    let (mut archive, mut archived) = fixture.begin("archive").await;
    let uploads = [
        fixture.begin_upload(Method::PUT, "files/new/up", noise[..4 << 20].to_vec()).await,
        fixture.begin_upload(Method::PUT, "files/noise", noise[..1 << 20].to_vec()).await,
        fixture.begin_upload(Method::POST, "files?overwrite=true", form_part("noise", &noise[..1 << 20])).await,
    ];
    let removal = fixture.server.rest.request(Method::DELETE, &fixture.address("files/removed?recursive=true"));
    let removal = tokio::spawn(removal.send());
    eventually("the removal to begin", || async { !removed.exists() }).await;
    let TransferFixture { server, session, workspace, noise } = fixture;
    let stopped = server.kill9().await;
    assert!(read_all(&mut download, &mut downloaded).await.is_err(), "half a download is no complete answer");
    assert!(read_all(&mut archive, &mut archived).await.is_err(), "half an archive is no complete answer");
    for upload in uploads {
        assert!(upload.answer.await.expect("no panic").is_none(), "an upload without answer");
    }
    removal.await.expect("no panic").ok();
    let server = stopped.restart().await;
    eventually("the rest of the removal to be gone", || async { names_in(&server.data().join("uploads")).is_empty() })
        .await;
    let mut expected = before;
    expected.remove("removed");
    assert_eq!(names_in(&workspace), expected);
    assert!(fs::read(workspace.join("noise")).expect("the file is there") == noise);
    let put = server.rest.request(Method::PUT, &format!("/api/sessions/{session}/files/new/up")).body("whole");
    send(put).await.expect(201);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn full_disk_rejects_uploads_and_keeps_files() {
    let Some(home) = TestServerHome::on_a_disk() else {
        eprintln!("skipped: mounting a file system needs root");
        return;
    };
    let server = TestServer::start_in(home, TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let workspace = server.data().join("workspaces").join(&session);
    fs::write(workspace.join("old"), "old").expect("the test may write into the workspace");
    let disk = server.disk().expect("the data are on a disk of their own");
    disk.fill();
    let before = names_in(&workspace);
    let content = vec![b'x'; 4 << 20];
    for path in ["old", "new/dir/file"] {
        let request = server.rest.request(Method::PUT, &format!("/api/sessions/{session}/files/{path}"));
        let reason = send(request.body(content.clone())).await.error(507, "disk_full");
        assert!(reason.contains(path), "{reason}");
    }
    let form = [form_part("a", b"small"), form_part("dir/b", &content), form_end()].concat();
    let request = server.rest.request(Method::POST, &format!("/api/sessions/{session}/files"));
    let request =
        request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}")).body(form.clone());
    send(request).await.error(507, "disk_full");
    assert_eq!(names_in(&workspace), before, "nothing is left");
    assert_eq!(names_in(&server.data().join("uploads")), BTreeSet::new());
    assert_eq!(fs::read(workspace.join("old")).expect("the file is there"), b"old");
    assert_eq!(server.rest.get(&format!("/api/sessions/{session}/files/old")).await.text, "old");

    disk.make_room();
    let request = server.rest.request(Method::POST, &format!("/api/sessions/{session}/files"));
    let request = request.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}")).body(form);
    send(request).await.expect(201);
    server.leaves_nothing().await;
}

/// Reads an answer to its end. Returns its size, and the growth of the server's memory in KiB.
async fn size_and_growth(server: &TestServer, address: &str) -> (u64, u64) {
    let before = host::forget_peak(server.pid());
    let mut response = server.rest.request(Method::GET, address).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let mut size = 0;
    while let Some(chunk) = within("more bytes", response.chunk()).await.expect("the answer is complete") {
        size += chunk.len() as u64;
    }
    (size, host::peak_kib(server.pid()).saturating_sub(before))
}

#[tokio::test]
async fn one_line_of_100_mb_needs_little_memory() {
    const LINE: usize = 100 << 20;
    const MAX_GROWTH: u64 = 16 << 10;
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let workspace = server.data().join("workspaces").join(&session);
    let mut line = fs::File::create(workspace.join("line")).expect("a file");
    let piece = vec![b'x'; 1 << 20];
    (0..LINE / piece.len()).for_each(|_| line.write_all(&piece).expect("the disk has room"));
    let file = format!("/api/sessions/{session}/files/line");
    let (size, growth) = size_and_growth(&server, &file).await;
    assert_eq!(size, LINE as u64);
    assert!(growth < MAX_GROWTH, "memory grew by {growth} KiB");
    let list = server.rest.get(&format!("/api/sessions/{session}/files")).await.expect(200);
    assert_eq!(list["items"][0]["bytes"], LINE);
    let tail = server.rest.request(Method::GET, &file).header("range", "bytes=-3");
    let tail = send(tail).await;
    assert_eq!((tail.status.as_u16(), tail.text.as_str()), (206, "xxx"));
    server.leaves_nothing().await;
}

#[tokio::test]
async fn sparse_file_of_2_gb_needs_little_memory() {
    const SPARSE: u64 = 2 << 30;
    const MAX_GROWTH: u64 = 16 << 10;
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let workspace = server.data().join("workspaces").join(&session);
    fs::File::create(workspace.join("sparse")).expect("a file").set_len(SPARSE).expect("the file is sparse");
    let (size, growth) = size_and_growth(&server, &format!("/api/sessions/{session}/files/sparse")).await;
    assert_eq!(size, SPARSE);
    assert!(growth < MAX_GROWTH, "memory grew by {growth} KiB");
    for format in ["tar.gz", "zip"] {
        let (size, growth) =
            size_and_growth(&server, &format!("/api/sessions/{session}/archive?format={format}")).await;
        assert!(size < SPARSE / 100, "{format}: {size}");
        assert!(growth < MAX_GROWTH, "{format}: memory grew by {growth} KiB");
    }
    server.leaves_nothing().await;
}

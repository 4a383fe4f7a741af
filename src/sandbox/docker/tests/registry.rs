//! Registry with one image of one 8 MB layer, for one pull.

use std::{
    collections::HashMap,
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";

/// Registry on a port of this machine, until it is dropped.
pub(super) struct FakeRegistry {
    port: u16,
    server: JoinHandle<()>,
}

impl FakeRegistry {
    pub(super) fn image(&self) -> String {
        format!("127.0.0.1:{}/greenroom-test-pulled:1", self.port)
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Content type and content of each page, by the last part of its path.
type RegistryPages = HashMap<String, (&'static str, Vec<u8>)>;

pub(super) async fn serve() -> FakeRegistry {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("socket binds");
    let port = listener.local_addr().expect("listener has a port").port();
    let pages = Arc::new(pages(port));
    let server = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(client, pages.clone()));
        }
    });
    FakeRegistry { port, server }
}

fn pages(port: u16) -> RegistryPages {
    // The engine recognises layers by their content, so each run needs a new one.
    let layer = tar(&format!("{port} {:?}\n", std::time::SystemTime::now()).into_bytes());
    let rootfs = json!({"type": "layers", "diff_ids": [digest(&layer)]});
    let config =
        json!({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).to_string().into_bytes();
    let part = |kind, content: &[u8]| json!({"mediaType": kind, "size": content.len(), "digest": digest(content)});
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": part(CONFIG, &config), "layers": [part(LAYER, &layer)],
    });
    let manifest = manifest.to_string().into_bytes();
    HashMap::from([
        (digest(&manifest), (MANIFEST, manifest.clone())),
        ("1".to_owned(), (MANIFEST, manifest)),
        (digest(&config), ("application/octet-stream", config)),
        (digest(&layer), ("application/octet-stream", layer)),
    ])
}

/// Returns an archive of one 8 MB file that begins with `head`.
fn tar(head: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("temporary directory is created");
    let mut content = head.to_vec();
    content.resize(8_000_000, b'.');
    std::fs::write(dir.path().join("file"), content).expect("file is written");
    let tar = Command::new("tar").arg("-C").arg(dir.path()).args(["-c", "file"]).output().expect("`tar` is installed");
    tar.stdout
}

fn digest(content: &[u8]) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`sha256sum` is installed");
    sum.stdin.take().expect("stdin is a pipe").write_all(content).expect("child reads its stdin");
    let output = sum.wait_with_output().expect("process ends");
    format!("sha256:{}", String::from_utf8_lossy(&output.stdout[..64]))
}

async fn answer(client: TcpStream, pages: Arc<RegistryPages>) -> std::io::Result<()> {
    let mut client = BufReader::new(client);
    let mut request_line = String::new();
    // The engine tries TLS first. That attempt ends with the connection.
    client.read_line(&mut request_line).await?;
    let mut header = String::from("-");
    while !header.trim().is_empty() {
        header.clear();
        client.read_line(&mut header).await?;
    }
    let path = request_line.split_whitespace().nth(1).unwrap_or_default();
    let page = pages.get(path.rsplit('/').next().unwrap_or_default());
    let (status, kind, content) = match page {
        Some((kind, content)) => ("200 OK", *kind, content.as_slice()),
        None if path == "/v2/" => ("200 OK", "application/json", "{}".as_bytes()),
        None => ("404 Not Found", "application/json", "{}".as_bytes()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {}\r\n\
         Connection: close\r\n\r\n",
        content.len(),
        digest(content),
    );
    client.write_all(head.as_bytes()).await?;
    if !request_line.starts_with("HEAD") {
        client.write_all(content).await?;
    }
    client.shutdown().await
}

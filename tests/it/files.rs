//! Files that the tools write: whatever a shell in the sandbox may write, and nothing of a file is
//! lost but its old content.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(file_that_a_rename_cannot_replace_is_written);

async fn file_that_a_rename_cannot_replace_is_written(driver: TestDriver) {
    let host = tempfile::tempdir().expect("a temporary directory");
    let mounted = host.path().join("mounted");
    fs::write(&mounted, "old").expect("the file is writable");
    fs::set_permissions(&mounted, fs::Permissions::from_mode(0o666)).expect("the file is the test's");
    let volumes = format!("{}:/data/mounted:rw", mounted.display());
    let server = TestServer::start(TestServerOptions::new(driver).env("SANDBOX_VOLUMES", &volumes)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let prepare = "echo old > one; ln one two; mkdir closed; echo old > closed/file; chmod 555 closed";
    socket.send_request("run", json!({ "command": prepare })).await;
    assert_eq!(socket.observation("run").await["extras"]["exit_code"], 0);
    for path in ["one", "closed/file", "/data/mounted"] {
        socket.send_request("write", json!({ "path": path, "content": "new\n" })).await;
        let written = socket
            .until("the end of the write", |frame| frame["observation"] == "write" || frame["observation"] == "error");
        assert_eq!(written.await["observation"], "write", "{path}");
    }
    socket.send_request("run", json!({ "command": "cat one two closed/file /data/mounted; ls -A closed" })).await;
    let read = socket.observation("run").await;
    assert_eq!(read["content"], format!("{}file\n", "new\n".repeat(4)), "{read}");
    assert_eq!(fs::read_to_string(&mounted).expect("the file exists"), "new\n");
    server.leaves_nothing().await;
}

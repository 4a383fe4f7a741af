//! Packages: the archive for other machines, the container image, and the unit for systemd.

use std::{path::Path, process::Command};

use serde_json::json;

use greenroom_testkit::{WORKSPACE, greenroom_binary};

#[path = "../../xtask/src/archive.rs"]
mod archive;

/// Returns the output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn is_here(program: &str) -> bool {
    let here = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    here.is_ok_and(|output| output.status.success())
}

#[test]
fn archive_has_program_documents_and_unit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let packed = dir.path().join("greenroom.tar.gz");
    archive::pack(&greenroom_binary(), Path::new(WORKSPACE), &packed).expect("the archive is made");
    output(Command::new("tar").arg("--extract").arg("--file").arg(&packed).arg("--directory").arg(dir.path()));
    let unpacked = dir.path().join(archive::ARCHIVE_DIRECTORY);
    for name in ["LICENSE", "README.md", "default.toml", "greenroom.service"] {
        assert!(unpacked.join(name).is_file(), "no `{name}`");
    }
    let version = output(Command::new(unpacked.join("greenroom")).arg("--version"));
    assert_eq!(version.trim(), format!("greenroom {}", env!("CARGO_PKG_VERSION")));
    let left = std::fs::read_dir(dir.path()).expect("the directory is readable").count();
    assert_eq!(left, 2, "the archive and what it contains");
}

#[test]
fn newest_needed_glibc_is_found() {
    let line = |version: &str, symbol: &str| format!("0000      DF *UND*\t0000 (GLIBC_{version}) {symbol}\n");
    let symbols = [line("2.2.5", "read"), line("2.34", "dlsym"), line("2.4", "x")].concat();
    assert_eq!(archive::newest_glibc(&symbols), Some(((2, 34), "dlsym")));
    assert_eq!(archive::newest_glibc("no symbols"), None);
    let shell = archive::check_glibc(Path::new("/bin/sh"));
    let symbols = output(Command::new("objdump").args(["--dynamic-syms", "/bin/sh"]));
    let is_newer = archive::newest_glibc(&symbols).is_some_and(|(version, _)| version > (2, 31));
    assert_eq!(shell.is_err(), is_newer, "{shell:?}");
    archive::check_glibc(Path::new("/nowhere")).expect_err("the file is missing");
}

#[test]
fn unit_is_valid_for_systemd() {
    if !is_here("systemd-analyze") {
        return eprintln!("left out: `systemd-analyze` is not installed (Debian: `apt install systemd`)");
    }
    let unit = std::fs::read_to_string(format!("{WORKSPACE}/packaging/greenroom.service")).expect("the unit exists");
    assert!(unit.contains("\nKillMode=process\n"), "sandboxes survive a restart of the service");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("greenroom.service");
    // The check requires an existing program.
    std::fs::write(&path, unit.replace("/usr/local/bin/greenroom", &greenroom_binary().display().to_string()))
        .expect("the unit is written");
    let checked = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().expect("it starts");
    let said = String::from_utf8_lossy(&checked.stderr);
    let about_unit: Vec<&str> = said.lines().filter(|line| line.contains("greenroom.service")).collect();
    assert!(about_unit.is_empty(), "{about_unit:#?}");
}

mod docker {
    use greenroom_testkit::{
        driver::{IMAGE, TestDriver},
        eventually,
        rest::RestClient,
        socket::TestSocket,
    };

    use super::*;

    /// CA certificates of this host. The image of the tests has none, and no network to fetch any.
    const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

    /// Container of a test. Removed when dropped, with its images.
    struct ServerContainer {
        name: String,
        base: String,
        image: String,
    }

    impl ServerContainer {
        fn is_running(&self) -> bool {
            output(Command::new("docker").args(["inspect", "--format", "{{.State.Running}}", &self.name])).trim()
                == "true"
        }

        fn logs(&self) -> String {
            let logs = Command::new("docker").args(["logs", &self.name]).output().expect("`docker` starts");
            [logs.stdout, logs.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
        }
    }

    impl Drop for ServerContainer {
        fn drop(&mut self) {
            let remove = |args: &[&str]| drop(Command::new("docker").args(args).output());
            if std::thread::panicking() {
                eprintln!("the container's log:\n{}", self.logs());
            }
            remove(&["rm", "--force", "--volumes", &self.name]);
            remove(&["image", "rm", "--force", &self.image, &self.base]);
        }
    }

    /// Runs the image like `packaging/compose.yaml`: with the engine's socket, and the data at one
    /// path.
    #[tokio::test]
    async fn image_runs_sandboxes_in_the_engine_of_the_host() {
        if !TestDriver::Docker.is_here().await {
            return;
        }
        let dir = tempfile::Builder::new().prefix("greenroom-image-").tempdir().expect("a temporary directory");
        let context = dir.path().join("packaging");
        std::fs::create_dir(&context).expect("the directory is created");
        archive::pack(&greenroom_binary(), Path::new(WORKSPACE), &context.join("greenroom.tar.gz"))
            .expect("an archive");
        let name = dir.path().file_name().and_then(|name| name.to_str()).expect("the name is ASCII").to_lowercase();
        let (base, image) = (format!("{name}-base:latest"), format!("{name}:latest"));
        let container = ServerContainer { name, base, image };
        let build = |tag: &str, file: &Path, arguments: &[&str]| {
            // The builder that the engine has without plugins.
            let mut docker = Command::new("docker");
            docker.env("DOCKER_BUILDKIT", "0").args(["build", "--network", "none", "--tag", tag, "--file"]);
            output(docker.arg(file).args(arguments).arg(&context));
        };
        let recipe = context.join("base");
        std::fs::copy(CERTIFICATES, context.join("ca.crt")).expect("this host has CA certificates");
        std::fs::write(&recipe, format!("FROM {IMAGE}\nCOPY ca.crt {CERTIFICATES}\n")).expect("the file is written");
        build(&container.base, &recipe, &[]);
        let base = format!("BASE={}", container.base);
        build(&container.image, &Path::new(WORKSPACE).join("packaging/Dockerfile"), &["--build-arg", &base]);
        let data = dir.path().join("data").display().to_string();
        output(
            Command::new("docker")
                .args(["run", "--detach", "--name", &container.name, "--network", "host"])
                .args(["--volume", "/var/run/docker.sock:/var/run/docker.sock", "--volume", &format!("{data}:{data}")])
                .args(["--env", "GREENROOM_SERVER__BIND=127.0.0.1:0"])
                .args(["--env", &format!("GREENROOM_SANDBOX__IMAGE={IMAGE}")])
                .args([&container.image, "serve", "--data", &data, "--sandbox", "docker"]),
        );
        let is_decided = || async { container.logs().contains("listening on ") || !container.is_running() };
        eventually("the server in the container", is_decided).await;
        let logs = container.logs();
        let line = logs.lines().find(|line| line.starts_with("listening on ")).expect("the line is there");
        let rest = RestClient::from_line(line);
        let mut socket = TestSocket::open(&rest).await;
        socket.send_request("initialize", json!({})).await;
        let session = socket.session().await;
        socket.send_request("run", json!({ "command": "echo from inside > here.txt; cat here.txt" })).await;
        assert_eq!(socket.observation("run").await["content"], "from inside\n");
        let file = format!("{data}/workspaces/{session}/here.txt");
        assert_eq!(std::fs::read_to_string(&file).expect("the host has the workspace"), "from inside\n");
        rest.delete(&format!("/api/sessions/{session}?purge=true")).await;
        let is_gone = || async { rest.get(&format!("/api/sessions/{session}")).await.status == 404 };
        eventually("the session to be purged", is_gone).await;
        output(Command::new("docker").args(["stop", "--time", "20", &container.name]));
    }
}

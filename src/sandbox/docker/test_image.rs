//! Test images, built from programs of this machine. Only [`debian`] downloads anything.
//!
//! Uses the standard library only, so a task runner can include this file by its path.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// Returns an image with `sh` and the usual commands, in 2 MB.
pub(crate) fn busybox() -> &'static str {
    make("greenroom-test-busybox:latest", &[], install_busybox)
}

/// Returns the smallest Debian image, with `bash` and the GNU tools. The first build takes one
/// to two minutes.
pub(crate) fn debian() -> &'static str {
    make("greenroom-test-debian:latest", &[], |root| {
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "bookworm"]).arg(root).stdout(Stdio::null());
        assert!(debootstrap.status().is_ok_and(|status| status.success()), "`debootstrap` fails or is not installed");
    })
}

/// Returns an image that sets all it can: entry point, command, user, directory, volume, health
/// check, environment, and another session's labels.
pub(crate) fn stubborn() -> &'static str {
    let changes = [
        "ENTRYPOINT [\"/bin/false\"]",
        "CMD [\"false\"]",
        "USER root",
        "WORKDIR /root",
        "VOLUME /var/lib/stubborn",
        "HEALTHCHECK CMD false",
        "LABEL greenroom.session=forged greenroom.node=forged greenroom.wall=forged",
        "ENV HOME=/root GREENROOM_SESSION=forged",
    ];
    make("greenroom-test-stubborn:latest", &changes, install_busybox)
}

/// Returns an image without programs, for the programs of this machine at `/usr`.
pub(crate) fn bare() -> &'static str {
    make("greenroom-test-bare:latest", &[], |root| {
        for dir in ["etc", "root", "sbin", "usr", "var", "proc", "sys", "dev", "tmp"] {
            fs::create_dir_all(root.join(dir)).expect("directory is created");
        }
        fs::set_permissions(root.join("root"), fs::Permissions::from_mode(0o700)).expect("mode is set");
        for link in ["bin", "lib", "lib64"] {
            symlink(format!("usr/{link}"), root.join(link)).expect("link is created");
        }
    })
}

/// Returns an image with a single unused file.
pub(crate) fn empty() -> &'static str {
    make("greenroom-test-empty:latest", &[], |root| fs::write(root.join("nothing"), "").expect("file is written"))
}

/// Returns the path of a static program of this machine.
pub(crate) fn busybox_binary() -> &'static str {
    let path = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    path.expect("busybox is installed; install the package `busybox-static`")
}

/// Builds the image unless it exists. `fill_root` fills its root; `changes` are lines of a
/// Dockerfile.
fn make(image: &'static str, changes: &[&str], fill_root: impl FnOnce(&Path)) -> &'static str {
    let mut inspect = Command::new("docker");
    inspect.args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null());
    if inspect.status().expect("the `docker` command is installed").success() {
        return image;
    }
    let name = image.split(':').next().unwrap_or(image);
    let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&root).expect("directory is created");
    fill_root(&root);
    import(image, changes, &root);
    fs::remove_dir_all(&root).expect("directory is removed");
    image
}

fn import(image: &str, changes: &[&str], root: &Path) {
    let mut tar = Command::new("tar");
    let mut tar = tar.args(["--numeric-owner", "-C"]).arg(root).args(["-c", "."]).stdout(Stdio::piped());
    // Files of the image belong to root, whoever builds it.
    if root.metadata().is_ok_and(|root| root.uid() != 0) {
        tar = tar.args(["--owner=0", "--group=0"]);
    }
    let mut tar = tar.spawn().expect("`tar` is installed");
    let content = tar.stdout.take().expect("stdout is a pipe");
    let mut docker = Command::new("docker");
    docker.arg("import").args(changes.iter().flat_map(|change| ["--change", change])).args(["-", image]);
    let imported = docker.stdin(content).stdout(Stdio::null()).status();
    // The command holds the reading end of the pipe. Until it is dropped, `tar` would block.
    drop(docker);
    assert!(tar.wait().is_ok_and(|status| status.success()), "`tar` fails for `{image}`");
    assert!(imported.is_ok_and(|status| status.success()), "`docker import` fails for `{image}`");
}

fn install_busybox(root: &Path) {
    for dir in ["bin", "etc", "root", "usr", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(dir)).expect("directory is created");
    }
    fs::copy(busybox_binary(), root.join("bin/busybox")).expect("busybox is copied");
    let listed = Command::new(busybox_binary()).arg("--list").output().expect("busybox runs");
    for applet in String::from_utf8_lossy(&listed.stdout).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).expect("link is created");
    }
    for (path, mode) in [("bin/busybox", 0o755), ("tmp", 0o1777)] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("mode is set");
    }
    let users = "root:x:0:0::/root:/bin/sh\nagent:x:10001:10001::/home/agent:/bin/sh\n";
    fs::write(root.join("etc/passwd"), users).expect("file is written");
    fs::write(root.join("etc/group"), "root:x:0:\nagent:x:10001:\n").expect("file is written");
}

//! Makes the images that tests run in, on the spot, from what this machine has; only [`debian`] fetches anything.
//!
//! Of the standard library alone, so that a task runner can include this file by its path.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// `sh` and the usual commands, in 2 MB.
pub(crate) fn busybox() -> &'static str {
    make("greenroom-test-busybox:latest", &[], install_busybox)
}

/// The smallest Debian, with `bash` and the GNU tools. Takes a minute or two the first time.
pub(crate) fn debian() -> &'static str {
    make("greenroom-test-debian:latest", &[], |root| {
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "bookworm"]).arg(root).stdout(Stdio::null());
        assert!(debootstrap.status().is_ok_and(|status| status.success()), "debootstrap is installed and works");
    })
}

/// Wants to run something else, as root, elsewhere, with a volume, and claims to be another session's.
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

/// Nothing but a file that nobody needs.
pub(crate) fn empty() -> &'static str {
    make("greenroom-test-empty:latest", &[], |root| fs::write(root.join("nothing"), "").expect("a file"))
}

/// A static program of this machine.
pub(crate) fn busybox_binary() -> &'static str {
    let path = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    path.expect("busybox is here; install the package `busybox-static`")
}

/// Makes the image unless it is there: `furnish` fills its root, `changes` are lines of a Dockerfile.
fn make(image: &'static str, changes: &[&str], furnish: impl FnOnce(&Path)) -> &'static str {
    let mut inspect = Command::new("docker");
    inspect.args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null());
    if inspect.status().expect("the `docker` command is installed").success() {
        return image;
    }
    let name = image.split(':').next().unwrap_or(image);
    let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&root).expect("a directory for the image");
    furnish(&root);
    import(image, changes, &root);
    fs::remove_dir_all(&root).expect("the directory goes again");
    image
}

fn import(image: &str, changes: &[&str], root: &Path) {
    let mut tar = Command::new("tar");
    let mut tar = tar.args(["--numeric-owner", "-C"]).arg(root).args(["-c", "."]).stdout(Stdio::piped());
    // Whoever makes the image, its files belong to root.
    if root.metadata().is_ok_and(|root| root.uid() != 0) {
        tar = tar.args(["--owner=0", "--group=0"]);
    }
    let mut tar = tar.spawn().expect("`tar` is installed");
    let content = tar.stdout.take().expect("its output is a pipe");
    let mut docker = Command::new("docker");
    docker.arg("import").args(changes.iter().flat_map(|change| ["--change", change])).args(["-", image]);
    let imported = docker.stdin(content).stdout(Stdio::null()).status();
    // It holds the reading end of the pipe, and `tar` would write for ever.
    drop(docker);
    assert!(tar.wait().is_ok_and(|status| status.success()), "`{image}` is packed");
    assert!(imported.is_ok_and(|status| status.success()), "`{image}` is imported");
}

fn install_busybox(root: &Path) {
    for dir in ["bin", "etc", "root", "usr", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(dir)).expect("a directory of the image");
    }
    fs::copy(busybox_binary(), root.join("bin/busybox")).expect("busybox is copied");
    let listed = Command::new(busybox_binary()).arg("--list").output().expect("busybox runs");
    for applet in String::from_utf8_lossy(&listed.stdout).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).expect("an applet");
    }
    for (path, mode) in [("bin/busybox", 0o755), ("tmp", 0o1777)] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("its mode is set");
    }
    let users = "root:x:0:0::/root:/bin/sh\nagent:x:10001:10001::/home/agent:/bin/sh\n";
    fs::write(root.join("etc/passwd"), users).expect("its users");
    fs::write(root.join("etc/group"), "root:x:0:\nagent:x:10001:\n").expect("its groups");
}

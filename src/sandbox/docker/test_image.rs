//! Makes the images that tests run in, on the spot, from what this machine has: nothing is fetched for busybox.
//!
//! Of the standard library alone, so that a task runner can include this file by its path.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::{Command, Stdio},
};

/// `sh` and the usual commands, in 2 MB.
pub(crate) const BUSYBOX: &str = "greenroom-test-busybox:latest";

/// Makes [`BUSYBOX`] unless it is there.
pub(crate) fn busybox() -> &'static str {
    if !is_there(BUSYBOX) {
        import(BUSYBOX, furnish_busybox);
    }
    BUSYBOX
}

fn is_there(image: &str) -> bool {
    let mut inspect = Command::new("docker");
    inspect.args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null());
    inspect.status().expect("the `docker` command is installed").success()
}

/// Fills a directory and makes an image of it.
fn import(image: &str, furnish: impl FnOnce(&Path)) {
    let root = std::env::temp_dir().join(format!("greenroom-image-{}", std::process::id()));
    fs::create_dir_all(&root).expect("a directory for the image");
    furnish(&root);
    let mut tar = Command::new("tar")
        .args(["--numeric-owner", "--owner=0", "--group=0", "-C"])
        .arg(&root)
        .args(["-c", "."])
        .stdout(Stdio::piped())
        .spawn()
        .expect("`tar` is installed");
    let content = tar.stdout.take().expect("its output is a pipe");
    let imported = Command::new("docker").args(["import", "-", image]).stdin(content).stdout(Stdio::null()).status();
    assert!(tar.wait().is_ok_and(|status| status.success()), "`{image}` is packed");
    assert!(imported.is_ok_and(|status| status.success()), "`{image}` is imported");
    fs::remove_dir_all(&root).expect("the directory goes again");
}

fn furnish_busybox(root: &Path) {
    for dir in ["bin", "etc", "root", "usr", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(dir)).expect("a directory of the image");
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("busybox is here; install the package `busybox-static`");
    fs::copy(busybox, root.join("bin/busybox")).expect("busybox is copied");
    let listed = Command::new(busybox).arg("--list").output().expect("busybox runs");
    for applet in String::from_utf8_lossy(&listed.stdout).lines().filter(|applet| *applet != "busybox") {
        symlink("busybox", root.join("bin").join(applet)).expect("an applet");
    }
    for (path, mode) in [("bin/busybox", 0o755), ("tmp", 0o1777)] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).expect("its mode is set");
    }
    fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nagent:x:10001:10001::/home/agent:/bin/sh\n")
        .expect("its users");
    fs::write(root.join("etc/group"), "root:x:0:\nagent:x:10001:\n").expect("its groups");
}

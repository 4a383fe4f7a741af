//! Images for the tests' sandboxes, made on the spot. Nothing is pulled from a registry.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::machine::target_dir;

/// Shell and applets in 2 MB: the smallest image that an agent can work in.
pub(crate) const BUSYBOX: &str = "greenroom-test-busybox:latest";
/// Debian with bash and coreutils.
pub(crate) const DEBIAN: &str = "greenroom-test-debian:latest";

/// Makes the images that the engine lacks.
pub(crate) fn make_all() -> Result<(), String> {
    make(BUSYBOX, "a second", busybox_tree)?;
    make(DEBIAN, "about a minute", debian_tree)
}

fn make(image: &str, takes: &str, fill: fn(&Path) -> Result<(), String>) -> Result<(), String> {
    if output(Command::new("docker").args(["image", "inspect", image])).is_ok() {
        return Ok(());
    }
    println!("  making the image {image} ({takes})");
    let tree = target_dir().join("images").join(image.replace(':', "-"));
    empty(&tree).map_err(|e| format!("`{}`: {e}", tree.display()))?;
    fill(&tree)?;
    import(&tree, image)?;
    fs::remove_dir_all(&tree).map_err(|e| format!("`{}`: {e}", tree.display()))
}

fn busybox_tree(tree: &Path) -> Result<(), String> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    let busybox = busybox.ok_or("there is no `busybox` here (Debian: `apt install busybox-static`)")?;
    let applets = output(Command::new(&busybox).arg("--list"))?;
    let fill = || -> io::Result<()> {
        for dir in ["bin", "etc", "home", "proc", "sys", "dev", "tmp", "usr/bin", "var"] {
            fs::create_dir_all(tree.join(dir))?;
        }
        fs::copy(&busybox, tree.join("bin/busybox"))?;
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            symlink("busybox", tree.join("bin").join(applet))?;
        }
        symlink("../../bin/env", tree.join("usr/bin/env"))?;
        fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
        fs::write(tree.join("etc/group"), "root:x:0:\n")
    };
    fill().map_err(|e| format!("`{}`: {e}", tree.display()))
}

fn debian_tree(tree: &Path) -> Result<(), String> {
    let suite = os_release("VERSION_CODENAME").ok_or("`/etc/os-release` does not say which Debian this is")?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &suite]).arg(tree).args(apt_mirror()).env("PATH", with_sbin());
    output(&mut debootstrap).map(drop)
}

/// Mirror that this machine's apt uses, if its configuration names one.
/// The default may be unreachable.
fn apt_mirror() -> Option<String> {
    let list =
        output(Command::new("apt-get").args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]));
    list.ok()?.lines().find(|uri| uri.starts_with("http")).map(|uri| uri.trim_end_matches('/').to_owned())
}

fn import(tree: &Path, image: &str) -> Result<(), String> {
    let failed = |what: &str, detail: String| format!("`{what}` for {image} failed: {detail}");
    let mut tar = Command::new("tar")
        .args(["--create", "--numeric-owner", "--one-file-system", "--directory"])
        .arg(tree)
        .arg(".")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed("tar", e.to_string()))?;
    let archive = tar.stdout.take().ok_or_else(|| failed("tar", "it has no output".to_owned()))?;
    let imported = output(Command::new("docker").args(["import", "-", image]).stdin(archive));
    let packed = tar.wait().map_err(|e| failed("tar", e.to_string()))?;
    if !packed.success() {
        return Err(failed("tar", packed.to_string()));
    }
    imported.map(drop)
}

/// Returns the program's output, or its errors if it fails.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("`{name}` cannot be started: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("`{name}` failed ({}): {}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

fn os_release(key: &str) -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.trim_matches('"').to_owned())
}

fn with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn empty(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    fs::create_dir_all(dir)
}

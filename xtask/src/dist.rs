//! `cargo xtask dist`: builds a program for other machines, and packs it.

use std::fs;

use crate::{
    archive::{check_glibc, pack},
    machine::{root, target_dir},
    runner::cargo,
};

/// Profile of a published program.
pub(crate) const DIST_PROFILE: &str = "dist";

/// Builds the server with `profile` and packs it. Prints the path of the archive.
///
/// The program is linked statically, so it starts on any Linux with this architecture. Since glibc
/// 2.34 a static program resolves names from `/etc/hosts` and DNS by itself.
///
/// # Errors
/// The build fails, or the program needs a newer glibc than that of Debian 11.
pub(crate) fn dist(profile: &str) -> Result<(), String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let linked = format!(r#"target.{target}.rustflags=["-C", "target-feature=+crt-static"]"#);
    let mut build = cargo();
    build.args(["build", "--package", "greenroom", "--bin", "greenroom", "--profile", profile]);
    build.args(["--target", &target, "--config", &linked]).current_dir(root());
    let status = build.status().map_err(|e| format!("cargo cannot be started: {e}"))?;
    if !status.success() {
        return Err(format!("the build failed ({status})"));
    }
    // Cargo names the directory of its two oldest profiles differently.
    let directory = if profile == "dev" { "debug" } else { profile };
    let program = target_dir().join(&target).join(directory).join("greenroom");
    let archives = target_dir().join("dist-archive");
    fs::create_dir_all(&archives).map_err(|e| format!("`{}`: {e}", archives.display()))?;
    let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let archive = archives.join(format!("greenroom-{version}-{arch}-linux.tar.gz"));
    check_glibc(&program)?;
    pack(&program, root(), &archive)?;
    println!("{}", archive.display());
    Ok(())
}

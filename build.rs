//! Builds the parts that travel inside the server's binary: the web UI, the agent and the jailer.
//!
//! | variable for `env!` | value |
//! |---|---|
//! | `GREENROOM_UI_DIR` | directory with the built web UI (`index.html`, `assets/`) |
//! | `GREENROOM_AGENT_BIN` | the agent's binary, linked statically to run in any image |
//! | `GREENROOM_JAILER_BIN` | the jailer's binary, linked statically to be small |

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            for line in error.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(cargo_env("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(cargo_env("OUT_DIR")?);
    let ui = build_ui(&root.join("static"), &out)?;
    let programs = build_programs(&root, &out)?;
    println!("cargo::rustc-env=GREENROOM_UI_DIR={}", ui.display());
    println!("cargo::rustc-env=GREENROOM_AGENT_BIN={}", programs.join("greenroom-agent").display());
    println!("cargo::rustc-env=GREENROOM_JAILER_BIN={}", programs.join("sandbox-jailer").display());
    Ok(())
}

// The web UI.

/// Entries of `static/` that are not sources of the built UI: made by npm or builds, or unrelated.
const NOT_UI_SOURCES: [&str; 5] = ["node_modules", "dist", "dist-test", "test", "dev"];

fn build_ui(sources: &Path, out: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(sources).map_err(|e| format!("the web UI's sources `{}`: {e}", sources.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("`{}`: {e}", sources.display()))?;
        if !NOT_UI_SOURCES.iter().any(|name| entry.file_name() == *name) {
            println!("cargo::rerun-if-changed={}", entry.path().display());
        }
    }
    install_packages(sources)?;
    npm(sources, &["run", "build"])?;
    // Each profile has a copy, so that another profile's build does not make embedded files look
    // changed.
    let ui = out.join("ui");
    let copied = remove_dir(&ui).and_then(|()| copy_dir(&sources.join("dist"), &ui));
    copied.map_err(|e| format!("cannot copy the built web UI to `{}`: {e}", ui.display()))?;
    Ok(ui)
}

/// Runs `npm ci` if the installed packages differ from `package-lock.json`.
fn install_packages(sources: &Path) -> Result<(), String> {
    let lock_path = sources.join("package-lock.json");
    let lock = fs::read(&lock_path).map_err(|e| format!("`{}`: {e}", lock_path.display()))?;
    // Written last, and removed by `npm ci` with everything else. The file exists only after a
    // complete installation.
    let stamp = sources.join("node_modules/.installed-lock");
    if fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    npm(sources, &["ci", "--no-audit", "--no-fund"])?;
    fs::write(&stamp, &lock).map_err(|e| format!("`{}`: {e}", stamp.display()))
}

fn npm(dir: &Path, args: &[&str]) -> Result<(), String> {
    let what = format!("npm {}", args.join(" "));
    // npm's stdout goes to stderr, which cargo shows after a failure. Cargo parses stdout for
    // instructions.
    let npm = Command::new("npm").args(args).current_dir(dir).stdout(io::stderr()).status();
    let status = npm.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            "the web UI is built with `npm` on Node 20 or newer, and there is no `npm` here; install it (Debian 13: \
             `apt install nodejs npm`)"
                .to_owned()
        }
        _ => format!("`{what}` cannot be started: {e}"),
    })?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "`{what}` failed in `{}` ({status}); its output is below; Node 20 or newer is needed, here is {}",
        dir.display(),
        node_version()
    ))
}

fn node_version() -> String {
    match Command::new("node").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => "none (Debian 13: `apt install nodejs`)".to_owned(),
    }
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

// The agent and the jailer.

/// Environment variables that the nested cargo must not inherit: flags and wrappers of the outer
/// build (such as clippy's), and the description of this package.
///
/// With them, agent and jailer would be rebuilt for each profile and each tool.
const OUTER_BUILD: [&str; 15] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "TARGET",
    "HOST",
    "PROFILE",
    "OPT_LEVEL",
    "DEBUG",
    "NUM_JOBS",
    "OUT_DIR",
    "RUSTDOC",
];
const OUTER_BUILD_PREFIXES: [&str; 5] = ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_MANIFEST_", "CARGO_PKG_", "DEP_"];

/// Compiler flags of both programs.
///
/// A program at a fixed address has no addresses to write at its start. Position-independent, each
/// agent would hold 0.6 MiB of such pages for itself (docs/adr/010-fixed-address-programs.md).
const STATIC_FLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static";

/// Builds both programs, and returns the directory that holds them.
fn build_programs(root: &Path, out: &Path) -> Result<PathBuf, String> {
    for input in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(input).display());
    }
    for package in ["agent", "agent/jailer", "agent/memory", "agent/protocol"] {
        for input in ["Cargo.toml", "src"] {
            println!("cargo::rerun-if-changed={}", root.join(package).join(input).display());
        }
    }
    let triple = cargo_env("TARGET")?;
    let target_dir = workspace_target(root, out).join("agent");
    let mut cargo = Command::new(cargo_env("CARGO")?);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if OUTER_BUILD.contains(&&*name) || OUTER_BUILD_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            cargo.env_remove(&*name);
        }
    }
    cargo
        .args(["build", "--profile", "agent", "--package", "greenroom-agent", "--package", "greenroom-jailer"])
        .args(["--target", &triple])
        // A separate target directory, because the outer build holds the lock of this one.
        .arg("--target-dir")
        .arg(&target_dir)
        .env("RUSTFLAGS", STATIC_FLAGS)
        .current_dir(root);
    let status =
        cargo.status().map_err(|e| format!("cargo cannot be started to build the agent and the jailer: {e}"))?;
    if !status.success() {
        return Err(format!(
            "the agent and the jailer were not built ({status}); cargo's output is below{}",
            missing_libc()
        ));
    }
    Ok(target_dir.join(&triple).join("agent"))
}

/// Returns the workspace's target directory, which all profiles share: the nearest directory above
/// `out` that cargo marked as a target directory.
fn workspace_target(root: &Path, out: &Path) -> PathBuf {
    let marked = out.ancestors().find(|dir| dir.join("CACHEDIR.TAG").exists());
    marked.map_or_else(|| root.join("target"), Path::to_path_buf)
}

/// Returns a hint if the C library cannot be linked statically.
fn missing_libc() -> &'static str {
    // The compiler prints the bare name if it does not find the file.
    match Command::new("cc").arg("-print-file-name=libc.a").output() {
        Ok(output) if output.stdout.trim_ascii() != b"libc.a" => "",
        Ok(_) => "\nthere is no static C library here; install it (Debian: `libc6-dev`, Fedora: `glibc-static`)",
        Err(_) => "\nthere is no C compiler `cc` here; install it (Debian: `gcc` and `libc6-dev`)",
    }
}

fn cargo_env(name: &str) -> Result<String, String> {
    env::var(name).map_err(|e| format!("cargo did not set `{name}`: {e}"))
}

//! Prerequisites of the tests: Debian packages and tools, if they may be installed, and a Docker
//! engine.

use std::{
    cell::RefCell,
    env,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::runner::cargo;

/// Permission to install packages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Install {
    Allowed,
    Forbidden,
}

impl Install {
    /// Reads the flag `--no-install`.
    pub(crate) fn from_flag(no_install: bool) -> Install {
        if no_install { Install::Forbidden } else { Install::Allowed }
    }
}

/// This machine. Drop stops the Docker engine that was started here, and no other.
pub(crate) struct Machine {
    install: Install,
    engine: RefCell<Option<Child>>,
}

/// Program that the tests use, and the Debian package that contains it.
struct Needed {
    program: &'static str,
    package: &'static str,
}

const ENGINE: [Needed; 5] = [
    Needed { program: "dockerd", package: "docker.io" },
    // A package of its own since Debian 13; before, part of the package above.
    Needed { program: "docker", package: "docker-cli" },
    Needed { program: "iptables", package: "iptables" },
    Needed { program: "busybox", package: "busybox-static" },
    Needed { program: "debootstrap", package: "debootstrap" },
];
const BROWSER: [Needed; 2] = [
    Needed { program: "chromium", package: "chromium" },
    Needed { program: "chromedriver", package: "chromium-driver" },
];
/// Version of the test runner that is installed if none is there.
const NEXTEST_VERSION: &str = "0.9.143";
const PROXIES: [Needed; 2] =
    [Needed { program: "nginx", package: "nginx" }, Needed { program: "caddy", package: "caddy" }];
const CLOCK: [Needed; 1] = [Needed { program: "faketime", package: "faketime" }];
const PYTHON: [Needed; 1] = [Needed { program: "python3", package: "python3" }];
const UI: [Needed; 2] = [Needed { program: "node", package: "nodejs" }, Needed { program: "npm", package: "npm" }];

/// Time limit for the engine's first answer after its start.
const ENGINE_DEADLINE: Duration = Duration::from_secs(60);

impl Machine {
    pub(crate) fn new(install: Install) -> Machine {
        Machine { install, engine: RefCell::new(None) }
    }

    /// Installs node and npm.
    pub(crate) fn ui(&self) -> Result<(), String> {
        self.install(&UI)
    }

    /// Installs the library that gives a program another time.
    pub(crate) fn fake_clock(&self) -> Result<(), String> {
        self.install(&CLOCK)
    }

    /// Installs the reverse proxies. Debian's packages would start them as services.
    pub(crate) fn proxies(&self) -> Result<(), String> {
        let _policy = ServicePolicy::deny(self.install, &missing(&PROXIES));
        self.install(&PROXIES)
    }

    /// Installs the test runner.
    pub(crate) fn nextest(&self) -> Result<(), String> {
        if on_path("cargo-nextest") {
            return Ok(());
        }
        let install = ["install", "--locked", "cargo-nextest", "--version", NEXTEST_VERSION];
        if self.install == Install::Forbidden {
            return Err(format!("`cargo-nextest` is not installed (`cargo {}`)", install.join(" ")));
        }
        println!("  installing cargo-nextest; this takes some minutes, once");
        let status = cargo().args(install).stdin(Stdio::null()).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`cargo {}` failed ({status})", install.join(" "))),
            Err(e) => Err(format!("cargo cannot be started: {e}")),
        }
    }

    /// Installs Chromium and its driver.
    pub(crate) fn browser(&self) -> Result<(), String> {
        self.install(&BROWSER)
    }

    /// Installs the tools of `tests/openapi/`: packages of npm, and `schemathesis` in a Python
    /// environment of its own. Returns the path of the latter.
    pub(crate) fn openapi_tools(&self) -> Result<PathBuf, String> {
        self.ui()?;
        let project = root().join("tests/openapi");
        self.install_locked(&project.join("package-lock.json"), &project.join("node_modules"), || {
            succeeds(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&project))
        })?;
        self.install(&PYTHON)?;
        let (requirements, environment) = (project.join("requirements.txt"), target_dir().join("openapi-tools"));
        self.install_locked(&requirements, &environment, || {
            let make = || succeeds(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment));
            if make().is_err() {
                // On Debian a package of its own contains the module's data.
                apt_get(&["update", "--quiet"])?;
                apt_get(&["install", "--yes", "--quiet", "--no-install-recommends", "python3-venv"])?;
                make()?;
            }
            let pip = environment.join("bin/pip");
            succeeds(Command::new(pip).args(["install", "--quiet", "--no-deps", "--requirement"]).arg(&requirements))
        })?;
        Ok(environment.join("bin/schemathesis"))
    }

    /// Installs what a lock file lists into `directory`, unless that is done already.
    fn install_locked(
        &self,
        lock: &Path,
        directory: &Path,
        install: impl FnOnce() -> Result<(), String>,
    ) -> Result<(), String> {
        let read = |path: &Path| fs::read(path).map_err(|e| format!("`{}`: {e}", path.display()));
        let (wanted, installed) = (read(lock)?, directory.join("installed.lock"));
        if read(&installed).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        if self.install == Install::Forbidden {
            return Err(format!("not installed here: the packages of `{}`", lock.display()));
        }
        println!("  installing the packages of `{}`", lock.display());
        install()?;
        fs::write(&installed, wanted).map_err(|e| format!("`{}`: {e}", installed.display()))
    }

    /// Returns when a Docker engine answers: the running one, or one that is started here.
    pub(crate) fn engine(&self) -> Result<(), String> {
        if engine_answers() {
            return self.install(&ENGINE[3..]);
        }
        if env::var_os("DOCKER_HOST").is_some() {
            return Err("the Docker engine that `DOCKER_HOST` names does not answer".to_owned());
        }
        if !is_root() {
            return Err("no Docker engine answers, and only root can start one".to_owned());
        }
        self.install(&ENGINE)?;
        // Sandboxes have no network, so the engine may run without a bridge.
        self.start_engine(&[]).or_else(|first| {
            println!("  {first}; trying without a network of its own");
            self.start_engine(&["--iptables=false", "--ip6tables=false", "--bridge=none"])
        })
    }

    fn start_engine(&self, flags: &[&str]) -> Result<(), String> {
        let log_path = target_dir().join("dockerd.log");
        let log = fs::create_dir_all(target_dir()).and_then(|()| File::create(&log_path));
        let log = log.map_err(|e| format!("`{}`: {e}", log_path.display()))?;
        let errors = log.try_clone().map_err(|e| format!("`{}`: {e}", log_path.display()))?;
        println!("  starting `dockerd`; its log is {}", log_path.display());
        let mut child = Command::new("dockerd")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("`dockerd` cannot be started: {e}"))?;
        let deadline = Instant::now() + ENGINE_DEADLINE;
        while Instant::now() < deadline {
            if engine_answers() {
                self.engine.replace(Some(child));
                return Ok(());
            }
            if let Ok(Some(status)) = child.try_wait() {
                return Err(format!("`dockerd` ended ({status}): {}", last_line(&log_path)));
            }
            thread::sleep(Duration::from_millis(200));
        }
        end(&mut child);
        Err(format!("`dockerd` did not answer within {} s: {}", ENGINE_DEADLINE.as_secs(), last_line(&log_path)))
    }

    fn install(&self, needed: &[Needed]) -> Result<(), String> {
        let missing = missing(needed);
        if missing.is_empty() {
            return Ok(());
        }
        let packages = missing.join(" ");
        if self.install == Install::Forbidden || !is_root() || !on_path("apt-get") {
            return Err(format!("not installed here: {packages} (Debian: `apt install {packages}`)"));
        }
        apt_get(&["update", "--quiet"])?;
        // One by one: a package that this Debian lacks (docker-cli) may be superfluous by then.
        for one in needed {
            if !on_path(one.program) {
                apt_get(&["install", "--yes", "--quiet", "--no-install-recommends", one.package])?;
            }
        }
        Ok(())
    }
}

/// Rule for Debian's packages that starts no service, as long as the value lives.
///
/// `invoke-rc.d` asks this program before each start (`/usr/share/doc/init-system-helpers`). A rule
/// of the machine's own stays in place.
struct ServicePolicy(Option<&'static Path>);

impl ServicePolicy {
    fn deny(install: Install, missing: &[&str]) -> ServicePolicy {
        let path = Path::new("/usr/sbin/policy-rc.d");
        let is_needed = install == Install::Allowed && !missing.is_empty() && is_root() && !path.exists();
        let write = || -> io::Result<()> {
            // 101: the start is forbidden.
            fs::write(path, "#!/bin/sh\nexit 101\n")?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        };
        ServicePolicy(Some(path).filter(|_| is_needed && write().is_ok()))
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        // Without the file, services start as usual. A failure is repaired by hand.
        if let Some(Err(e)) = self.0.map(fs::remove_file) {
            println!("  remove `/usr/sbin/policy-rc.d` by hand, it keeps services from starting: {e}");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut child) = self.engine.take() {
            println!("stopping the `dockerd` that was started for the tests");
            end(&mut child);
        }
    }
}

/// Returns true if an engine answers at `DOCKER_HOST` or at the default socket.
pub(crate) fn engine_answers() -> bool {
    let version = Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]).output();
    version.is_ok_and(|output| output.status.success())
}

/// The workspace's target directory.
pub(crate) fn target_dir() -> PathBuf {
    let set = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    set.unwrap_or_else(|| root().join("target"))
}

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn missing(needed: &[Needed]) -> Vec<&'static str> {
    needed.iter().filter(|needed| !on_path(needed.program)).map(|needed| needed.package).collect()
}

/// Returns true if the program exists on `PATH` or in an `sbin` directory.
/// Root's `PATH` may lack the latter.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// Runs a program without its output.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{command:?}` failed ({status})")),
        Err(e) => Err(format!("`{command:?}` cannot be started: {e}")),
    }
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    println!("  apt-get {}", args.join(" "));
    let status = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|e| format!("`apt-get` cannot be started: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("`apt-get {}` failed ({status})", args.join(" "))) }
}

/// Sends SIGTERM, so that the engine stops its containers too, and waits for the exit.
fn end(child: &mut Child) {
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    if !asked.is_ok_and(|status| status.success()) {
        // The engine is gone or ignores signals. The wait below returns in both cases.
        let _: io::Result<()> = child.kill();
    }
    let _: io::Result<_> = child.wait();
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("its log is empty").to_owned()
}

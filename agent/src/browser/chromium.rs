//! Program and arguments of the browser.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Environment variable that names the program. An empty value turns the browser off.
const PROGRAM_VARIABLE: &str = "GREENROOM_CHROMIUM";

/// Names under which distributions install the browser, the lightest first.
const NAMES: [&str; 6] = [
    "chrome-headless-shell",
    "headless_shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Arguments of every start.
///
/// The browser's own sandbox is off: it needs privileges that the session's sandbox withholds.
const ARGUMENTS: [&str; 23] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-zygote",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-search-engine-choice-screen",
    "--disable-features=Translate,MediaRouter,OptimizationHints,DialMediaRouteProvider",
    "--block-new-web-contents",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
    "--metrics-recording-only",
    "about:blank",
];

/// Returns the browser's program: the one that `GREENROOM_CHROMIUM` names, or the first in `PATH`.
pub(super) fn find_program() -> Option<PathBuf> {
    match env::var_os(PROGRAM_VARIABLE) {
        Some(named) => Some(PathBuf::from(named)).filter(|program| is_program(program)),
        None => find_in(&env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into())),
    }
}

fn find_in(path: &std::ffi::OsStr) -> Option<PathBuf> {
    NAMES
        .iter()
        .flat_map(|name| env::split_paths(path).map(move |directory| directory.join(name)))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns the arguments of a start with this profile. `gateway_port` is closed to every page: a
/// page must not spend the session's budget at the model gateway.
pub(super) fn arguments(profile: &Path, gateway_port: Option<u16>) -> Vec<String> {
    let profile = format!("--user-data-dir={}", profile.display());
    let gateway = gateway_port.map(|port| format!("--host-resolver-rules=MAP *:{port} ~NOTFOUND"));
    let own = [Some(profile), gateway].into_iter().flatten();
    own.chain(ARGUMENTS.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_known_program_of_the_path_is_found() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&first).expect("a directory");
        fs::create_dir(&second).expect("a directory");
        let path = env::join_paths([&first, &second]).expect("no colon in the path");
        fs::write(first.join("chromium"), "not executable").expect("a file");
        assert_eq!(find_in(&path), None);
        fs::write(second.join("chromium"), "").expect("a file");
        fs::set_permissions(second.join("chromium"), fs::Permissions::from_mode(0o755)).expect("the owner may");
        assert_eq!(find_in(&path), Some(second.join("chromium")));
    }

    #[test]
    fn gateway_port_is_closed_to_pages() {
        let rule = |port| arguments(Path::new("/tmp/p"), port).iter().any(|a| a.contains("MAP *:4711 ~NOTFOUND"));
        assert!(rule(Some(4711)) && !rule(None));
    }
}

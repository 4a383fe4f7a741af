//! Places that calls name: paths, resolved without the file system, and hosts.

use std::collections::BTreeSet;

/// Directories that a line may be in after `cd`.
const DIRS_LIMIT: usize = 8;

/// Path of a file, as far as its text tells.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// Path inside the workspace, relative to it. Empty for the workspace itself.
    Inside(String),
    /// Absolute path, or a path that begins with `~`.
    Outside(String),
    /// Relative to a directory that is known only at run time.
    Unknown(String),
}

impl Place {
    /// Resolves `path` against the workspace. `..` is resolved by its text, links are not followed.
    pub fn of(path: &str, workspace: &str) -> Place {
        Place::from_dir(path, workspace, workspace)
    }

    fn from_dir(path: &str, dir: &str, workspace: &str) -> Place {
        if path.starts_with('~') {
            return Place::Outside(path.to_owned());
        }
        let absolute = if path.starts_with('/') { normalize(path) } else { normalize(&format!("{dir}/{path}")) };
        let root = normalize(workspace);
        match absolute.strip_prefix(root.trim_end_matches('/')) {
            Some("") => Place::Inside(String::new()),
            Some(rest) if rest.starts_with('/') => Place::Inside(rest[1..].to_owned()),
            _ => Place::Outside(absolute),
        }
    }

    pub fn is_inside(&self) -> bool {
        matches!(self, Place::Inside(_))
    }

    pub fn text(&self) -> &str {
        match self {
            Place::Inside(text) | Place::Outside(text) | Place::Unknown(text) => text,
        }
    }
}

/// Resolves `.` and `..` of an absolute path. `..` of the root is the root.
fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Directories in which a command may run. More than one after `cd`, which may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkDirs {
    workspace: String,
    dirs: BTreeSet<String>,
    /// True if only the run decides about a directory.
    has_unknown: bool,
}

impl WorkDirs {
    pub fn new(workspace: &str) -> WorkDirs {
        WorkDirs { workspace: workspace.to_owned(), dirs: BTreeSet::from([normalize(workspace)]), has_unknown: false }
    }

    /// Adds the directories to which `cd` may lead. `None`: only the run decides.
    pub fn change(&mut self, target: Option<&str>) {
        let target = target.filter(|path| !path.starts_with('~') && *path != "-" && !path.is_empty());
        let Some(target) = target.filter(|_| self.dirs.len() < DIRS_LIMIT) else {
            self.has_unknown = true;
            return;
        };
        let added: Vec<String> = match target.starts_with('/') {
            true => vec![normalize(target)],
            false => self.dirs.iter().map(|dir| normalize(&format!("{dir}/{target}"))).collect(),
        };
        self.dirs.extend(added);
    }

    /// Returns every place that `path` may name.
    pub fn places(&self, path: &str) -> Vec<Place> {
        let is_relative = !path.starts_with(['/', '~']);
        let unknown = (is_relative && self.has_unknown).then(|| Place::Unknown(path.to_owned()));
        let dirs = self.dirs.iter().take(if is_relative { usize::MAX } else { 1 });
        dirs.map(|dir| Place::from_dir(path, dir, &self.workspace)).chain(unknown).collect()
    }
}

/// Returns the host of an address, in lower case. `None` if the text is no address with a host.
pub(super) fn host_of(text: &str) -> Option<String> {
    let (scheme, _) = text.split_once("://")?;
    let is_scheme = !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    // Only addresses of the web give IDNs their ASCII form.
    let address = match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" | "ws" | "wss" | "ftp" => text.to_owned(),
        _ => format!("http{}", &text[scheme.len()..]),
    };
    let url: reqwest::Url = is_scheme.then(|| address.parse().ok())??;
    url.host_str().map(|host| host.trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_by_their_text() {
        let check = |path: &str, expected: Place| assert_eq!(Place::of(path, "/workspace"), expected, "{path}");
        check("a/./b//c", Place::Inside("a/b/c".into()));
        check("a/../b", Place::Inside("b".into()));
        check("../workspace/a", Place::Inside("a".into()));
        check("/workspace", Place::Inside(String::new()));
        check("/workspace/../workspace2/a", Place::Outside("/workspace2/a".into()));
        check("../../../etc/passwd", Place::Outside("/etc/passwd".into()));
        check("~/.ssh/id", Place::Outside("~/.ssh/id".into()));
    }

    #[test]
    fn changed_directories_are_all_considered() {
        let mut dirs = WorkDirs::new("/workspace");
        dirs.change(Some("sub"));
        assert_eq!(dirs.places("../a"), [Place::Outside("/a".into()), Place::Inside("a".into())]);
        dirs.change(Some("/etc"));
        assert!(dirs.places("passwd").contains(&Place::Outside("/etc/passwd".into())));
        dirs.change(None);
        assert!(dirs.places("x").contains(&Place::Unknown("x".into())));
        assert_eq!(dirs.places("/tmp/x"), [Place::Outside("/tmp/x".into())]);
        for _ in 0..100 {
            dirs.change(Some("deeper"));
        }
        assert!(dirs.dirs.len() <= 2 * DIRS_LIMIT, "{dirs:?}");
    }

    #[test]
    fn hosts_are_read_from_addresses() {
        let check = |text: &str, expected: Option<&str>| assert_eq!(host_of(text).as_deref(), expected, "{text}");
        check("https://Example.org:8443/a?b", Some("example.org"));
        check("https://user:pw@evil.test/x", Some("evil.test"));
        check("https://example.org\\@evil.test/", Some("example.org"));
        check("git+ssh://git@host.test/x.git", Some("host.test"));
        check("https://bücher.example/", Some("xn--bcher-kva.example"));
        check("http://2130706433/", Some("127.0.0.1"));
        check("example.org", None);
        check("://x", None);
        check("a b://x", None);
    }
}

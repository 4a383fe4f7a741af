//! Addresses and references as users write them. Checked before any program gets them.

use std::path::{Component, Path, PathBuf};

use reqwest::Url;

use super::error::RepositoryError;

/// Longest address, bytes.
const ADDRESS_BYTES: usize = 2048;
/// Longest reference, bytes.
const REFERENCE_BYTES: usize = 255;

/// Place of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RepositoryPlace {
    /// Address with `https`, or with `http` at a loopback name.
    Web(Url),
    /// Directory of this host.
    Directory(PathBuf),
}

impl RepositoryPlace {
    /// Parses an address or a path. Reads no file, except for the choice between several sources.
    ///
    /// # Errors
    /// [`RepositoryError::BadAddress`] with the rule and the way out.
    pub(super) fn parse(text: &str, sources: &[PathBuf]) -> Result<RepositoryPlace, RepositoryError> {
        let bad = |reason: String| Err(RepositoryError::BadAddress(reason));
        if text.is_empty() || text.len() > ADDRESS_BYTES || text.contains(|c: char| c.is_control() || c == '\\') {
            return bad("`repo` must be an address or a path in one line, of 1 to 2048 bytes".to_owned());
        }
        if text.contains("::") {
            return bad("`repo` must not name a remote helper; use an `https` address".to_owned());
        }
        match text.split_once("://") {
            Some(_) => parse_url(text),
            None if text.split('/').next().is_some_and(|first| first.contains(':')) => {
                bad("`repo` must be an `https` address; `host:path` needs SSH, which is not supported".to_owned())
            }
            None => parse_path(text, sources),
        }
    }

    /// Returns the place in the form in which records and events have it.
    pub(super) fn text(&self) -> String {
        match self {
            RepositoryPlace::Web(url) => url.to_string(),
            RepositoryPlace::Directory(path) => path.display().to_string(),
        }
    }

    /// Returns the host and its port, if the address has one.
    pub(super) fn host(&self) -> Option<String> {
        let RepositoryPlace::Web(url) = self else { return None };
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    }
}

fn parse_url(text: &str) -> Result<RepositoryPlace, RepositoryError> {
    let bad = |reason: &str| Err(RepositoryError::BadAddress(reason.to_owned()));
    // The text is not repeated in errors: it may have a credential.
    let Ok(url) = Url::parse(text) else {
        return bad("`repo` is no valid address; write it like `https://git.example/team/project.git`");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return bad("`repo` must not have a credential inside; put it into `repositories.credentials`");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return bad("`repo` must not have a query or a fragment; name the branch in `ref`");
    }
    let is_loopback = matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"));
    match url.scheme() {
        "https" => Ok(RepositoryPlace::Web(url)),
        "http" if is_loopback => Ok(RepositoryPlace::Web(url)),
        _ => bad("`repo` must begin with `https://`; `http://` is for loopback names only"),
    }
}

fn parse_path(text: &str, sources: &[PathBuf]) -> Result<RepositoryPlace, RepositoryError> {
    let bad = |reason: String| Err(RepositoryError::BadAddress(reason));
    let path = Path::new(text);
    if path.components().any(|part| matches!(part, Component::ParentDir | Component::CurDir)) || text.starts_with('-') {
        return bad(format!("path `{text}` must not contain `..` or `.`, or begin with `-`"));
    }
    if sources.is_empty() {
        return bad("repositories of this host are off; set `workspace.sources`, or use an `https` address".to_owned());
    }
    let candidates: Vec<PathBuf> = match path.is_absolute() {
        true => sources.iter().filter(|source| path.starts_with(source)).map(|_| path.to_owned()).collect(),
        false => sources.iter().map(|source| source.join(path)).collect(),
    };
    let found = candidates.iter().find(|path| path.is_dir());
    match (found, candidates.is_empty()) {
        (Some(path), _) => Ok(RepositoryPlace::Directory(path.clone())),
        (None, true) => bad(format!("path `{text}` is not below one of `workspace.sources`")),
        (None, false) => bad(format!("there is no directory `{text}` below `workspace.sources`")),
    }
}

/// Resolves links, and checks that the directory is still below a source.
///
/// # Errors
/// [`RepositoryError::BadAddress`] for another place.
pub(super) fn resolve_directory(path: &Path, sources: &[PathBuf]) -> Result<PathBuf, RepositoryError> {
    let outside = || RepositoryError::BadAddress(format!("`{}` is not below `workspace.sources`", path.display()));
    let resolved = path.canonicalize().map_err(|_| outside())?;
    let is_below = |source: &PathBuf| source.canonicalize().is_ok_and(|source| resolved.starts_with(source));
    if sources.iter().any(is_below) { Ok(resolved) } else { Err(outside()) }
}

/// Checks a reference by the rules of `git check-ref-format --allow-onelevel`, without a leading
/// `-`. Source: git-check-ref-format(1).
///
/// # Errors
/// [`RepositoryError::BadReference`].
pub(super) fn check_reference(name: &str) -> Result<(), RepositoryError> {
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace() || "~^:?*[\\".contains(c);
    let is_valid = name.len() <= REFERENCE_BYTES
        && name.split('/').all(is_part)
        && !name.contains(is_forbidden)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
        && !name.starts_with('-')
        && name != "@";
    if is_valid { Ok(()) } else { Err(RepositoryError::BadReference(name.escape_debug().to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_follow_the_rules_of_git() {
        for name in ["main", "greenroom/a1", "v1.0", "feature/ä", "0123456789abcdef"] {
            assert!(check_reference(name).is_ok(), "{name}");
        }
        let bad = [
            "",
            "-",
            "--upload-pack=x",
            "a..b",
            "../a",
            "a/../b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a b",
            "a\n",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "@",
            "a@{1}",
            "a.",
            "a\u{7f}",
        ];
        for name in bad {
            assert!(matches!(check_reference(name), Err(RepositoryError::BadReference(_))), "{name}");
        }
        assert!(check_reference(&"a".repeat(256)).is_err());
    }

    #[test]
    fn addresses_are_https_or_below_a_source() {
        let dir = tempfile::tempdir().expect("a directory");
        let sources = [dir.path().join("code")];
        std::fs::create_dir_all(sources[0].join("project")).expect("a directory");
        let parse = |text: &str| RepositoryPlace::parse(text, &sources).map(|place| place.text());
        assert_eq!(parse("https://git.example/a.git").expect("valid"), "https://git.example/a.git");
        assert_eq!(parse("http://127.0.0.1:8/a").expect("valid"), "http://127.0.0.1:8/a");
        let project = sources[0].join("project").display().to_string();
        assert_eq!(parse("project").expect("valid"), project);
        assert_eq!(parse(&project).expect("valid"), project);
        let bad = [
            "",
            "http://git.example/a",
            "ssh://git@git.example/a",
            "git@git.example:a",
            "ext::sh -c true",
            "file:///etc",
            "https://me:secret@git.example/a",
            "https://git.example/a?token=secret",
            "../project",
            "/etc",
            "missing",
            "project/../../x",
            "-u",
            "https://",
            "a\nb",
        ];
        for text in bad {
            let error = parse(text).expect_err(text).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(RepositoryPlace::parse("project", &[]).is_err());
    }

    #[test]
    fn links_out_of_a_source_are_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let (source, outside) = (dir.path().join("code"), dir.path().join("outside"));
        for path in [&source, &outside] {
            std::fs::create_dir(path).expect("a directory");
        }
        std::os::unix::fs::symlink(&outside, source.join("way")).expect("a link");
        assert!(resolve_directory(&source.join("way"), std::slice::from_ref(&source)).is_err());
        assert!(resolve_directory(&source, std::slice::from_ref(&source)).is_ok());
    }
}

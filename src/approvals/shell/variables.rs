//! Variables that decide which program a command runs.

/// Variables through which a command runs other programs than it names.
const POWERFUL_VARIABLES: [&str; 22] = [
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "CDPATH",
    "EDITOR",
    "ENV",
    "HOME",
    "IFS",
    "MAKEFLAGS",
    "NODE_OPTIONS",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PROMPT_COMMAND",
    "PS4",
    "RUBYLIB",
    "RUBYOPT",
    "SHELL",
    "SHELLOPTS",
    "VISUAL",
    "XDG_CONFIG_HOME",
];

/// Beginnings of names of such variables.
const POWERFUL_PREFIXES: [&str; 8] =
    ["LD_", "DYLD_", "GIT_", "PYTHON", "CARGO_", "RUSTC", "NPM_CONFIG_", "npm_config_"];

/// Returns true if the variable decides which program a command runs.
pub(in super::super) fn is_powerful(variable: &str) -> bool {
    POWERFUL_VARIABLES.contains(&variable) || POWERFUL_PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// Returns such variables that `source` may set: all that it names, except where it reads one as
/// `$NAME` or `${NAME}`. A loop, arithmetic, a builtin or another variable may set a name, so the
/// place of a name does not matter.
pub(super) fn may_be_set(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = source;
    let mut before = "";
    while let Some(at) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        let end = rest[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(rest.len(), |len| at + len);
        let (name, after) = (&rest[at..end], &rest[end..]);
        let prefix = if at == 0 { before } else { &rest[..at] };
        let is_read = match prefix.strip_suffix('{') {
            Some(outer) => outer.ends_with('$') && after.starts_with('}'),
            None => prefix.ends_with('$'),
        };
        if is_powerful(name) && !is_read && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
        before = name;
        rest = after;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_of_plain_reads_may_be_set() {
        let check = |source: &str, expected: &[&str]| assert_eq!(may_be_set(source), expected, "{source}");
        check("git status", &[]);
        check("ls $HOME ${HOME}/x", &[]);
        check("for PATH in a; do git status; done", &["PATH"]);
        check("printf -v PATH %s x; echo $PATH", &["PATH"]);
        check("X=PATH=/x; export $X", &["PATH"]);
        check(": ${PATH:=x}; (( GIT_DIR = 1 ))", &["PATH", "GIT_DIR"]);
        check("MYPATH=1", &[]);
    }
}

//! Files that a call reads or writes.

use super::RiskFindings;
use crate::approvals::{place::Place, shell::ShellCommand};

/// Ends of paths with secrets of a user.
const SECRET_FILES: [&str; 18] = [
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".git-credentials",
    ".kube/config",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
];

/// Files of a user that run at sign-in or configure what runs.
const STARTUP_FILES: [&str; 20] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/autostart",
    ".config/fish",
    ".config/systemd",
    ".envrc",
    ".gitconfig",
    ".inputrc",
    ".login",
    ".pam_environment",
    ".profile",
    ".ssh",
    ".vimrc",
    ".xinitrc",
    ".xprofile",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// Directories of the system.
const SYSTEM_DIRS: [&str; 12] =
    ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/root", "/sbin", "/sys", "/usr", "/var"];

/// Directories outside the workspace that anybody may fill.
const TEMPORARY_DIRS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Returns true for a path below one of the directories.
fn is_below(path: &str, dirs: &[&str]) -> bool {
    dirs.iter().any(|dir| path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

/// Returns true for a place outside the workspace that is not temporary.
pub(super) fn is_foreign(place: &Place) -> bool {
    match place {
        Place::Inside(_) => false,
        Place::Outside(path) => !is_below(path, &TEMPORARY_DIRS),
        Place::Unknown(_) => true,
    }
}

pub(super) fn assess_written(places: &[Place], findings: &mut RiskFindings) {
    for place in places {
        let path = place.text();
        let is_startup = STARTUP_FILES.iter().any(|file| {
            let tail = path
                .strip_prefix("~/")
                .or_else(|| path.strip_prefix("/root/"))
                .or_else(|| path.strip_prefix("/home/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest));
            tail.is_some_and(|tail| {
                tail.strip_prefix(file).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        });
        let below_git = path.split_once(".git/").filter(|(before, _)| before.is_empty() || before.ends_with('/'));
        if is_startup {
            findings.high(format!("writes `{}`, which runs at sign-in or configures programs", shown(path)));
        } else if below_git.is_some_and(|(_, file)| file.starts_with("hooks/") || file == "config") {
            findings.high(format!("writes `{}`, which git runs", shown(path)));
        } else {
            match place {
                Place::Inside(_) => {}
                Place::Outside(path) if is_below(path, &TEMPORARY_DIRS) => {}
                Place::Outside(path) if is_below(path, &SYSTEM_DIRS) => {
                    findings.high(format!("writes to the system: `{}`", shown(path)));
                }
                Place::Outside(path) => findings.medium(format!("writes outside the workspace: `{}`", shown(path))),
                Place::Unknown(_) => findings.medium("writes a file that only the run decides"),
            }
        }
    }
}

pub(super) fn assess_read(places: &[Place], findings: &mut RiskFindings) {
    for place in places {
        if has_secret(place) {
            let level = if place.is_inside() { RiskFindings::medium } else { RiskFindings::high };
            level(findings, format!("touches a file with secrets: `{}`", shown(place.text())));
        }
    }
}

/// Returns true if the file usually holds secrets.
pub(super) fn has_secret(place: &Place) -> bool {
    let path = place.text();
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_environment =
        name == ".env" || (name.starts_with(".env.") && !name.ends_with(".example") && !name.ends_with(".sample"));
    let is_process = path.starts_with("/proc/") && path.ends_with("/environ");
    let is_known = SECRET_FILES.iter().any(|file| {
        path.strip_suffix(file)
            .is_some_and(|before| before.is_empty() || before.ends_with('/') || file.starts_with('/'))
    });
    is_known || is_environment || is_process || name.ends_with(".pem") || name.ends_with(".p12")
}

/// Returns the paths that a command writes by its arguments.
pub(super) fn written_paths(command: &ShellCommand) -> Vec<String> {
    let operands: Vec<&str> = command.arguments().filter(|word| !word.starts_with('-')).collect();
    let after = |options: &[&str]| {
        let words: Vec<&str> = command.arguments().collect();
        let pairs = words.windows(2).filter(|pair| options.contains(&pair[0])).map(|pair| pair[1].to_owned());
        let joined = words.iter().filter_map(|word| {
            options.iter().find_map(|option| word.strip_prefix(option)?.strip_prefix('=').map(str::to_owned))
        });
        pairs.chain(joined).collect::<Vec<_>>()
    };
    let all = || operands.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    match command.name() {
        "tee" | "touch" | "mkdir" | "truncate" | "unlink" | "rmdir" => all(),
        "cp" | "mv" | "ln" | "install" | "rsync" if operands.len() > 1 => {
            let target = operands.last().filter(|path| !path.contains(':')).map(|path| (*path).to_owned());
            target.into_iter().chain(after(&["-t", "--target-directory"])).collect()
        }
        "sed" | "perl" if command.arguments().any(|word| word.starts_with("-i") || word.starts_with("--in-place")) => {
            operands.iter().skip(1).map(|path| (*path).to_owned()).collect()
        }
        "dd" => operands.iter().filter_map(|word| word.strip_prefix("of=").map(str::to_owned)).collect(),
        "curl" => after(&["-o", "--output", "--output-dir"]),
        "wget" => after(&["-O", "--output-document", "-P", "--directory-prefix"]),
        "tar" => after(&["-C", "--directory"]),
        "unzip" => after(&["-d"]),
        _ => Vec::new(),
    }
}

/// Returns the start of a path, for a reason.
pub(super) fn shown(path: &str) -> String {
    match path.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

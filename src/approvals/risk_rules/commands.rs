//! Commands that destroy, that change the system, or that stay after the session.

use super::{RiskFindings, files};
use crate::approvals::{
    place::Place,
    shell::{CommandRole, ShellCommand, base_name},
};

/// Directories that programs make again.
const REBUILT_DIRS: [&str; 14] = [
    ".cache",
    ".mypy_cache",
    ".next",
    ".pytest_cache",
    "__pycache__",
    "build",
    "coverage",
    "dist",
    "htmlcov",
    "node_modules",
    "out",
    "target",
    "tmp",
    "venv",
];

/// Programs that change the system itself.
const SYSTEM_PROGRAMS: [&str; 28] = [
    "chpasswd",
    "dpkg-reconfigure",
    "fdisk",
    "groupadd",
    "halt",
    "insmod",
    "iptables",
    "kexec",
    "modprobe",
    "mount",
    "nft",
    "parted",
    "passwd",
    "poweroff",
    "reboot",
    "rmmod",
    "sfdisk",
    "shutdown",
    "swapoff",
    "sysctl",
    "telinit",
    "ufw",
    "umount",
    "useradd",
    "userdel",
    "usermod",
    "visudo",
    "wipefs",
];

/// Programs that start other programs later.
const SCHEDULERS: [&str; 6] = ["at", "batch", "crontab", "launchctl", "systemd-run", "update-rc.d"];

pub(super) fn assess(command: &ShellCommand, findings: &mut RiskFindings) {
    let name = command.name();
    let words: Vec<&str> = command.words[1..].iter().map(|word| word.text.as_str()).collect();
    let has = |options: &[&str]| words.iter().any(|word| options.contains(word));
    if command.role == CommandRole::PowerfulWrapper || matches!(name, "sudo" | "doas" | "su" | "pkexec") {
        findings.high(format!("`{name}` runs a program with other rights or in another place"));
    }
    if SYSTEM_PROGRAMS.contains(&name) || name.starts_with("mkfs") {
        findings.high(format!("`{name}` changes the system"));
    }
    match name {
        "rm" => remove(command, findings),
        "shred" => findings.high("destroys files for good"),
        "find" if has(&["-delete"]) => match words.first().map(|start| command.dirs.places(start)) {
            Some(places) if places.iter().any(files::is_foreign) => {
                findings.high("deletes files outside the workspace")
            }
            _ => findings.medium("deletes the files that it finds"),
        },
        "dd" if words.iter().any(|word| word.starts_with("of=/dev/")) => findings.high("overwrites a device"),
        "dd" | "truncate" => findings.medium("overwrites a file"),
        "chmod" | "chown" | "chgrp" => rights(command, findings),
        "kill" if has(&["-1", "1"]) && words.last().is_some_and(|last| matches!(*last, "-1" | "1")) => {
            findings.high("ends all processes");
        }
        "killall" | "pkill" => findings.medium("ends processes by name"),
        "crontab" if has(&["-l"]) => {}
        name if SCHEDULERS.contains(&name) => findings.high("starts a program later, outside the session"),
        "systemctl" | "service" => {
            let reads =
                ["status", "list-units", "list-unit-files", "show", "is-active", "is-enabled", "cat", "--version"];
            if !words.iter().any(|word| reads.contains(word)) {
                findings.high("changes a service of the system");
            }
        }
        "setcap" | "setfacl" => findings.high("gives a program more rights"),
        "history" if has(&["-c"]) => findings.medium("removes the history of commands"),
        "unset" if has(&["HISTFILE"]) => findings.medium("removes the history of commands"),
        "docker" | "podman" | "nerdctl" => containers(&words, findings),
        "kubectl" | "terraform" | "tofu" | "pulumi" | "helm" | "aws" | "gcloud" | "az" | "doctl" | "flyctl"
        | "heroku" => {
            cloud(name, &words, findings);
        }
        "psql" | "mysql" | "mariadb" | "sqlite3" | "redis-cli" | "mongosh" | "mongo" | "clickhouse-client" => {
            database(&words, findings);
        }
        "dropdb" => findings.high("deletes data of a database"),
        "npm" | "pnpm" | "yarn" | "bun" | "cargo" | "pip" | "pip3" | "gem" | "go" | "apt" | "apt-get" | "brew"
        | "uv" | "poetry" | "composer" | "dnf" | "yum" | "apk" | "pipx" | "twine" | "gh" | "dotnet" | "mvn" => {
            packages(name, &words, findings)
        }
        "npx" | "uvx" | "bunx" => findings.medium("runs a package from the network"),
        _ => {}
    }
}

fn remove(command: &ShellCommand, findings: &mut RiskFindings) {
    let is_option = |word: &str| word.starts_with('-') && word.len() > 1;
    let has_letter = |letters: [char; 2]| {
        command.arguments().any(|word| is_option(word) && !word.starts_with("--") && word.contains(letters))
    };
    let is_recursive = has_letter(['r', 'R']) || command.arguments().any(|word| word == "--recursive");
    for word in command.words[1..].iter().filter(|word| !is_option(&word.text)) {
        let path = word.text.trim_end_matches("/*").trim_end_matches("/.*");
        let is_variable = path.contains(['$', '`']);
        let places = command.dirs.places(if matches!(path, "*" | ".*" | "") { "." } else { path });
        let is_all =
            word.text == "/*" || places.iter().any(|place| matches!(place, Place::Inside(inside) if inside.is_empty()));
        if word.text.starts_with("/*") || (!is_variable && places.iter().any(files::is_foreign)) {
            findings.high(format!("deletes files outside the workspace: `{}`", files::shown(&word.text)));
        } else if is_recursive && is_variable {
            findings.high("deletes a directory that only the run decides");
        } else if is_all && (is_recursive || path != ".") {
            findings.high("deletes the whole workspace");
        } else if is_recursive && path.trim_end_matches('/').split('/').any(|part| part == ".git") {
            findings.high("deletes the history of the project");
        } else if is_recursive && !REBUILT_DIRS.contains(&base_name(path.trim_end_matches('/'))) {
            findings.medium("deletes a directory");
        }
    }
}

fn rights(command: &ShellCommand, findings: &mut RiskFindings) {
    let mut operands = command.arguments().filter(|word| !word.starts_with('-'));
    let mode = operands.next().unwrap_or_default();
    let digits = mode.trim_start_matches('0');
    let is_special = (digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()))
        || (mode.contains('s') && mode.contains(['+', '=']));
    if command.name() == "chmod" && is_special {
        findings.high("gives a program the rights of its owner");
    }
    if command.name() == "chmod"
        && (digits == "777" || digits == "666" || mode == "a+w" || mode == "o+w" || mode == "a+rwx")
    {
        findings.medium("lets everybody write a file");
    }
    if operands.any(|path| command.dirs.places(path).iter().any(files::is_foreign)) {
        findings.high("changes rights outside the workspace");
    }
}

fn containers(words: &[&str], findings: &mut RiskFindings) {
    let has = |part: &str| words.contains(&part);
    let is_host = words.iter().any(|word| {
        let is_right = matches!(*word, "--privileged" | "--pid=host");
        is_right || word.contains("docker.sock") || word.starts_with("/:")
    });
    match words.first() {
        _ if is_host => findings.high("gives a container the rights of the host"),
        Some(&"push") => findings.high("publishes to a registry"),
        Some(&"system" | &"volume" | &"image") if has("prune") || has("rm") => {
            findings.high("deletes data of containers")
        }
        Some(&"rm" | &"rmi" | &"kill" | &"stop") => findings.medium("removes or stops containers"),
        Some(&"run" | &"exec" | &"build" | &"pull" | &"compose") => findings.medium("runs or fetches a container"),
        _ => {}
    }
}

fn cloud(name: &str, words: &[&str], findings: &mut RiskFindings) {
    let reads = [
        "get",
        "describe",
        "list",
        "ls",
        "show",
        "plan",
        "validate",
        "logs",
        "status",
        "version",
        "--version",
        "fmt",
        "template",
    ];
    let destroys =
        ["delete", "destroy", "rm", "rb", "terminate-instances", "uninstall", "drain", "purge", "apps:destroy"];
    let starts = |word: &&str| destroys.iter().any(|verb| word == verb || word.starts_with("delete-"));
    if words.iter().any(starts) {
        findings.high(format!("deletes something with `{name}`"));
    } else if !words.iter().any(|word| {
        reads.contains(word) || word.starts_with("describe-") || word.starts_with("list-") || word.starts_with("get-")
    }) {
        findings.medium(format!("changes something with `{name}`"));
    }
}

fn database(words: &[&str], findings: &mut RiskFindings) {
    let text = words.join(" ").to_ascii_lowercase();
    let drops =
        ["drop table", "drop database", "drop schema", "truncate ", "flushall", "flushdb", "dropdatabase", ".drop("];
    let changes = ["delete from", "update ", "alter table", "insert into"];
    if drops.iter().any(|statement| text.contains(statement))
        || (text.contains("delete from") && !text.contains("where"))
    {
        findings.high("deletes data of a database");
    } else if changes.iter().any(|statement| text.contains(statement)) {
        findings.medium("changes data of a database");
    }
}

fn packages(name: &str, words: &[&str], findings: &mut RiskFindings) {
    let first = words.iter().find(|word| !word.starts_with(['-', '+'])).copied().unwrap_or_default();
    let publishes = matches!((name, first), (_, "publish" | "upload") | ("gem", "push") | ("mvn", "deploy"))
        || (name == "gh"
            && matches!(first, "release" | "repo" | "secret" | "api")
            && words.iter().any(|word| matches!(*word, "create" | "delete" | "set" | "-X" | "upload")));
    if publishes {
        findings.high("publishes or changes something on a server");
    } else if matches!(
        first,
        "install" | "i" | "add" | "get" | "ci" | "update" | "upgrade" | "sync" | "download" | "exec" | "x" | "dlx"
    ) {
        findings.medium("installs or fetches packages");
    } else if matches!(first, "remove" | "uninstall" | "purge" | "autoremove") {
        findings.medium("removes packages");
    }
}

//! Commands of git that lose work, rewrite history, or reach a server.

use super::RiskFindings;
use crate::approvals::shell::ShellCommand;

/// Options before the subcommand that take a value.
const VALUED_OPTIONS: [&str; 6] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"];

/// Settings through which git runs programs.
const RUNNING_SETTINGS: [&str; 10] = [
    "alias.",
    "core.editor",
    "core.fsmonitor",
    "core.hookspath",
    "core.pager",
    "core.sshcommand",
    "credential.",
    "diff.external",
    "filter.",
    "include.",
];

pub(super) fn assess(command: &ShellCommand, findings: &mut RiskFindings) {
    if command.name() != "git" {
        return;
    }
    let words: Vec<&str> = command.words[1..].iter().map(|word| word.text.as_str()).collect();
    let mut at = 0;
    while let Some(option) = words.get(at).filter(|word| word.starts_with('-')) {
        if *option == "-c" && words.get(at + 1).is_some_and(|setting| is_running(setting)) {
            findings.high("sets a program that git runs");
        }
        at += if VALUED_OPTIONS.contains(option) { 2 } else { 1 };
    }
    let Some((subcommand, arguments)) = words.get(at..).and_then(<[&str]>::split_first) else { return };
    let has = |options: &[&str]| arguments.iter().any(|word| options.contains(word));
    let has_short = |letter: char| {
        arguments.iter().any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
    };
    match *subcommand {
        "push" => {
            let forced = has(&["--force", "--force-with-lease", "--mirror", "--force-if-includes"]) || has_short('f');
            let is_forced = forced || arguments.iter().any(|word| word.starts_with('+') || word.starts_with("--force"));
            let deletes =
                has(&["--delete", "--prune"]) || has_short('d') || arguments.iter().any(|word| word.starts_with(':'));
            match (is_forced, deletes) {
                (true, _) => findings.high("rewrites history on a server"),
                (false, true) => findings.high("deletes a branch on a server"),
                (false, false) => findings.medium("sends commits to a server"),
            }
        }
        "filter-branch" | "filter-repo" => findings.high("rewrites the whole history"),
        "reflog" if has(&["expire", "delete"]) => findings.high("removes the way back to lost commits"),
        "update-ref" if has(&["-d", "--delete"]) => findings.high("deletes a reference"),
        "gc" if has(&["--prune=now", "--prune=all"]) => findings.medium("removes commits that no branch has"),
        "reset" if has(&["--hard", "--merge"]) => findings.medium("discards changes"),
        "clean" if has_short('f') || has(&["--force"]) => findings.medium("deletes files that git does not know"),
        "checkout" | "restore" | "switch" if has(&["--", ".", "--force", "--discard-changes"]) || has_short('f') => {
            findings.medium("discards changes");
        }
        "rebase" => findings.medium("rewrites history"),
        "commit" if has(&["--amend"]) => findings.medium("rewrites the last commit"),
        "branch" | "tag" if has_short('D') || has_short('d') || has(&["--delete"]) => {
            findings.medium("deletes a branch or a tag")
        }
        "stash" if has(&["drop", "clear"]) => findings.medium("discards stashed changes"),
        "config" if arguments.iter().any(|word| is_running(word)) && !has(&["--get", "--list", "-l", "--get-all"]) => {
            findings.high("sets a program that git runs");
        }
        "config" if has(&["--global", "--system"]) && !has(&["--get", "--list", "-l"]) => {
            findings.medium("changes the settings of git for all projects");
        }
        "remote" if has(&["add", "set-url", "rename", "remove"]) => findings.medium("changes a server of the project"),
        "clone" | "fetch" | "pull" | "ls-remote" | "submodule" => findings.medium("reaches a server"),
        "send-email" | "daemon" | "instaweb" => findings.high("opens the project to a network"),
        _ => {}
    }
}

fn is_running(setting: &str) -> bool {
    let setting = setting.to_ascii_lowercase();
    RUNNING_SETTINGS.iter().any(|start| setting.starts_with(start))
}

//! Code that arrives from elsewhere, and code that hides what it does.

use super::RiskFindings;
use crate::approvals::shell::ShellCommand;

/// Interpreters that run their input, or the code of an option.
const INTERPRETERS: [&str; 12] =
    ["python", "python2", "python3", "perl", "ruby", "node", "php", "lua", "deno", "bun", "tclsh", "osascript"];

/// Programs that download.
const DOWNLOADERS: [&str; 5] = ["aria2c", "curl", "fetch", "lynx", "wget"];

/// Programs that turn an encoded text into another.
const DECODERS: [&str; 9] = ["base32", "base64", "gunzip", "gzip", "openssl", "rev", "tr", "uudecode", "xxd"];

/// Signs of code that builds other code, or runs programs.
const HIDING_CODE: [&str; 20] = [
    "__import__",
    "atob(",
    "b64decode",
    "base64",
    "bytes.fromhex",
    "child_process",
    "chr(",
    "codecs.decode",
    "compile(",
    "decode(",
    "eval(",
    "exec(",
    "execsync",
    "fromcharcode",
    "os.system",
    "pty.spawn",
    "socket",
    "subprocess",
    "system(",
    "unpack(",
];

/// Adds findings that concern the line as a text.
pub(super) fn find_in_line(line: &str, is_unclear: bool, findings: &mut RiskFindings) {
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).take(4096).collect();
    if squeezed.contains(":|:&") {
        findings.high("starts processes without end");
    }
    if is_unclear {
        if DOWNLOADERS.iter().any(|program| line.contains(program)) {
            findings.high("may run code from the network");
        }
        if ["base64", "xxd", "openssl", "gunzip", "rev"].iter().any(|program| line.contains(program)) {
            findings.high("may run an encoded text");
        }
    }
    if line.matches("\\x").count() >= 3 || line.matches("\\u00").count() >= 3 {
        findings.medium("spells text by numbers");
    }
}

/// Adds findings about the programs of each pipeline.
pub(super) fn find_in_pipelines(commands: &[&ShellCommand], findings: &mut RiskFindings) {
    for command in commands.iter().filter(|command| command.position > 0 && runs_input(command)) {
        let before =
            || commands.iter().filter(|other| other.pipeline == command.pipeline && other.position < command.position);
        if before().any(|other| DOWNLOADERS.contains(&other.name())) {
            findings.high("downloads code and runs it");
        } else if before().any(|other| DECODERS.contains(&other.name())) {
            findings.high("decodes a text and runs it");
        } else {
            findings.medium("runs code from a pipe");
        }
    }
}

/// Returns true for an interpreter without a script.
fn runs_input(command: &ShellCommand) -> bool {
    INTERPRETERS.contains(&command.name())
        && command.words[1..].iter().all(|word| {
            word.text == "-"
                || (word.text.starts_with('-') && word.text.len() == 2 && !"cemr".contains(&word.text[1..]))
        })
}

/// Adds findings about the code in the arguments of one command.
pub(super) fn assess(command: &ShellCommand, findings: &mut RiskFindings) {
    if INTERPRETERS.contains(&command.name()) {
        let options = ["-c", "-e", "-E", "-r", "-p", "--eval", "--print", "eval"];
        let code = command.words.windows(2).find(|pair| options.contains(&pair[0].text.as_str())).map(|pair| &pair[1]);
        match code {
            Some(code) if !code.is_fixed => findings.high("runs code that only the run decides"),
            Some(code) => {
                let lower = code.text.to_ascii_lowercase();
                match HIDING_CODE.iter().any(|sign| lower.contains(sign)) {
                    true => findings.high("runs code that starts programs or hides other code"),
                    false => findings.medium("runs code from an argument"),
                }
            }
            None => {}
        }
    }
    if matches!(command.name(), "awk" | "gawk" | "mawk")
        && command.words.iter().any(|word| word.text.contains("system("))
    {
        findings.high("runs code that starts programs or hides other code");
    }
    if command.name() == "tar"
        && command
            .words
            .iter()
            .any(|word| word.text.starts_with("--to-command") || word.text.starts_with("--checkpoint-action"))
    {
        findings.high("runs code that starts programs or hides other code");
    }
    if command.variables.iter().any(|name| {
        name.starts_with("LD_") || name == "BASH_ENV" || name == "PROMPT_COMMAND" || name == "GIT_SSH_COMMAND"
    }) {
        findings.high("changes what programs load");
    }
}

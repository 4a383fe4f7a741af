//! Programs that run other programs: the command inside is found, or the line is [`Unclear`].

use super::{
    CommandRole, ShellWord, Unclear, base_name,
    reader::{CommandContext, CommandInput, CommandReader},
};

/// Program whose arguments end with a command.
struct WrapperProgram {
    name: &'static str,
    role: CommandRole,
    /// Short options with a value.
    valued: &'static str,
    /// Short options without a value.
    flags: &'static str,
    /// Long options with a value in the next word.
    long_valued: &'static [&'static str],
    /// Arguments before the command.
    leading: usize,
}

const fn plain(name: &'static str, valued: &'static str, flags: &'static str, leading: usize) -> WrapperProgram {
    WrapperProgram { name, role: CommandRole::Wrapper, valued, flags, long_valued: &[], leading }
}

const fn powerful(name: &'static str, valued: &'static str, flags: &'static str, leading: usize) -> WrapperProgram {
    WrapperProgram { name, role: CommandRole::PowerfulWrapper, valued, flags, long_valued: &[], leading }
}

/// Wrappers. `env`, `xargs`, `find` and shells are read by functions of their own.
const WRAPPERS: [WrapperProgram; 24] = [
    plain("builtin", "", "", 0),
    plain("busybox", "", "", 0),
    plain("chronic", "", "ev", 0),
    plain("exec", "a", "cl", 0),
    plain("ionice", "cnpPu", "t", 0),
    WrapperProgram { long_valued: &["adjustment"], ..plain("nice", "n", "", 0) },
    plain("nohup", "", "", 0),
    plain("setsid", "", "cfw", 0),
    WrapperProgram { long_valued: &["input", "output", "error"], ..plain("stdbuf", "ioe", "", 0) },
    WrapperProgram { long_valued: &["format", "output"], ..plain("time", "fo", "apv", 0) },
    WrapperProgram { long_valued: &["signal", "kill-after"], ..plain("timeout", "sk", "vfp", 1) },
    plain("unbuffer", "", "p", 0),
    plain("command", "", "p", 0),
    powerful("chroot", "", "", 1),
    powerful("chrt", "TPD", "bfiomrR", 1),
    powerful("doas", "uC", "nsL", 0),
    powerful("fakeroot", "lsifb", "u", 0),
    powerful("pkexec", "", "", 0),
    powerful("setarch", "", "BFILRSTXZ3v", 1),
    powerful("strace", "abeEIoOpPsSuUX", "cCdDfFhiknqrtTvVwxyYzZ", 0),
    WrapperProgram {
        long_valued: &[
            "user",
            "group",
            "chdir",
            "host",
            "prompt",
            "role",
            "type",
            "close-from",
            "chroot",
            "other-user",
        ],
        ..powerful("sudo", "ugCDhpRrtTU", "AbBEeHiKklnPSsvV", 0)
    },
    powerful("taskset", "", "acp", 1),
    powerful("unshare", "GRSsw", "CTUcfimnpru", 0),
    powerful("watch", "nq", "bcdegptwx", 0),
];

/// Long options of wrappers without a value.
const LONG_FLAGS: [&str; 11] = [
    "append",
    "background",
    "ctty",
    "foreground",
    "fork",
    "login",
    "non-interactive",
    "portability",
    "preserve-env",
    "preserve-status",
    "wait",
];

/// Words of the syntax. As the name of a command, each means that parser and shell disagree.
const RESERVED_WORDS: [&str; 20] = [
    "!", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "until", "while", "{",
];

/// Shells whose scripts are read.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "rbash"];

/// Shells of another syntax.
const OTHER_SHELLS: [&str; 8] = ["zsh", "fish", "csh", "tcsh", "nu", "pwsh", "xonsh", "elvish"];

/// Adds a command, and the commands inside it.
pub(super) fn command(
    reader: &mut CommandReader,
    words: Vec<ShellWord>,
    context: CommandContext,
) -> Result<(), Unclear> {
    let mut words = words;
    let mut context = context;
    // Each round removes at least one word.
    loop {
        let Some(name) = words.first() else { return Ok(()) };
        let Some(name) = name.value() else {
            return Err(Unclear(format!("only the run decides which command `{}` is", shorten(&name.text))));
        };
        if RESERVED_WORDS.contains(&name) {
            return Err(Unclear(format!("`{name}` is no command, but a word of the shell's syntax")));
        }
        if !name.is_ascii() {
            return Err(Unclear("the name of a command has letters beyond ASCII".to_owned()));
        }
        let inner = match base_name(name) {
            "env" => Inner { role: CommandRole::Wrapper, words: env(&words, &mut context)? },
            "xargs" | "parallel" => Inner { role: CommandRole::Wrapper, words: xargs(&words)? },
            // Looks a command up.
            "command" if words.get(1).is_some_and(|word| matches!(word.value(), Some("-v" | "-V" | "-pv" | "-pV"))) => {
                return reader.add(words, CommandRole::Plain, &context);
            }
            name => match WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
                Some(wrapper) => Inner { role: wrapper.role, words: inner_words(wrapper, &words)? },
                None => return plain_command(reader, words, &context),
            },
        };
        if inner.words.is_empty() {
            return reader.add(words, CommandRole::Plain, &context);
        }
        let is_watch = base_name(&words[0].text) == "watch";
        reader.add(words, inner.role, &context)?;
        if is_watch {
            return joined_script(reader, &inner.words, "watch", &context);
        }
        words = inner.words;
    }
}

/// Command inside the arguments of another.
struct Inner {
    role: CommandRole,
    words: Vec<ShellWord>,
}

/// Adds a command that is no wrapper, and the scripts in its arguments.
fn plain_command(reader: &mut CommandReader, words: Vec<ShellWord>, context: &CommandContext) -> Result<(), Unclear> {
    let name = base_name(&words[0].text).to_owned();
    match name.as_str() {
        "cd" | "pushd" => {
            let target = words[1..].iter().find(|word| !word.text.starts_with('-') || word.text == "-");
            reader.change_dir(target.and_then(ShellWord::value));
        }
        "popd" => reader.change_dir(None),
        "unset" | "test" | "[" => no_code(&words)?,
        "let" | "read" | "mapfile" | "readarray" | "getopts" => sets_variables(reader, &words)?,
        "printf" if words.get(1).is_some_and(|word| word.text.starts_with("-v")) => {
            // The words behind the name are data.
            sets_variables(reader, &words[..words.len().min(3)])?;
        }
        "alias" | "enable" | "shopt" if words.len() > 1 => {
            return Err(Unclear(format!("`{name}` changes the meaning of later commands")));
        }
        "export" | "declare" | "typeset" | "local" | "readonly" => {
            let names = words[1..].iter().map(|word| word.text.split('=').next().unwrap_or_default().to_owned());
            reader.keep_variables(&names.collect::<Vec<_>>());
        }
        "eval" => {
            reader.add(words.clone(), CommandRole::Wrapper, context)?;
            return joined_script(reader, &words[1..], "eval", context);
        }
        "source" | "." if words.get(1).is_some_and(|word| !word.is_fixed || is_input_device(&word.text)) => {
            return Err(Unclear(format!("`{name}` runs a text that only the run decides")));
        }
        "trap" => {
            let action = words[1..].iter().find(|word| !word.text.starts_with('-'));
            reader.add(words.clone(), CommandRole::Plain, context)?;
            return match action.map(ShellWord::value) {
                Some(Some(script)) => reader.script(script, context.depth + 1),
                Some(None) => Err(Unclear("`trap` sets a text that only the run decides".to_owned())),
                None => Ok(()),
            };
        }
        "find" => {
            reader.add(words.clone(), CommandRole::Plain, context)?;
            return find(&words).into_iter().try_for_each(|inner| command(reader, inner, context.clone()));
        }
        "su" | "runuser" | "script" | "flock" => {
            reader.add(words.clone(), CommandRole::PowerfulWrapper, context)?;
            return match script_option(&words) {
                Some(Some(script)) => reader.script(&script, context.depth + 1),
                Some(None) => Err(Unclear(format!("`{name}` runs a text that only the run decides"))),
                None if name == "flock" || name == "runuser" => Err(Unclear(format!("`{name}` runs another command"))),
                None => Ok(()),
            };
        }
        shell if SHELLS.contains(&shell) => return self::shell(reader, words, context),
        shell if OTHER_SHELLS.contains(&shell) => {
            return Err(Unclear(format!("`{shell}` has a syntax of its own")));
        }
        _ => {}
    }
    reader.add(words, CommandRole::Plain, context)
}

/// Reads the script that the words make, as `eval` does.
fn joined_script(
    reader: &mut CommandReader,
    words: &[ShellWord],
    name: &str,
    context: &CommandContext,
) -> Result<(), Unclear> {
    let script: Option<Vec<&str>> = words.iter().map(ShellWord::value).collect();
    let script = script.ok_or_else(|| Unclear(format!("`{name}` runs a text that only the run decides")))?;
    reader.script(&script.join(" "), context.depth + 1)
}

/// Returns true for paths of open descriptors, through which a script comes in.
fn is_input_device(path: &str) -> bool {
    ["/dev/stdin", "/dev/fd/", "/proc/self/fd/"].iter().any(|device| path.starts_with(device))
}

/// Adds a shell with its script.
fn shell(reader: &mut CommandReader, words: Vec<ShellWord>, context: &CommandContext) -> Result<(), Unclear> {
    let name = base_name(&words[0].text).to_owned();
    let unclear = |what: &str| Err(Unclear(format!("`{name}` {what}")));
    let mut takes_script = false;
    let mut reads_input = false;
    let mut rest = words[1..].iter();
    let operand = loop {
        let Some(word) = rest.next() else { break None };
        let Some(text) = word.value() else { break Some(word) };
        match text {
            "--" | "-" => break rest.next(),
            "-o" | "+o" | "-O" | "+O" | "--rcfile" | "--init-file" => {
                rest.next();
            }
            long if long.starts_with("--") => {}
            cluster if cluster.starts_with(['-', '+']) => {
                let options = &cluster[1..];
                takes_script |= options.contains('c');
                reads_input |= options.contains('s');
                if options.ends_with(['o', 'O']) {
                    rest.next();
                }
            }
            _ => break Some(word),
        }
    };
    match operand {
        Some(word) if takes_script => {
            let Some(script) = word.value().map(str::to_owned) else {
                return unclear("runs a text that only the run decides");
            };
            reader.add(words, CommandRole::Wrapper, context)?;
            reader.script(&script, context.depth + 1)
        }
        None if takes_script => unclear("has no script"),
        Some(word) if !reads_input && (!word.is_fixed || is_input_device(&word.text)) => {
            unclear("runs a text that only the run decides")
        }
        Some(_) if !reads_input => reader.add(words, CommandRole::Plain, context),
        Some(_) | None => match context.input.clone() {
            CommandInput::Text(Some(script)) => {
                reader.add(words, CommandRole::Wrapper, context)?;
                reader.script(&script, context.depth + 1)
            }
            CommandInput::Text(None) => unclear("runs a text that only the run decides"),
            CommandInput::Pipe => unclear("runs what a pipe brings"),
            CommandInput::Other => reader.add(words, CommandRole::Plain, context),
        },
    }
}

/// Returns the command inside the arguments of `env`, and adds its variables to the context.
fn env(words: &[ShellWord], context: &mut CommandContext) -> Result<Vec<ShellWord>, Unclear> {
    let mut names = context.variables.to_vec();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if !word.is_fixed {
            return Err(Unclear("only the run decides which command `env` runs".to_owned()));
        }
        match word.value() {
            Some("-i" | "-0" | "-v" | "-" | "--ignore-environment" | "--null" | "--debug") => at += 1,
            Some("-u" | "-C" | "--unset" | "--chdir") => at += 2,
            Some("--") => {
                at += 1;
                break;
            }
            Some(text) if text.starts_with("--unset=") => at += 1,
            // `-S` splits a text into words by rules of its own.
            Some(text) if text.starts_with('-') => return Err(unknown_option("env", text)),
            _ => match word.text.split_once('=') {
                Some((name, _)) => {
                    names.push(name.to_owned());
                    at += 1;
                }
                None => break,
            },
        }
    }
    context.variables = names.into();
    Ok(words.get(at..).unwrap_or_default().to_vec())
}

/// Returns the command inside the arguments of `xargs`, with words that its input decides.
fn xargs(words: &[ShellWord]) -> Result<Vec<ShellWord>, Unclear> {
    let name = base_name(&words[0].text);
    if name == "parallel" {
        return Err(Unclear("`parallel` runs what its input brings".to_owned()));
    }
    let mut replaced = None;
    let mut at = 1;
    while let Some(text) = words.get(at).and_then(ShellWord::value).filter(|text| text.starts_with('-')) {
        match text {
            "--" => {
                at += 1;
                break;
            }
            "--replace" => {
                replaced = Some("{}".to_owned());
                at += 1;
            }
            "-I" => {
                replaced = words.get(at + 1).map(|word| word.text.clone());
                at += 2;
            }
            "-a" | "-d" | "-E" | "-L" | "-n" | "-P" | "-s" | "--arg-file" | "--delimiter" | "--max-args"
            | "--max-procs" | "--max-chars" => at += 2,
            // Its value follows `=` only.
            "--max-lines" => at += 1,
            short if short.starts_with("-I") => {
                replaced = Some(short[2..].to_owned());
                at += 1;
            }
            long if long.starts_with("--replace=") => {
                replaced = Some(long["--replace=".len()..].to_owned());
                at += 1;
            }
            long if long.starts_with("--") && long.contains('=') => at += 1,
            "-0" | "-r" | "-t" | "-p" | "-x" | "-0r" | "-r0" | "--null" | "--no-run-if-empty" | "--verbose" => at += 1,
            short if is_number(short, &["-L", "-n", "-P", "-s"]) => at += 1,
            short if short.starts_with("-d") => at += 1,
            other => return Err(unknown_option("xargs", other)),
        }
    }
    let mut inner = words.get(at..).unwrap_or_default().to_vec();
    if inner.is_empty() {
        return Ok(inner);
    }
    match replaced {
        Some(mark) => {
            for word in inner.iter_mut().filter(|word| word.text.contains(&mark)) {
                word.is_fixed = false;
            }
        }
        None => inner.push(ShellWord::open("…")),
    }
    Ok(inner)
}

fn is_number(text: &str, options: &[&str]) -> bool {
    let digits = options.iter().find_map(|option| text.strip_prefix(option));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the commands of `find -exec` and its relatives.
fn find(words: &[ShellWord]) -> Vec<Vec<ShellWord>> {
    let is_start = |word: &ShellWord| matches!(word.value(), Some("-exec" | "-execdir" | "-ok" | "-okdir"));
    let mut found = Vec::new();
    let mut rest = words;
    while let Some(start) = rest.iter().position(is_start) {
        rest = &rest[start + 1..];
        let end = rest.iter().position(|word| matches!(word.value(), Some(";" | "+"))).unwrap_or(rest.len());
        let mut inner = rest[..end].to_vec();
        for word in inner.iter_mut().filter(|word| word.text.contains("{}")) {
            word.is_fixed = false;
        }
        found.push(inner);
        rest = &rest[end..];
    }
    found
}

/// Returns the script of an option `-c`. The inner value is `None` if only the run decides.
fn script_option(words: &[ShellWord]) -> Option<Option<String>> {
    let at = words.iter().position(|word| {
        word.value().is_some_and(|text| {
            text == "--command" || (text.starts_with('-') && !text.starts_with("--") && text.ends_with('c'))
        })
    });
    let joined = words.iter().find_map(|word| word.value()?.strip_prefix("--command=").map(str::to_owned));
    match (joined, at) {
        (Some(script), _) => Some(Some(script)),
        (None, Some(at)) => Some(words.get(at + 1).and_then(ShellWord::value).map(str::to_owned)),
        (None, None) => None,
    }
}

/// Returns the words after a wrapper's own options and arguments.
fn inner_words(wrapper: &WrapperProgram, words: &[ShellWord]) -> Result<Vec<ShellWord>, Unclear> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(text) = word.value() else { break };
        if text == "--" {
            at += 1;
            break;
        }
        if let Some(long) = text.strip_prefix("--") {
            at += match long {
                long if long.contains('=') || LONG_FLAGS.contains(&long) => 1,
                long if wrapper.long_valued.contains(&long) => 2,
                _ => return Err(unknown_option(wrapper.name, text)),
            };
            continue;
        }
        let Some(options) = text.strip_prefix('-').filter(|options| !options.is_empty()) else {
            // `sudo NAME=value command`.
            let is_assignment = wrapper.name == "sudo" && text.contains('=');
            if is_assignment {
                at += 1;
                continue;
            }
            break;
        };
        at += option_words(wrapper, options).ok_or_else(|| unknown_option(wrapper.name, text))?;
    }
    at += wrapper.leading;
    Ok(words.get(at..).unwrap_or_default().to_vec())
}

/// Returns the number of words that a cluster of short options takes. `None` for an unknown option.
fn option_words(wrapper: &WrapperProgram, options: &str) -> Option<usize> {
    if wrapper.name == "nice" && options.bytes().all(|b| b.is_ascii_digit()) {
        return Some(1);
    }
    for (at, option) in options.char_indices() {
        if wrapper.valued.contains(option) {
            let is_joined = at + option.len_utf8() < options.len();
            return Some(if is_joined { 1 } else { 2 });
        }
        if !wrapper.flags.contains(option) {
            return None;
        }
    }
    Some(1)
}

/// Fails if a builtin evaluates a fixed text that contains a command.
fn no_code(words: &[ShellWord]) -> Result<(), Unclear> {
    match words.iter().any(|word| word.is_fixed && (word.text.contains("$(") || word.text.contains('`'))) {
        true => Err(Unclear("a builtin evaluates a text with a command".to_owned())),
        false => Ok(()),
    }
}

/// Records the variables that a builtin sets.
fn sets_variables(reader: &mut CommandReader, words: &[ShellWord]) -> Result<(), Unclear> {
    no_code(words)?;
    if words.iter().any(|word| !word.is_fixed) {
        return Err(Unclear(format!("only the run decides which variable `{}` sets", words[0].text)));
    }
    let names = words[1..].iter().map(|word| word.text.strip_prefix("-v").unwrap_or(&word.text).to_owned());
    reader.keep_variables(&names.collect::<Vec<_>>());
    Ok(())
}

fn unknown_option(program: &str, option: &str) -> Unclear {
    Unclear(format!("the option `{}` of `{program}` hides which command runs", shorten(option)))
}

fn shorten(text: &str) -> String {
    text.chars().take(40).filter(|c| !c.is_control()).collect()
}

//! The state directory of one sandbox: who keeps it, how it ended, what it wrote. All that a server needs to find again
//! what a dead server has started.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `lock` | keeper | held while the keeper lives, so there is never a second one |
//! | `running.json` | keeper | which processes these are |
//! | `exit.json` | keeper | how it ended |
//! | `log`, `log.1` | keeper | stdout and stderr |
//! | `frozen.json` | server | some may be stopped, and what to leave so on thaw; only where there is no cgroup |

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{cgroup::Cgroup, processes::Identity};

pub const LOCK: &str = "lock";
pub const RUNNING: &str = "running.json";
pub const EXIT: &str = "exit.json";
pub const FROZEN: &str = "frozen.json";
pub const LOG: &str = "log";
pub const OLDER_LOG: &str = "log.1";

/// Who runs, written once the agent does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Process ids mean nothing after a reboot.
    pub boot: String,
    pub keeper: Identity,
    /// The first process of the sandbox: with it, all of them end.
    pub init: Identity,
    pub cgroup: Option<Cgroup>,
}

/// How it ended, as the keeper saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code, 128 + n for signal n; `None` where nobody can tell any more.
    pub code: Option<i64>,
    pub out_of_memory: bool,
    /// The last lines of what it wrote to stderr, at most 4 KiB.
    pub stderr_tail: String,
}

/// Writes a file whole or not at all.
pub fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let unfinished = dir.join(format!("{name}.new"));
    fs::write(&unfinished, serde_json::to_vec(value)?)?;
    fs::rename(unfinished, dir.join(name))
}

pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The end of `text`, at most `bytes` long, cut between characters.
pub fn last_chars(text: &str, bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_cut_between_characters() {
        for (text, bytes, expected) in
            [("abc", 2, "bc"), ("abc", 9, "abc"), ("aéb", 2, "b"), ("aéb", 3, "éb"), ("é", 0, "")]
        {
            assert_eq!(last_chars(text, bytes), expected, "{text} {bytes}");
        }
    }
}

//! The state directory of one sandbox: who keeps it, how it ended, what it wrote. All that a server needs to find again
//! what a dead server has started.
//!
//! | file | written by | says |
//! |---|---|---|
//! | `lock` | keeper | held while the keeper lives, so there is never a second one |
//! | `running.json` | keeper | which processes these are |
//! | `exit.json` | keeper | how it ended; until then `exit.json.new` keeps room for it |
//! | `log`, `log.1` | keeper | stdout and stderr |
//! | `frozen.json` | server | some may be stopped, and what to leave so on thaw; only where there is no cgroup |

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{cgroup::Cgroup, processes::ProcessIdentity};

pub const LOCK: &str = "lock";
pub const RUNNING: &str = "running.json";
pub const EXIT: &str = "exit.json";
pub const FROZEN: &str = "frozen.json";
pub const LOG: &str = "log";
pub const OLDER_LOG: &str = "log.1";

/// How much of stderr is told with the exit, bytes.
pub const STDERR_TAIL: usize = 4096;
/// An [`Ended`] is no longer, bytes: in JSON a byte of stderr takes up to six.
const MAX_EXIT_BYTES: usize = 6 * STDERR_TAIL + 256;

/// Who runs, written once the agent does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningSandbox {
    /// Process ids mean nothing after a reboot.
    pub boot: String,
    #[serde(rename = "keeper")]
    pub jailer: ProcessIdentity,
    /// The first process of the sandbox: with it, all of them end.
    pub init: ProcessIdentity,
    pub cgroup: Option<Cgroup>,
}

/// How it ended, as the keeper saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailExit {
    /// The exit code, 128 + n for signal n; `None` where nobody can tell any more.
    pub code: Option<i64>,
    pub out_of_memory: bool,
    /// The last lines of what it wrote to stderr, at most [`STDERR_TAIL`].
    pub stderr_tail: String,
}

/// Writes a file whole or not at all. What lies under its unfinished name is written over, and so is its room on the disk.
pub fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let (unfinished, text) = (dir.join(unfinished(name)), serde_json::to_vec(value)?);
    let mut file = File::options().create(true).truncate(false).write(true).open(&unfinished)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    fs::rename(unfinished, dir.join(name))
}

/// The name of a file until it is whole.
pub fn unfinished(name: &str) -> PathBuf {
    PathBuf::from(format!("{name}.new"))
}

/// Takes the room that an [`Ended`] will need: a disk that is full by then does not hide how a sandbox ended.
pub fn reserve_exit_space(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(unfinished(EXIT)), [0; MAX_EXIT_BYTES])
}

/// Empty where the kernel has none to tell. One that could not be read is an error: it is not another boot.
pub fn kernel_boot_id() -> io::Result<String> {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        id => Ok(id?.trim().to_owned()),
    }
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
    use rustix::{
        mount::{MountFlags, MountPropagationFlags, mount, mount_change},
        thread::UnshareFlags,
    };

    use super::*;

    /// As long as one can be.
    fn longest_exit() -> JailExit {
        JailExit { code: Some(i64::MIN), out_of_memory: false, stderr_tail: "\0".repeat(STDERR_TAIL) }
    }

    /// In a mount namespace of this thread, so that nobody has to clear it away. False where only root may do so.
    fn on_a_small_disk(test: impl FnOnce(&Path) + Send + 'static) -> bool {
        let dir = std::env::temp_dir().join(format!("greenroom-jailer-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("it is made");
        let tested = std::thread::spawn({
            let dir = dir.clone();
            move || {
                // SAFETY: the thread holds no descriptor that a view of its own could surprise.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
                mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
                mount("small", &dir, "tmpfs", MountFlags::empty(), Some(c"size=64k")).ok()?;
                test(&dir);
                Some(())
            }
        });
        let tested = tested.join().expect("the test passes");
        fs::remove_dir(dir).expect("nothing is in it");
        tested.is_some()
    }

    #[test]
    fn an_end_is_told_on_a_full_disk() {
        let tested = on_a_small_disk(|dir| {
            reserve_exit_space(dir).expect("there is room");
            let mut filler = File::create(dir.join("filler")).expect("there is room");
            while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
            fs::write(dir.join("more"), "more").expect_err("the disk is full");
            write_json(dir, EXIT, &longest_exit()).expect("there is room for it");
            let told = fs::read(dir.join(EXIT)).expect("it is there");
            assert_eq!(serde_json::from_slice::<JailExit>(&told).expect("nothing else is in it"), longest_exit());
            assert!(!dir.join(unfinished(EXIT)).exists());
        });
        if !tested {
            eprintln!("only root can make a small disk");
        }
    }

    #[test]
    fn the_longest_end_has_room() {
        assert!(serde_json::to_vec(&longest_exit()).expect("it is JSON").len() <= MAX_EXIT_BYTES);
    }

    #[test]
    fn a_tail_is_cut_between_characters() {
        for (text, bytes, expected) in
            [("abc", 2, "bc"), ("abc", 9, "abc"), ("aéb", 2, "b"), ("aéb", 3, "éb"), ("é", 0, "")]
        {
            assert_eq!(last_chars(text, bytes), expected, "{text} {bytes}");
        }
    }
}

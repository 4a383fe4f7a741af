//! Sandbox dir: the state directory of one sandbox, from which a server finds the jail that an
//! earlier server started.
//!
//! | file | written by | contents |
//! |---|---|---|
//! | `lock` | jailer | locked while the jailer lives, so that there is only one |
//! | `running.json` | jailer | the running processes |
//! | `exit.json` | jailer | the exit; until then `exit.json.new` reserves space |
//! | `log`, `log.1` | jailer | stdout and stderr |
//! | `frozen.json` | server | pause record: some processes may be stopped |
//!
//! The pause record also lists the processes that an unpause leaves stopped. It exists only without
//! a control group.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{cgroup::Cgroup, processes::ProcessIdentity};

/// Lock file of the jailer.
pub const LOCK: &str = "lock";
/// File with the [`RunningSandbox`].
pub const RUNNING: &str = "running.json";
/// File with the [`JailExit`].
pub const EXIT: &str = "exit.json";
/// File with the pause record.
pub const FROZEN: &str = "frozen.json";
/// Newer log file.
pub const LOG: &str = "log";
/// Older log file.
pub const OLDER_LOG: &str = "log.1";

/// Longest part of stderr in the exit, in bytes.
pub const STDERR_TAIL: usize = 4096;
/// Longest [`JailExit`], in bytes of JSON: a byte of stderr takes up to six.
const MAX_EXIT_BYTES: usize = 6 * STDERR_TAIL + 256;

/// Running processes, recorded once the agent runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningSandbox {
    /// Kernel boot id. Process ids mean nothing after a reboot.
    pub boot: String,
    #[serde(rename = "keeper")]
    pub jailer: ProcessIdentity,
    /// First process of the sandbox. When it ends, all others end.
    pub init: ProcessIdentity,
    pub cgroup: Option<Cgroup>,
}

/// Exit of a sandbox, as the jailer saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JailExit {
    /// Exit code, or 128 + n for signal n. `None` if unknown.
    pub code: Option<i64>,
    pub out_of_memory: bool,
    /// Last part of stderr, at most [`STDERR_TAIL`] bytes.
    pub stderr_tail: String,
}

/// Writes a file completely or not at all.
///
/// Overwrites a leftover unfinished file in place, and so uses its reserved space.
pub fn write_json<T: Serialize>(dir: &Path, name: &str, value: &T) -> io::Result<()> {
    let (unfinished, text) = (dir.join(unfinished(name)), serde_json::to_vec(value)?);
    let mut file = File::options().create(true).truncate(false).write(true).open(&unfinished)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    fs::rename(unfinished, dir.join(name))
}

/// Name of a file until it is complete.
pub fn unfinished(name: &str) -> PathBuf {
    PathBuf::from(format!("{name}.new"))
}

/// Reserves the space of a [`JailExit`], so that a full disk does not hide how a sandbox ended.
pub fn reserve_exit_space(dir: &Path) -> io::Result<()> {
    fs::write(dir.join(unfinished(EXIT)), [0; MAX_EXIT_BYTES])
}

/// Reads the kernel's boot id. Empty if the kernel has none.
///
/// # Errors
/// Returns an error if the id exists but is unreadable: an unreadable id is not another boot.
pub fn kernel_boot_id() -> io::Result<String> {
    match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        id => Ok(id?.trim().to_owned()),
    }
}

/// Returns the end of `text`, at most `bytes` long, cut between characters.
pub fn last_chars(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use rustix::{
        mount::{MountFlags, MountPropagationFlags, mount, mount_change},
        thread::UnshareFlags,
    };

    use super::*;

    #[test]
    fn record_of_an_earlier_version_is_read() {
        let text = r#"{"boot":"b","keeper":{"pid":7,"started":9},"init":{"pid":8,"started":10},"cgroup":null}"#;
        let running: RunningSandbox = serde_json::from_str(text).expect("an earlier version wrote this text");
        assert_eq!((running.jailer.pid, running.init.started), (7, 10));
        assert_eq!(serde_json::to_string(&running).expect("a record is JSON"), text);
    }

    /// Longest possible exit.
    fn longest_exit() -> JailExit {
        JailExit { code: Some(i64::MIN), out_of_memory: false, stderr_tail: "\0".repeat(STDERR_TAIL) }
    }

    /// Runs the test on a small file system in a mount namespace of its thread, which needs no
    /// cleanup. Returns false without root.
    fn on_a_small_disk(test: impl FnOnce(&Path) + Send + 'static) -> bool {
        let dir = std::env::temp_dir().join(format!("greenroom-jailer-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        let tested = std::thread::spawn({
            let dir = dir.clone();
            move || {
                // SAFETY: the thread holds no descriptor that a new mount namespace affects.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
                mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
                mount("small", &dir, "tmpfs", MountFlags::empty(), Some(c"size=64k")).ok()?;
                test(&dir);
                Some(())
            }
        });
        let tested = tested.join().expect("the test passes");
        fs::remove_dir(dir).expect("the directory is empty");
        tested.is_some()
    }

    #[test]
    fn exit_is_recorded_on_a_full_disk() {
        let tested = on_a_small_disk(|dir| {
            reserve_exit_space(dir).expect("the disk has space");
            let mut filler = File::create(dir.join("filler")).expect("the disk has space");
            while filler.write(&[0; 4096]).is_ok_and(|written| written > 0) {}
            fs::write(dir.join("more"), "more").expect_err("the disk is full");
            write_json(dir, EXIT, &longest_exit()).expect("the space is reserved");
            let exit = fs::read(dir.join(EXIT)).expect("the exit was written");
            assert_eq!(serde_json::from_slice::<JailExit>(&exit).expect("the file holds one exit"), longest_exit());
            assert!(!dir.join(unfinished(EXIT)).exists());
        });
        if !tested {
            eprintln!("skipped: only root can mount a small file system");
        }
    }

    #[test]
    fn longest_exit_fits_into_the_reserved_space() {
        assert!(serde_json::to_vec(&longest_exit()).expect("an exit always serializes").len() <= MAX_EXIT_BYTES);
    }

    #[test]
    fn tail_is_cut_between_characters() {
        for (text, bytes, expected) in
            [("abc", 2, "bc"), ("abc", 9, "abc"), ("aéb", 2, "b"), ("aéb", 3, "éb"), ("é", 0, "")]
        {
            assert_eq!(last_chars(text, bytes), expected, "{text} {bytes}");
        }
    }
}

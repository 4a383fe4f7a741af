//! State directory of one sandbox, as a server reads it. The files are described in
//! [`greenroom_jailer::sandbox_dir`].
//!
//! A missing file is a fact: no sandbox runs, or none is paused. An unreadable file leaves the
//! state unknown and is an error. If a sandbox counted as dead because descriptors had run out, a
//! second one would be started beside it.

use std::{
    fs,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    os::{fd::OwnedFd, unix::fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use greenroom_jailer::{
    processes::ProcessIdentity,
    sandbox_dir::{
        EXIT, FROZEN, JailExit, LOG, OLDER_LOG, RUNNING, RunningSandbox, kernel_boot_id, last_chars, write_json,
    },
};
use serde::de::DeserializeOwned;

use crate::{
    sandbox::{SandboxExit, change_owner},
    store::SessionId,
};

impl From<JailExit> for SandboxExit {
    fn from(ended: JailExit) -> SandboxExit {
        SandboxExit { code: ended.code, out_of_memory: ended.out_of_memory, stderr_tail: ended.stderr_tail }
    }
}

/// State directory of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct SandboxDir {
    dir: PathBuf,
}

impl SandboxDir {
    pub(super) fn of(state: &Path, session: SessionId) -> SandboxDir {
        SandboxDir { dir: state.join(session.to_string()) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn exists(&self) -> io::Result<bool> {
        self.dir.try_exists()
    }

    /// Creates the directory. The owner is the sandbox's user, as whom the jailer writes. The
    /// parent directory has another owner.
    pub(super) fn make(&self, uid: u32, gid: u32) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        change_owner(&self.dir, uid, gid)
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns the running sandbox. Ignores the record of a jailer that is dead or from an earlier
    /// boot.
    pub(super) fn running(&self) -> io::Result<Option<RunningSandbox>> {
        let Some(running) = self.last_run()? else { return Ok(None) };
        let still_runs = running.boot == kernel_boot_id()? && running.jailer.is_alive()?;
        Ok(still_runs.then_some(running))
    }

    /// Returns the running sandbox with a descriptor of its jailer.
    pub(super) fn running_jailer(&self) -> io::Result<Option<(RunningSandbox, OwnedFd)>> {
        let Some(running) = self.running()? else { return Ok(None) };
        Ok(running.jailer.open()?.map(|jailer| (running, jailer)))
    }

    /// Returns the record of the last run, even if that run is over.
    pub(super) fn last_run(&self) -> io::Result<Option<RunningSandbox>> {
        self.read(RUNNING)
    }

    /// Returns the exit record. Empty if the jailer left none.
    pub(super) fn exit_record(&self) -> io::Result<JailExit> {
        Ok(self.read(EXIT)?.unwrap_or_default())
    }

    /// Returns the processes that were stopped before the pause by signals. `None` if the sandbox
    /// is not paused.
    pub(super) fn pause_record(&self) -> io::Result<Option<Vec<ProcessIdentity>>> {
        self.read(FROZEN)
    }

    pub(super) fn write_pause_record(&self, already_stopped: &[ProcessIdentity]) -> io::Result<()> {
        write_json(&self.dir, FROZEN, &already_stopped)
    }

    pub(super) fn remove_pause_record(&self) -> io::Result<()> {
        match fs::remove_file(self.dir.join(FROZEN)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns the newest `bytes` of stdout and stderr, from both log files.
    pub(super) fn log(&self, bytes: usize) -> io::Result<String> {
        let mut newest = tail(&self.dir.join(LOG), bytes)?;
        if newest.len() < bytes {
            let mut older = tail(&self.dir.join(OLDER_LOG), bytes - newest.len())?;
            older.append(&mut newest);
            newest = older;
        }
        Ok(last_chars(&String::from_utf8_lossy(&newest), bytes).to_owned())
    }

    /// Reads a JSON file. `None` if the file is missing, or if another version wrote it in an
    /// unknown form.
    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(io::Error::new(e.kind(), format!("`{}`: {e}", path.display()))),
        }
    }
}

fn tail(path: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    let mut file = match fs::File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes as u64)))?;
    let mut newest = Vec::new();
    file.take(bytes as u64).read_to_end(&mut newest)?;
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_process_id_and_other_boot_are_not_alive() {
        let state = tempfile::tempdir().expect("temporary directory is created");
        let sandbox_dir = SandboxDir::of(state.path(), SessionId::generate());
        sandbox_dir.make(0, 0).expect("directory is created");
        let boot = kernel_boot_id().expect("state is readable");
        let this_process =
            ProcessIdentity::of(std::process::id() as i32).expect("state is readable").expect("test process is alive");
        let running =
            |boot: String, jailer: ProcessIdentity| RunningSandbox { boot, jailer, init: this_process, cgroup: None };
        let another = ProcessIdentity { started: this_process.started + 1, ..this_process };
        for (case, alive) in [
            (running(boot.clone(), this_process), true),
            (running(boot, another), false),
            (running("another boot".into(), this_process), false),
        ] {
            write_json(sandbox_dir.dir(), RUNNING, &case).expect("file is written");
            assert_eq!(sandbox_dir.running().expect("state is readable").is_some(), alive, "{case:?}");
        }
    }

    #[test]
    fn missing_files_are_facts_and_unreadable_files_are_errors() {
        let state = tempfile::tempdir().expect("temporary directory is created");
        let sandbox_dir = SandboxDir::of(state.path(), SessionId::generate());
        assert!(sandbox_dir.running().expect("missing file is no error").is_none());
        assert!(sandbox_dir.pause_record().expect("missing file is no error").is_none());
        assert_eq!(sandbox_dir.exit_record().expect("missing file is no error"), JailExit::default());
        sandbox_dir.make(0, 0).expect("directory is created");
        for name in [RUNNING, EXIT, FROZEN] {
            fs::write(sandbox_dir.dir().join(name), "another version's").expect("file is written");
        }
        assert!(sandbox_dir.running().expect("state is readable").is_none());
        assert!(sandbox_dir.pause_record().expect("state is readable").is_none());
        assert_eq!(sandbox_dir.exit_record().expect("state is readable"), JailExit::default());
        for name in [RUNNING, EXIT, FROZEN] {
            fs::remove_file(sandbox_dir.dir().join(name)).expect("file exists");
            // A directory in place of the file is unreadable even for root.
            fs::create_dir(sandbox_dir.dir().join(name)).expect("directory is created");
        }
        sandbox_dir.running().expect_err("state is unreadable");
        sandbox_dir.running_jailer().expect_err("state is unreadable");
        sandbox_dir.pause_record().expect_err("pause record is unreadable");
        let error = sandbox_dir.exit_record().expect_err("exit record is unreadable").to_string();
        assert!(error.contains(EXIT), "{error}");
    }
}

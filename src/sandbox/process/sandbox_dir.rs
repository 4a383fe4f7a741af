//! The state directory of one sandbox, as a server reads it; the files are described in [`greenroom_jailer::place`].
//!
//! A file that is not there says something: nobody runs, or nothing was frozen. One that cannot be read says nothing, and that
//! is an error: who was taken for dead because descriptors had run out would get another one beside it.

use std::{
    fs,
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, chown},
    },
    path::{Path, PathBuf},
};

use greenroom_jailer::{
    processes::ProcessIdentity,
    sandbox_dir::{
        EXIT, FROZEN, JailExit, LOG, OLDER_LOG, RUNNING, RunningSandbox, kernel_boot_id, last_chars, write_json,
    },
};
use serde::de::DeserializeOwned;

use crate::{sandbox::SandboxExit, store::SessionId};

impl From<JailExit> for SandboxExit {
    fn from(ended: JailExit) -> SandboxExit {
        SandboxExit { code: ended.code, out_of_memory: ended.out_of_memory, stderr_tail: ended.stderr_tail }
    }
}

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

    /// Makes the directory. It belongs to the sandbox's user, as whom the keeper writes in it; what lies above it does not.
    pub(super) fn make(&self, uid: u32, gid: u32) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        match rustix::process::geteuid().is_root() {
            true => chown(&self.dir, Some(uid), Some(gid)),
            false => Ok(()),
        }
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Who runs here now. What a keeper of an earlier boot, or one that is dead, has written does not count.
    pub(super) fn running(&self) -> io::Result<Option<RunningSandbox>> {
        let Some(running) = self.last_run()? else { return Ok(None) };
        let still_runs = running.boot == kernel_boot_id()? && running.jailer.is_alive()?;
        Ok(still_runs.then_some(running))
    }

    /// The same, with a handle on the keeper.
    pub(super) fn running_jailer(&self) -> io::Result<Option<(RunningSandbox, OwnedFd)>> {
        let Some(running) = self.running()? else { return Ok(None) };
        Ok(running.jailer.open()?.map(|keeper| (running, keeper)))
    }

    /// What was written about the last run, whether or not it is over.
    pub(super) fn last_run(&self) -> io::Result<Option<RunningSandbox>> {
        self.read(RUNNING)
    }

    pub(super) fn exit_record(&self) -> io::Result<JailExit> {
        Ok(self.read(EXIT)?.unwrap_or_default())
    }

    /// The processes that stood still before the sandbox was frozen by signals; `None` where it is not.
    pub(super) fn pause_record(&self) -> io::Result<Option<Vec<ProcessIdentity>>> {
        self.read(FROZEN)
    }

    pub(super) fn write_pause_record(&self, stood_still: &[ProcessIdentity]) -> io::Result<()> {
        write_json(&self.dir, FROZEN, &stood_still)
    }

    pub(super) fn remove_pause_record(&self) -> io::Result<()> {
        match fs::remove_file(self.dir.join(FROZEN)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The newest `bytes` of what it wrote, over both log files.
    pub(super) fn log(&self, bytes: usize) -> io::Result<String> {
        let mut newest = tail(&self.dir.join(LOG), bytes)?;
        if newest.len() < bytes {
            let mut older = tail(&self.dir.join(OLDER_LOG), bytes - newest.len())?;
            older.append(&mut newest);
            newest = older;
        }
        Ok(last_chars(&String::from_utf8_lossy(&newest), bytes).to_owned())
    }

    /// `None` where it is not there, or another version wrote it in a way that is not understood.
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
    fn a_reused_process_id_and_another_boot_are_not_alive() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let place = SandboxDir::of(state.path(), SessionId::generate());
        place.make(0, 0).expect("it is made");
        let boot = kernel_boot_id().expect("it is read");
        let me = ProcessIdentity::of(std::process::id() as i32).expect("it is read").expect("this process lives");
        let running =
            |boot: String, keeper: ProcessIdentity| RunningSandbox { boot, jailer: keeper, init: me, cgroup: None };
        let another = ProcessIdentity { started: me.started + 1, ..me };
        for (case, alive) in [
            (running(boot.clone(), me), true),
            (running(boot, another), false),
            (running("another boot".into(), me), false),
        ] {
            write_json(place.dir(), RUNNING, &case).expect("it is written");
            assert_eq!(place.running().expect("it is read").is_some(), alive, "{case:?}");
        }
    }

    #[test]
    fn what_is_not_there_says_so_and_what_cannot_be_read_says_nothing() {
        let state = tempfile::tempdir().expect("a temporary directory");
        let place = SandboxDir::of(state.path(), SessionId::generate());
        assert!(place.running().expect("it is not there").is_none());
        assert!(place.pause_record().expect("it is not there").is_none());
        assert_eq!(place.exit_record().expect("it is not there"), JailExit::default());
        place.make(0, 0).expect("it is made");
        for name in [RUNNING, EXIT, FROZEN] {
            fs::write(place.dir().join(name), "another version's").expect("it is written");
        }
        assert!(place.running().expect("it is read").is_none());
        assert!(place.pause_record().expect("it is read").is_none());
        assert_eq!(place.exit_record().expect("it is read"), JailExit::default());
        for name in [RUNNING, EXIT, FROZEN] {
            fs::remove_file(place.dir().join(name)).expect("it is there");
            // Root reads any file, but nobody reads a directory as one.
            fs::create_dir(place.dir().join(name)).expect("it is made");
        }
        place.running().expect_err("it may run");
        place.running_jailer().expect_err("it may be kept");
        place.pause_record().expect_err("it may be frozen");
        let told = place.exit_record().expect_err("it may have ended somehow").to_string();
        assert!(told.contains(EXIT), "{told}");
    }
}

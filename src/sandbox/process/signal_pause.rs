//! Pause by signals, for sandboxes without a control group, with a record of the processes that
//! were already stopped.
//!
//! The record is written before the first process is stopped, and removed after the last one
//! continues. So a partly stopped sandbox counts as paused, even if its server was killed in
//! between. The next unpause finds the processes to continue.

use std::{io, time::Duration};

use greenroom_jailer::processes::{self, ProcessIdentity};

use super::sandbox_dir::SandboxDir;

/// Stops `first` and all its descendants, or none of them.
///
/// # Errors
/// Fails if the record cannot be written, or if the processes are not stopped within `patience`.
pub(super) fn pause(dir: &SandboxDir, first: ProcessIdentity, patience: Duration) -> io::Result<()> {
    if dir.pause_record()?.is_none() {
        dir.write_pause_record(&processes::stopped_processes(first)?)?;
    }
    processes::stop_all(first, patience).inspect_err(|_| {
        // Processes that cannot be continued now are continued by the next unpause: the record
        // still exists.
        let _ = unpause(dir, first);
    })
}

/// Continues the processes that the pause stopped. A missing record is no error.
pub(super) fn unpause(dir: &SandboxDir, first: ProcessIdentity) -> io::Result<()> {
    let Some(already_stopped) = dir.pause_record()? else { return Ok(()) };
    processes::continue_all(first, &already_stopped)?;
    dir.remove_pause_record()
}

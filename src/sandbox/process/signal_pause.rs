//! Freezing a sandbox where there is no control group to do it: by signals, and by a note of who is not to be woken.
//!
//! The note is there before the first process is stopped and goes when the last one was woken, so a sandbox of which some
//! stand still is always known as one, whoever was cut off amid it, and a thaw finds what it has to wake.

use std::{io, time::Duration};

use greenroom_jailer::processes::{self, ProcessIdentity};

use super::sandbox_dir::SandboxDir;

/// Stops all that descend from `first`, or none of them.
pub(super) fn pause(place: &SandboxDir, first: ProcessIdentity, patience: Duration) -> io::Result<()> {
    if place.pause_record()?.is_none() {
        place.write_pause_record(&processes::stopped_processes(first)?)?;
    }
    processes::stop_all(first, patience).inspect_err(|_| {
        // What cannot be woken now is woken by a thaw: the note is there yet.
        let _ = unpause(place, first);
    })
}

pub(super) fn unpause(place: &SandboxDir, first: ProcessIdentity) -> io::Result<()> {
    let Some(stood_still) = place.pause_record()? else { return Ok(()) };
    processes::continue_all(first, &stood_still)?;
    place.remove_pause_record()
}

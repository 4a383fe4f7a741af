//! Freezing a sandbox where there is no control group to do it: by signals, and by a note of who is not to be woken.
//!
//! The note is there before the first process is stopped and goes when the last one was woken, so a sandbox of which some
//! stand still is always known as one, whoever was cut off amid it, and a thaw finds what it has to wake.

use std::{io, time::Duration};

use greenroom_keeper::processes::{self, Identity};

use super::place::Place;

/// Stops all that descend from `first`, or none of them.
pub(super) fn freeze(place: &Place, first: Identity, patience: Duration) -> io::Result<()> {
    if place.frozen()?.is_none() {
        place.set_frozen(&processes::standing_still(first)?)?;
    }
    processes::stop_all(first, patience).inspect_err(|_| {
        // What cannot be woken now is woken by a thaw: the note is there yet.
        let _ = thaw(place, first);
    })
}

pub(super) fn thaw(place: &Place, first: Identity) -> io::Result<()> {
    let Some(stood_still) = place.frozen()? else { return Ok(()) };
    processes::continue_all(first, &stood_still)?;
    place.forget_frozen()
}

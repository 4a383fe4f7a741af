//! Commits in flight to disk, oldest first.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{commit_group::CommitGroup, segment::LogPosition};

/// Commits in flight, shared by the committer threads.
#[derive(Default)]
pub(super) struct InFlightCommits {
    queue: Mutex<InFlightCommitQueue>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct InFlightCommitQueue {
    commits: VecDeque<InFlightCommit>,
    /// Number of the oldest commit.
    first: u64,
    /// Segment of these commits and of the next.
    segment: u32,
    /// Error of a failed sync. While set, all commits are void, and none is committed before the
    /// recovery.
    failed: Option<Arc<io::Error>>,
}

/// Commit and its position in the log.
pub(super) struct InFlightCommit {
    pub(super) group: CommitGroup,
    pub(super) at: LogPosition,
    /// Bytes that were written. 0 if the commit only waits for those before it.
    pub(super) len: u32,
}

impl InFlightCommits {
    pub(super) fn lock_queue(&self) -> MutexGuard<'_, InFlightCommitQueue> {
        // A holder that panics ends all committer threads, so a poisoned lock needs no handling
        // here.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until all that was written is answered.
    ///
    /// Fails if some of it will not be answered before the log is recovered.
    pub(super) fn wait_until_committed(&self) -> Result<(), Arc<io::Error>> {
        let is_pending = |queue: &mut InFlightCommitQueue| !queue.commits.is_empty() && queue.failed.is_none();
        let queue = self.changed.wait_while(self.lock_queue(), is_pending).unwrap_or_else(PoisonError::into_inner);
        queue.failed.clone().map_or(Ok(()), Err)
    }

    /// Wakes the waiting threads. Called after commits are committed, or after they fail.
    pub(super) fn notify_changed(&self) {
        self.changed.notify_all();
    }

    /// Fails all commits after the panic of a committer.
    ///
    /// The dropped replies inform the callers.
    pub(super) fn abandon(&self) {
        self.lock_queue()
            .failed
            .get_or_insert_with(|| Arc::new(io::Error::other("a thread that writes the journal panicked")));
        self.notify_changed();
    }
}

impl InFlightCommitQueue {
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &CommitGroup> {
        self.commits.iter().rev().map(|commit| &commit.group)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Returns the bytes in the log of all commits in flight. They are in one segment.
    pub(super) fn bytes(&self) -> u32 {
        self.commits.iter().map(|commit| commit.len).sum()
    }

    /// Adds a commit and returns its number.
    pub(super) fn add(&mut self, commit: InFlightCommit) -> u64 {
        self.commits.push_back(commit);
        self.first + self.commits.len() as u64 - 1
    }

    /// Sets the segment of the commits to come.
    pub(super) fn set_segment(&mut self, segment: u32) {
        self.segment = segment;
    }

    /// Removes and returns the oldest commit that is committed, if all up to `number` are on disk.
    ///
    /// With `None`, only a commit that wrote nothing can be committed.
    pub(super) fn next_committed(&mut self, number: Option<u64>) -> Option<InFlightCommit> {
        let is_on_disk = number.is_some_and(|number| self.first <= number);
        let is_committed = is_on_disk || self.commits.front().is_some_and(|commit| commit.len == 0);
        let commit = (is_committed && self.failed.is_none()).then(|| self.commits.pop_front()).flatten()?;
        self.first += 1;
        Some(commit)
    }

    /// Records a failed sync of `segment`. No commit is committed until
    /// [`InFlightCommitQueue::clear`].
    ///
    /// Returns false if a failure is recorded already, or if the log has moved to a later segment.
    /// A later segment begins only once everything in the one before is on disk or void.
    pub(super) fn fail(&mut self, segment: u32, error: Arc<io::Error>) -> bool {
        let is_new = self.failed.is_none() && segment >= self.segment;
        if is_new {
            self.failed = Some(error);
        }
        is_new
    }

    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        self.failed.clone()
    }

    /// Clears the failure and returns all commits, which are void.
    pub(super) fn clear(&mut self) -> Vec<InFlightCommit> {
        self.failed = None;
        self.first += self.commits.len() as u64;
        self.commits.drain(..).collect()
    }
}

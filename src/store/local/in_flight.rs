//! The commits that are on their way to disk, oldest first.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{commit_group::CommitGroup, segment::LogPosition};

/// What the threads that write share of them.
#[derive(Default)]
pub(super) struct InFlightCommits {
    queue: Mutex<InFlightCommitQueue>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct InFlightCommitQueue {
    commits: VecDeque<InFlightCommit>,
    /// The number of the oldest.
    first: u64,
    /// Where they stand, and what comes next.
    segment: u32,
    /// A sync failed: all of them are void, and nobody lands any more until the log is mended.
    failed: Option<Arc<io::Error>>,
}

/// A commit, and where it stands in the log.
pub(super) struct InFlightCommit {
    pub(super) group: CommitGroup,
    pub(super) at: LogPosition,
    /// How much of it was written; 0 where there is nothing to wait for, and only those before it must be answered first.
    pub(super) len: u32,
}

impl InFlightCommits {
    pub(super) fn lock_queue(&self) -> MutexGuard<'_, InFlightCommitQueue> {
        // Whoever panicked while holding it has the threads end.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all that was written is answered. An error: some of it will not be, until the log is mended.
    pub(super) fn wait_until_committed(&self) -> Result<(), Arc<io::Error>> {
        let is_flying = |flying: &mut InFlightCommitQueue| !flying.commits.is_empty() && flying.failed.is_none();
        let flying = self.changed.wait_while(self.lock_queue(), is_flying).unwrap_or_else(PoisonError::into_inner);
        flying.failed.clone().map_or(Ok(()), Err)
    }

    /// To be called when some have landed, or none will.
    pub(super) fn notify_changed(&self) {
        self.changed.notify_all();
    }

    /// For a thread that will not come back: nothing lands any more, and whoever waits is told so by the dropped reply.
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

    /// How much of the log they are. All of it stands in one segment.
    pub(super) fn bytes(&self) -> u32 {
        self.commits.iter().map(|commit| commit.len).sum()
    }

    /// Returns its number.
    pub(super) fn add(&mut self, commit: InFlightCommit) -> u64 {
        self.commits.push_back(commit);
        self.first + self.commits.len() as u64 - 1
    }

    /// What comes now stands in this segment.
    pub(super) fn set_segment(&mut self, segment: u32) {
        self.segment = segment;
    }

    /// The next that has landed, where all up to `number` are on disk, or nothing new.
    pub(super) fn next_committed(&mut self, number: Option<u64>) -> Option<InFlightCommit> {
        let is_on_disk = number.is_some_and(|number| self.first <= number);
        let has_landed = is_on_disk || self.commits.front().is_some_and(|commit| commit.len == 0);
        let commit = (has_landed && self.failed.is_none()).then(|| self.commits.pop_front()).flatten()?;
        self.first += 1;
        Some(commit)
    }

    /// A sync of this segment failed, so none lands any more, until they are cleared. False: that is known already, or the log
    /// has gone on in another since, which is begun only when all that stands in the one before is on disk or void.
    pub(super) fn fail(&mut self, segment: u32, error: Arc<io::Error>) -> bool {
        let is_news = self.failed.is_none() && segment >= self.segment;
        if is_news {
            self.failed = Some(error);
        }
        is_news
    }

    pub(super) fn failure(&self) -> Option<Arc<io::Error>> {
        self.failed.clone()
    }

    /// All of them, now that they count for nothing, and what follows counts again.
    pub(super) fn clear(&mut self) -> Vec<InFlightCommit> {
        self.failed = None;
        self.first += self.commits.len() as u64;
        self.commits.drain(..).collect()
    }
}

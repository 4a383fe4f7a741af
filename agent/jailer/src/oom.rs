//! Detection of sandbox processes that were killed for lack of memory.
//!
//! A control group only counts the processes that the kernel killed for lack of memory. The count
//! shows neither the victim nor the time. A command may be killed long before the sandbox itself is
//! killed for another reason.
//!
//! A memory event of the kernel therefore starts checks of the count. They repeat every few seconds
//! until the count is unchanged. A kill since the last check but one counts as the cause of the
//! exit. Without memory events the count is read only at the exit, and any kill counts as the
//! cause.

use std::{
    fs::File,
    io::{Read, Seek},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use greenroom_jailer::cgroup::Cgroup;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Time between two checks. Under memory pressure, the kernel takes a while to end a whole sandbox.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Monitor of the out-of-memory kills in one control group.
pub struct OomMonitor {
    cgroup: Option<Cgroup>,
    events: Option<(File, PollFlags)>,
    /// Count at the last check but one, and at the last check.
    counts: [u64; 2],
    /// Time of the next check. Until then events are not read: the kernel sends many while a
    /// sandbox fills its memory.
    next_check: Option<Instant>,
}

impl OomMonitor {
    /// Starts monitoring. The caller needs the privileges of the user that created the control
    /// group.
    pub fn of(cgroup: Option<Cgroup>) -> OomMonitor {
        let events = cgroup.as_ref().and_then(|cgroup| cgroup.memory_events().ok());
        let mut monitor = OomMonitor { cgroup, events, counts: [0; 2], next_check: None };
        monitor.drain_events();
        monitor.counts = [monitor.count(); 2];
        monitor
    }

    /// File to poll for the next event.
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        let (file, flags) = self.events.as_ref().filter(|_| self.next_check.is_none())?;
        Some(PollFd::from_borrowed_fd(file.as_fd(), *flags))
    }

    /// Time until the next check. `None` if no check is due.
    pub fn poll_timeout(&self) -> Option<Timespec> {
        self.next_check?.saturating_duration_since(Instant::now()).try_into().ok()
    }

    /// Records an event. The kill that the event announces may still follow.
    pub fn event_received(&mut self) {
        self.next_check = Some(Instant::now() + CHECK_INTERVAL);
    }

    /// Reads the count if a check is due.
    pub fn check_if_due(&mut self) {
        if self.next_check.is_some_and(|due| due <= Instant::now()) {
            self.check();
        }
    }

    /// Returns true if a process was killed within the last few seconds.
    pub fn has_recent_kill(&self) -> bool {
        self.count() > self.counts[0]
    }

    fn check(&mut self) {
        // Drained before the count is read: the count then includes every drained event, at the
        // next check at the latest.
        self.drain_events();
        self.counts = [self.counts[1], self.count()];
        let is_unchanged = self.counts[0] == self.counts[1];
        self.next_check = (!is_unchanged).then(|| Instant::now() + CHECK_INTERVAL);
    }

    fn count(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, Cgroup::out_of_memory_kills)
    }

    /// Clears the pending event.
    fn drain_events(&mut self) {
        if let Some((file, _)) = &mut self.events {
            // In version 2 the file itself changes. In version 1 the file is a counter and cannot
            // be rewound.
            let _ = file.rewind();
            let _ = file.read(&mut [0; 1024]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        path::Path,
        process::{Command, Stdio},
    };

    use greenroom_jailer::{cgroup::NodeCgroups, request::JailLimits};
    use rustix::event::poll;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Runs a process in the control group that uses more memory than the limit.
    fn run_out_of_memory(cgroup: &Cgroup) {
        let mut command = Command::new("sh");
        let mut greedy =
            command.args(["-c", "read go; exec tail /dev/zero"]).stdin(Stdio::piped()).spawn().expect("`sh` starts");
        for file in cgroup.procs_files() {
            fs::write(file, greedy.id().to_string()).expect("the group accepts the process");
        }
        greedy.stdin.take().expect("stdin is piped").write_all(b"\n").expect("the process reads stdin");
        assert!(!greedy.wait().expect("the process is a child").success(), "the process was not killed");
    }

    fn is_signalled(monitor: &OomMonitor, timeout: Duration) -> bool {
        let timeout: Timespec = timeout.try_into().expect("the timeout fits into a `Timespec`");
        let mut fds: Vec<_> = monitor.poll_fd().into_iter().collect();
        poll(&mut fds, Some(&timeout)).expect("the descriptor is open") > 0
    }

    #[test]
    fn oom_kill_counts_until_a_second_check() {
        let cgroups =
            NodeCgroups::find_below(Path::new("/sys/fs/cgroup"), "oom-test").filter(NodeCgroups::limits_memory);
        let Some(cgroups) = cgroups else { return eprintln!("skipped: control groups cannot limit memory here") };
        let cgroup = cgroups.of("greedy");
        cgroup
            .make(&JailLimits { memory_bytes: 32 << 20, cpus: 1.0, pids: 16 }, TIMEOUT)
            .expect("the test may create control groups");
        let mut monitor = OomMonitor::of(Some(cgroup.clone()));
        assert!(!monitor.has_recent_kill() && !is_signalled(&monitor, Duration::ZERO));
        for _ in 0..2 {
            run_out_of_memory(&cgroup);
            assert!(is_signalled(&monitor, TIMEOUT), "the kernel reports no event");
            monitor.event_received();
            assert!(
                monitor.has_recent_kill() && !is_signalled(&monitor, Duration::ZERO),
                "events are read before the next check"
            );
            assert!(monitor.poll_timeout().is_some(), "no further check is due");
            monitor.check();
            assert!(monitor.has_recent_kill(), "a kill just before the check does not count");
            monitor.check();
            assert!(!monitor.has_recent_kill() && monitor.poll_timeout().is_none());
        }
        drop(monitor);
        cgroup.remove(TIMEOUT).expect("no process is left in the group");
        for node_dir in cgroup.procs_files().iter().filter_map(|file| file.ancestors().nth(2)) {
            fs::remove_dir(node_dir).expect("the node's group is empty");
        }
    }
}

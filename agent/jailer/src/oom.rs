//! Whether a sandbox was killed for want of memory. The kernel counts whom it kills so in a control group, and says neither who
//! it was nor when: a command may be killed long before somebody kills the sandbox itself.
//!
//! So the count is looked at when the kernel notices something, and every few seconds from then on until it stands still; of
//! what came after the last look but one, the end is thought to have come. Where there are no notices, nobody looks before the
//! end, and any such kill is thought to be its cause.

use std::{
    fs::File,
    io::{Read, Seek},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use greenroom_jailer::cgroup::Cgroup;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Between two looks. A kernel that looks for memory takes a while to end a whole sandbox.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

pub struct OomMonitor {
    cgroup: Option<Cgroup>,
    events: Option<(File, PollFlags)>,
    /// The count at the last look but one, and at the last.
    counts: [u64; 2],
    /// When the next look is due. Till then no notice is taken: the kernel gives many while a sandbox fills its memory.
    next_check: Option<Instant>,
}

impl OomMonitor {
    /// To be made with the rights of whoever made the control group.
    pub fn of(cgroup: Option<Cgroup>) -> OomMonitor {
        let notices = cgroup.as_ref().and_then(|cgroup| cgroup.memory_events().ok());
        let mut kills = OomMonitor { cgroup, events: notices, counts: [0; 2], next_check: None };
        kills.drain_events();
        kills.counts = [kills.count(); 2];
        kills
    }

    /// Where the next notice comes.
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        let (file, sign) = self.events.as_ref().filter(|_| self.next_check.is_none())?;
        Some(PollFd::from_borrowed_fd(file.as_fd(), *sign))
    }

    /// How long it is until the next look; `None` where none is due.
    pub fn poll_timeout(&self) -> Option<Timespec> {
        self.next_check?.saturating_duration_since(Instant::now()).try_into().ok()
    }

    /// A notice has come. The kill that it foretells may be yet to come.
    pub fn event_received(&mut self) {
        self.next_check = Some(Instant::now() + CHECK_INTERVAL);
    }

    pub fn check_if_due(&mut self) {
        if self.next_check.is_some_and(|due| due <= Instant::now()) {
            self.check();
        }
    }

    /// Whether there was one within the last few seconds.
    pub fn has_recent_kill(&self) -> bool {
        self.count() > self.counts[0]
    }

    fn check(&mut self) {
        // Before the count, which has what was noticed so far, or will have it.
        self.drain_events();
        self.counts = [self.counts[1], self.count()];
        let stands_still = self.counts[0] == self.counts[1];
        self.next_check = (!stands_still).then(|| Instant::now() + CHECK_INTERVAL);
    }

    fn count(&self) -> u64 {
        self.cgroup.as_ref().map_or(0, Cgroup::out_of_memory_kills)
    }

    /// Makes room for the next one.
    fn drain_events(&mut self) {
        if let Some((file, _)) = &mut self.events {
            // In version 2 it is the file itself, which changes; in version 1 a counter, which has no beginning to go back to.
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

    /// A process in there takes more than there is.
    fn run_out_of_memory(cgroup: &Cgroup) {
        let mut command = Command::new("sh");
        let mut greedy =
            command.args(["-c", "read go; exec tail /dev/zero"]).stdin(Stdio::piped()).spawn().expect("it starts");
        for door in cgroup.procs_files() {
            fs::write(door, greedy.id().to_string()).expect("it goes in");
        }
        greedy.stdin.take().expect("it is piped").write_all(b"\n").expect("it reads");
        assert!(!greedy.wait().expect("it is a child").success(), "it was killed");
    }

    fn is_signalled(kills: &OomMonitor, patience: Duration) -> bool {
        let patience: Timespec = patience.try_into().expect("it is short");
        let mut asked: Vec<_> = kills.poll_fd().into_iter().collect();
        poll(&mut asked, Some(&patience)).expect("it can be asked") > 0
    }

    #[test]
    fn a_kill_counts_for_a_while() {
        let cgroups =
            NodeCgroups::find_below(Path::new("/sys/fs/cgroup"), "kills-test").filter(NodeCgroups::limits_memory);
        let Some(cgroups) = cgroups else { return eprintln!("no memory is limited here") };
        let cgroup = cgroups.of("greedy");
        cgroup.make(&JailLimits { memory_bytes: 32 << 20, cpus: 1.0, pids: 16 }, TIMEOUT).expect("it is made");
        let mut kills = OomMonitor::of(Some(cgroup.clone()));
        assert!(!kills.has_recent_kill() && !is_signalled(&kills, Duration::ZERO));
        for _ in 0..2 {
            run_out_of_memory(&cgroup);
            assert!(is_signalled(&kills, TIMEOUT), "the kernel says so");
            kills.event_received();
            assert!(kills.has_recent_kill() && !is_signalled(&kills, Duration::ZERO), "no more notice is taken");
            assert!(kills.poll_timeout().is_some(), "it is looked at again");
            kills.check();
            assert!(kills.has_recent_kill(), "it may have come just before the look");
            kills.check();
            assert!(!kills.has_recent_kill() && kills.poll_timeout().is_none());
        }
        drop(kills);
        cgroup.remove(TIMEOUT).expect("nobody is in it");
        for of_node in cgroup.procs_files().iter().filter_map(|door| door.ancestors().nth(2)) {
            fs::remove_dir(of_node).expect("nothing else is in it");
        }
    }
}

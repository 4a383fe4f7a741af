//! Types that the server and its jailers share: the jail request and its reply, the files of a
//! sandbox dir, processes and control groups. Also the parts of the isolation that all drivers
//! share. The jailer itself is this crate's program.
//!
//! The jailer is a small program of its own because many run at a time. With a fork of it inside
//! each sandbox, a thousand sandboxes map its pages two thousand times. The kernel checks every
//! mapping of a page that may be cold. Each page less leaves CPU time to the agents. See
//! docs/adr/006-jailer-binary.md.

pub mod cgroup;
pub mod confinement;
pub mod denied_syscalls;
pub mod processes;
pub mod request;
pub mod sandbox_dir;

/// Returns true if this kernel has Landlock and has it enabled.
pub fn landlock_available() -> bool {
    const CREATE_RULESET_VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call reads no attributes and creates no ruleset. It returns a
    // version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, CREATE_RULESET_VERSION)
    };
    version > 0
}

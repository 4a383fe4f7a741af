//! What a server and the keepers of its sandboxes have in common: the order and its answer, the files they leave for each
//! other, and what both know of processes and control groups. The keeper itself is this crate's program.
//!
//! A keeper is a program of its own, and a small one, because there are so many: with a fork of it inside each sandbox, a
//! thousand sandboxes map its pages two thousand times. Of a page that may be cold the kernel looks at every mapping, so
//! each page that is not there is time that the agents have.

pub mod cgroup;
pub mod processes;
pub mod request;
pub mod sandbox_dir;

/// Whether this kernel has Landlock, and has it switched on.
pub fn landlock_available() -> bool {
    const ASK_FOR_THE_VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call reads no attributes and makes no ruleset; it returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, ASK_FOR_THE_VERSION)
    };
    version > 0
}

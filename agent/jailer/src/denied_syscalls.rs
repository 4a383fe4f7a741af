//! System calls that are denied in every sandbox, as data. The process driver compiles them into a
//! filter, the Docker driver writes them into a profile.
//!
//! The list names what is denied, so that every ordinary tool works. Denied calls change the
//! machine, open a way to new privileges, or reach parts of the kernel that namespaces do not
//! divide.
//!
//! `ptrace` is allowed. Debuggers and sanitizers need it, and it reaches no process outside the pid
//! namespace.

/// System call that is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedSyscall {
    /// Name as in syscalls(2).
    pub name: &'static str,
    pub number: i64,
    /// Arguments with which the call is denied: one match suffices. Empty: denied with any
    /// arguments.
    pub arguments: Vec<ArgumentMatch>,
}

/// Match of one argument, of which the kernel reads the lower 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentMatch {
    /// Position of the argument, from 0.
    pub index: u8,
    pub comparison: ArgumentComparison,
}

/// Comparison of an argument with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentComparison {
    /// Argument with all of these bits set.
    HasBits(u32),
    Equals(u32),
    Below(u32),
    Above(u32),
}

macro_rules! syscalls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// System calls that are denied with any arguments.
const DENIED_SYSCALLS: &[(&str, i64)] = syscalls![
    // Mounts and roots: the file system stays as built.
    SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount
    SYS_fspick SYS_mount_setattr SYS_name_to_handle_at SYS_open_by_handle_at SYS_quotactl SYS_quotactl_fd SYS_swapon
    SYS_swapoff SYS_fanotify_init
    // Namespaces. Their creation is denied below, by flags.
    SYS_setns
    // The machine.
    SYS_reboot SYS_kexec_load SYS_init_module SYS_finit_module SYS_delete_module SYS_acct SYS_syslog SYS_settimeofday
    SYS_clock_settime SYS_sethostname SYS_setdomainname SYS_vhangup SYS_nfsservctl
    // Other processes, beside `ptrace`.
    SYS_kcmp SYS_pidfd_getfd SYS_process_madvise
    // The machine's memory nodes.
    SYS_mbind SYS_set_mempolicy SYS_migrate_pages SYS_move_pages
    // Parts of the kernel that have allowed escapes more than once.
    SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_add_key
    SYS_request_key SYS_keyctl SYS_lookup_dcookie
];

#[cfg(target_arch = "x86_64")]
const ARCH_DENIED_SYSCALLS: &[(&str, i64)] = syscalls![
    SYS_kexec_file_load SYS_iopl SYS_ioperm SYS_uselib SYS_ustat SYS_sysfs SYS__sysctl
];
#[cfg(not(target_arch = "x86_64"))]
const ARCH_DENIED_SYSCALLS: &[(&str, i64)] = &[];

/// System calls that are reported as missing (`ENOSYS`).
///
/// `clone3` passes its flags behind a pointer, which no filter can read. If the call is missing,
/// every libc falls back to `clone`.
pub const HIDDEN_SYSCALLS: [(&str, i64); 1] = [("clone3", libc::SYS_clone3)];

const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
/// Flag of a new time namespace, in `unshare` only. In `clone` this bit is part of the exit signal.
const NEW_TIME_NAMESPACE: i32 = 0x80;

/// Socket families that the network namespace divides, in ascending order. Others are denied: a
/// guest reaches its hypervisor through `AF_VSOCK`, for example.
const SOCKET_FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// `TIOCSTI` and `TIOCLINUX`, which put keystrokes into a terminal, even one that another process
/// reads.
const KEYSTROKE_IOCTLS: [u32; 2] = [0x5412, 0x541c];

/// Returns all denied calls.
pub fn denied_syscalls() -> Vec<DeniedSyscall> {
    let denied = |(name, number): &(&'static str, i64), arguments| DeniedSyscall {
        // `_sysctl` keeps its own underscore.
        name: name.strip_prefix("SYS_").unwrap_or(name),
        number: *number,
        arguments,
    };
    let always = DENIED_SYSCALLS.iter().chain(ARCH_DENIED_SYSCALLS).map(|call| denied(call, Vec::new()));
    let namespaces = NEW_NAMESPACES.map(|flag| has_bits(0, flag));
    let keystrokes =
        KEYSTROKE_IOCTLS.map(|ioctl| ArgumentMatch { index: 1, comparison: ArgumentComparison::Equals(ioctl) });
    let by_arguments = [
        denied(&("clone", libc::SYS_clone), namespaces.to_vec()),
        denied(&("unshare", libc::SYS_unshare), [&namespaces[..], &[has_bits(0, NEW_TIME_NAMESPACE)]].concat()),
        denied(&("socket", libc::SYS_socket), other_families()),
        denied(&("socketpair", libc::SYS_socketpair), other_families()),
        denied(&("ioctl", libc::SYS_ioctl), keystrokes.to_vec()),
    ];
    always.chain(by_arguments).collect()
}

fn has_bits(index: u8, flag: i32) -> ArgumentMatch {
    ArgumentMatch { index, comparison: ArgumentComparison::HasBits(flag as u32) }
}

/// Returns matches for every family that is not in [`SOCKET_FAMILIES`].
fn other_families() -> Vec<ArgumentMatch> {
    let allowed = SOCKET_FAMILIES.map(|family| family as u32);
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    let between = (first..last).filter(|family| !allowed.contains(family)).map(ArgumentComparison::Equals);
    let outside = [ArgumentComparison::Below(first), ArgumentComparison::Above(last)];
    between.chain(outside).map(|comparison| ArgumentMatch { index: 0, comparison }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_denied(arguments: &[ArgumentMatch], value: u32) -> bool {
        arguments.iter().any(|argument| match argument.comparison {
            ArgumentComparison::HasBits(bits) => value & bits == bits,
            ArgumentComparison::Equals(other) => value == other,
            ArgumentComparison::Below(limit) => value < limit,
            ArgumentComparison::Above(limit) => value > limit,
        })
    }

    #[test]
    fn all_socket_families_but_four_are_denied() {
        let allowed = (0..100).chain([u32::MAX]).filter(|family| !is_denied(&other_families(), *family));
        assert_eq!(allowed.collect::<Vec<_>>(), SOCKET_FAMILIES.map(|family| family as u32));
    }

    #[test]
    fn each_call_is_listed_once_under_its_plain_name() {
        let mut names: Vec<_> = denied_syscalls().into_iter().map(|call| call.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| !name.starts_with("SYS_")), "{names:?}");
        for name in ["mount", "io_uring_setup", "socket", "unshare"] {
            assert!(names.contains(&name), "{name}");
        }
    }
}

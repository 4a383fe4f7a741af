//! System call filter of the sandbox: a list of denied calls, so that every ordinary tool works.
//!
//! Denied calls change the machine, open a way to new privileges, or reach parts of the kernel that
//! namespaces do not divide.
//!
//! `ptrace` is allowed. Debuggers and sanitizers need it, and it reaches no process outside the pid
//! namespace.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};

/// System calls that are denied with any arguments.
const DENIED_SYSCALLS: &[i64] = &[
    // Mounts and roots: the file system stays as built.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_fanotify_init,
    // Namespaces. Their creation is denied below, by flags.
    libc::SYS_setns,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    // Parts of the kernel that have allowed escapes more than once.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
];

#[cfg(target_arch = "x86_64")]
const ARCH_DENIED_SYSCALLS: &[i64] = &[
    libc::SYS_kexec_file_load,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const ARCH_DENIED_SYSCALLS: &[i64] = &[];

const NEW_NAMESPACES: &[i32] = &[
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

/// Socket families that the network namespace divides. Others are denied: a guest reaches its
/// hypervisor through `AF_VSOCK`, for example.
const SOCKET_FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// `TIOCSTI` and `TIOCLINUX`, which put keystrokes into a terminal, even one that another process
/// reads.
const KEYSTROKE_IOCTLS: &[u64] = &[0x5412, 0x541c];

/// Compiled filters.
#[derive(Clone)]
pub struct SeccompFilters {
    denied: BpfProgram,
    hidden: BpfProgram,
}

impl SeccompFilters {
    /// Compiles the filters for this CPU architecture.
    ///
    /// # Errors
    /// Returns an error if the architecture is not supported.
    pub fn compile() -> seccompiler::Result<SeccompFilters> {
        let arch: TargetArch = std::env::consts::ARCH.try_into()?;
        let deny = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(rules()?, SeccompAction::Allow, deny, arch)?;
        Ok(SeccompFilters { denied: filter.try_into()?, hidden: hidden_syscalls() })
    }

    /// Puts this thread, and all that it starts, under the filters permanently. Sets
    /// `no_new_privs`.
    pub fn apply(&self) -> seccompiler::Result<()> {
        apply_filter(&self.hidden)?;
        apply_filter(&self.denied)
    }
}

type SyscallRules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules() -> seccompiler::Result<SyscallRules> {
    let mut rules: SyscallRules =
        DENIED_SYSCALLS.iter().chain(ARCH_DENIED_SYSCALLS).map(|call| (*call, Vec::new())).collect();
    let namespaces = || NEW_NAMESPACES.iter().map(|flag| any_of(0, *flag));
    rules.insert(libc::SYS_clone, namespaces().collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_unshare, namespaces().chain([any_of(0, NEW_TIME_NAMESPACE)]).collect::<Result<_, _>>()?);
    let other_families = SOCKET_FAMILIES.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family as u64));
    let other_families = SeccompRule::new(other_families.collect::<Result<_, _>>()?)?;
    rules.insert(libc::SYS_socket, vec![other_families.clone()]);
    rules.insert(libc::SYS_socketpair, vec![other_families]);
    let keystrokes =
        KEYSTROKE_IOCTLS.iter().map(|request| Ok(SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, *request)?])?));
    rules.insert(libc::SYS_ioctl, keystrokes.collect::<seccompiler::Result<_>>()?);
    Ok(rules)
}

fn any_of(argument: u8, flag: i32) -> seccompiler::Result<SeccompRule> {
    let flag = flag as u32 as u64;
    Ok(SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(flag), flag)?])?)
}

/// Condition on the lower 32 bits of an argument. The kernel reads these arguments as 32 bits, so a
/// set upper bit would bypass a 64-bit comparison.
fn condition(argument: u8, is: SeccompCmpOp, value: u64) -> seccompiler::Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)?)
}

/// Filter that reports some calls as missing (`ENOSYS`).
///
/// `clone3` passes its flags behind a pointer, which no filter can read. If the call is missing,
/// every libc falls back to `clone`. The x32 calls are the same calls under other numbers, so the
/// list above would miss them.
fn hidden_syscalls() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    vec![
        // The call number is the first word of a filter's input.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, X32),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_clone3 as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile() {
        let filters = SeccompFilters::compile().expect("the rules are valid");
        assert!(filters.denied.len() > DENIED_SYSCALLS.len());
    }
}

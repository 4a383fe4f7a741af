//! Parts of the isolation that all drivers share, as data: hidden files of the kernel, limits,
//! the environment and the names of users. [`denied_syscalls`](crate::denied_syscalls) lists the
//! system calls.

use greenroom_protocol::sandbox_paths;

/// Files and directories of the kernel that are empty inside. They show the machine, its start
/// parameters and its devices, and no ordinary program needs them.
///
/// `/proc/meminfo`, `/proc/stat` and `/proc/cpuinfo` stay: programs size themselves by them.
pub const MASKED_PATHS: [&str; 27] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/driver",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmallocinfo",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Limit of open files: as many as a build or a browser opens, and fewer than the host permits.
pub const OPEN_FILES: u64 = 16_384;
/// Limit of queued signals. Processes of one user share the kernel's own limit.
pub const PENDING_SIGNALS: u64 = 1_024;
/// Limit of memory in POSIX message queues, in bytes: one queue with the kernel's default size.
/// Processes of one user share the kernel's own limit of 800 KiB.
pub const MESSAGE_QUEUE_BYTES: u64 = 100 << 10;

/// Value of `oom_score_adj` for the processes of a sandbox. If the machine runs out of memory, a
/// sandbox ends before the server and the host's own services.
pub const OOM_SCORE_ADJUSTMENT: i16 = 500;

/// Name of the sandbox's user and group.
pub const USER_NAME: &str = "agent";

/// Variables of the agent's environment that are the same in every sandbox.
pub const ENVIRONMENT: [(&str, &str); 4] =
    [("HOME", sandbox_paths::HOME), ("USER", USER_NAME), ("LOGNAME", USER_NAME), ("LANG", "C.UTF-8")];

/// Returns the content of `/etc/passwd`, with `shell` as the shell of the sandbox's user.
pub fn passwd_file(uid: u32, gid: u32, shell: &str) -> String {
    let home = sandbox_paths::HOME;
    format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n{USER_NAME}:x:{uid}:{gid}:{USER_NAME}:{home}:{shell}\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
}

/// Returns the content of `/etc/group`.
pub fn group_file(gid: u32) -> String {
    format!("root:x:0:\n{USER_NAME}:x:{gid}:\nnogroup:x:65534:\n")
}

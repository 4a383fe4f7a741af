//! Construction of the jail: namespaces, the host's files inside, and limits. Only this file names
//! `hakoniwa`.
//!
//! ```text
//! /usr, /bin → usr/bin …   the host's programs, read-only
//! /etc                     what programs need to run; nothing about the host or its users
//! /workspace, /home/agent  the session's own
//! /greenroom/bin, /run     the agent and its two sockets
//! /tmp, /dev/shm           memory, limited in size
//! /proc                    of its own pid namespace
//! /dev                     null, zero, full, random, urandom, tty and terminals
//! ```
//!
//! The first process completes the jail from inside: it hides files of the kernel
//! ([`kernel_files`](crate::kernel_files)) and restricts access by path
//! ([`landlock_rules`](crate::landlock_rules)).
//!
//! Other paths of the host do not exist inside: no `/run`, `/var`, `/root`, `/home`, `/sys`, and so
//! no socket of the host.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
};

use greenroom_jailer::{confinement, request::JailRequest};
use greenroom_protocol::sandbox_paths;
use hakoniwa::{Child, Container, MountOptions, Namespace, Rlimit, Stdio};
use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    process::{Resource, getrlimit},
};

use crate::init::{self, InitPlan};

/// Programs and their libraries: links into `/usr` on most hosts, directories of their own on
/// others.
pub const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Files in `/etc` that programs read, if the host has them. No keys, no accounts, no host names.
const ETC_PATHS: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/chromium.d",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
];

/// Jail that is being started. Its first process reports on `control_socket` that it is inside, or
/// the reason of a failure.
pub struct JailHandle {
    pub control_socket: UnixStream,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    child: Child,
}

impl JailHandle {
    /// Process id of the builder, which waits for the first process from outside the sandbox's pid
    /// namespace.
    pub fn builder(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the builder, and returns the reason for a failed start.
    pub fn failure_reason(&mut self) -> String {
        self.child.wait().map_or_else(|e| e.to_string(), |status| status.reason)
    }

    /// Ends the builder, which has no more work. The first process becomes a child of the jailer,
    /// which must be a subreaper.
    pub fn dismiss_builder(&mut self) -> io::Result<()> {
        self.child.kill().map_err(io::Error::other)?;
        self.child.wait().map(drop).map_err(io::Error::other)
    }
}

/// Builds the jail and starts [`init`] inside, as the calling user.
pub fn build(request: &JailRequest, plan: InitPlan) -> io::Result<JailHandle> {
    let (control_socket, inner_socket) = UnixStream::pair()?;
    let container = container(request)?;
    // SAFETY: the closure runs in a fork of this process, which has one thread, so no other thread
    // holds a lock.
    let mut command = unsafe { container.command_from_closure(move || init::main(&plan)) };
    command.stdin(OwnedFd::from(inner_socket)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io::Error::other)?;
    let ends = child.stdout.take().zip(child.stderr.take());
    let (stdout, stderr) = ends.ok_or_else(|| io::Error::other("the jail has no output"))?;
    Ok(JailHandle { control_socket, stdout: stdout.into(), stderr: stderr.into(), child })
}

fn container(request: &JailRequest) -> io::Result<Container> {
    let mut container = Container::empty();
    for namespace in [Namespace::Mount, Namespace::Pid, Namespace::Network, Namespace::Ipc, Namespace::Uts] {
        container.unshare(namespace);
    }
    if request.user_namespace {
        container.unshare(Namespace::User).uidmap(request.uid).gidmap(request.gid);
    }
    container.hostname("greenroom").rootdir(&request.sources.root);
    programs(&mut container)?;
    etc_files(&mut container, request)?;
    own_directories(&mut container, request)?;
    memory_file_systems(&mut container, request);
    limits(&mut container, request);
    Ok(container)
}

fn programs(container: &mut Container) -> io::Result<()> {
    for path in PROGRAMS {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                container.symlink(utf8_path(&fs::read_link(path)?)?, path);
            }
            Ok(_) => bind(container, Path::new(path), path, MountAccess::Read)?,
            Err(_) => {}
        }
    }
    Ok(())
}

fn etc_files(container: &mut Container, request: &JailRequest) -> io::Result<()> {
    let (uid, gid) = (request.uid, request.gid);
    container.dir("/etc", 0o755);
    for path in ETC_PATHS {
        if Path::new(path).exists() {
            bind(container, Path::new(path), path, MountAccess::Read)?;
        }
    }
    container.file("/etc/passwd", &confinement::passwd_file(uid, gid, "/bin/bash"));
    container.file("/etc/group", &confinement::group_file(gid));
    container.file("/etc/hosts", "127.0.0.1 localhost greenroom\n::1 localhost\n");
    container.file("/etc/hostname", "greenroom\n");
    container.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
    container.file("/etc/resolv.conf", "# no network\n");
    container.file("/etc/shells", "/bin/sh\n/bin/bash\n");
    Ok(())
}

fn own_directories(container: &mut Container, request: &JailRequest) -> io::Result<()> {
    let sources = &request.sources;
    bind(container, &sources.agent, sandbox_paths::AGENT_BINARY, MountAccess::Read)?;
    bind(container, &sources.run, "/greenroom/run", MountAccess::Read)?;
    bind(container, &sources.run_agent, "/greenroom/run/agent", MountAccess::Write)?;
    bind(container, &sources.workspace, sandbox_paths::WORKSPACE, MountAccess::Write)?;
    bind(container, &sources.home, sandbox_paths::HOME, MountAccess::Write)?;
    for volume in &request.volumes {
        let access = if volume.writable { MountAccess::Write } else { MountAccess::Read };
        bind(container, &volume.host, utf8_path(&volume.inside)?, access)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MountAccess {
    Read,
    Write,
}

/// Mounts a file or directory of the host. Restrictions of its file system stay.
///
/// A user namespace may add `nosuid`, `nodev` and similar flags. The kernel rejects a mount that
/// omits an existing flag.
fn bind(container: &mut Container, host: &Path, inside: &str, access: MountAccess) -> io::Result<()> {
    let described = |e: io::Error| io::Error::new(e.kind(), format!("mount `{}`: {e}", host.display()));
    let host_flags = statvfs(host).map_err(|e| described(e.into()))?.f_flag;
    let mut options = MountOptions::BIND | MountOptions::REC | MountOptions::NOSUID | MountOptions::NODEV;
    if access == MountAccess::Read || host_flags.contains(StatVfsMountFlags::RDONLY) {
        options |= MountOptions::RDONLY;
    }
    if host_flags.contains(StatVfsMountFlags::NOEXEC) {
        options |= MountOptions::NOEXEC;
    }
    container.mount(utf8_path(host)?, inside, "", options, None);
    Ok(())
}

fn utf8_path(path: &Path) -> io::Result<&str> {
    let not_utf8 = || io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` is not UTF-8", path.display()));
    path.to_str().ok_or_else(not_utf8)
}

/// Mounts file systems in memory. A control group counts their files as memory. Without one, the
/// size limits here apply.
fn memory_file_systems(container: &mut Container, request: &JailRequest) {
    let options = MountOptions::NOSUID | MountOptions::NODEV;
    let size = |part: u64| Some(format!("mode=1777,size={},nr_inodes=262144", request.limits.memory_bytes / part));
    container.procfsmount("/proc").devfsmount("/dev");
    container.mount("tmpfs", "/tmp", "tmpfs", options, size(2));
    container.mount("tmpfs", "/dev/shm", "tmpfs", options, size(4));
    container.symlink("/tmp", "/var/tmp").dir("/var", 0o755);
}

fn limits(container: &mut Container, request: &JailRequest) {
    let cgroup = request.cgroup.as_ref();
    container.setrlimit(Rlimit::Core, 0, 0);
    for (limit, resource, value) in [
        (Rlimit::Nofile, Resource::Nofile, confinement::OPEN_FILES),
        (Rlimit::Sigpending, Resource::Sigpending, confinement::PENDING_SIGNALS),
        (Rlimit::Msgqueue, Resource::Msgqueue, confinement::MESSAGE_QUEUE_BYTES),
    ] {
        let value = getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        container.setrlimit(limit, value, value);
    }
    if request.user_namespace && !cgroup.is_some_and(|cgroup| cgroup.limits_pids()) {
        // Since Linux 5.14, counted per user namespace, which is per sandbox. Before, counted per
        // user, and all sandboxes share one user.
        container.setrlimit(Rlimit::Nproc, request.limits.pids, request.limits.pids);
    }
    if !cgroup.is_some_and(|cgroup| cgroup.limits_memory()) {
        // Limits memory that a process may write, not reserved memory: node and browsers reserve
        // far more than a machine has.
        container.setrlimit(Rlimit::Data, request.limits.memory_bytes, request.limits.memory_bytes);
    }
}

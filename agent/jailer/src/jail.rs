//! The walls, and the only file that names `hakoniwa`: which namespaces, which files of the host and how, which limits.
//!
//! ```text
//! /usr, /bin → usr/bin …   the host's programs, read-only
//! /etc                     what they need to run, and nothing that tells of the host or its people
//! /workspace, /home/agent  the session's own
//! /greenroom/bin, /run     the agent and its two sockets
//! /tmp, /dev/shm           memory, limited in size
//! /proc, /dev              of its own pid namespace; null, zero, full, random, urandom, tty and terminals
//! ```
//!
//! The rest of the host is not there: no `/run`, `/var`, `/root`, `/home`, `/sys`, and so no socket of the host either.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
};

use greenroom_jailer::{landlock_available, request::JailRequest};
use greenroom_protocol::sandbox_paths;
use hakoniwa::{
    Child, Container, MountOptions, Namespace, Rlimit, Stdio,
    landlock::{CompatMode, FsAccess, Resource, Ruleset},
};
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::init::{self, InitPlan};

/// Programs and their libraries: links into `/usr` on most hosts, directories of their own on others.
const PROGRAMS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What programs read from `/etc`, where the host has it. No keys, no accounts, no names of the host.
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

/// The devices that may be written; the directory itself may not, or it would be a file system without a limit.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/ptmx"];

/// As many as a build or a browser opens, and less than what the host has.
const OPEN_FILES: u64 = 65_536;

/// A sandbox that is being made: its first process is behind the walls, or says on `line` why not.
pub struct JailHandle {
    pub control_socket: UnixStream,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
    child: Child,
}

impl JailHandle {
    /// The process that has built the walls, and waits for the sandbox's first process from outside its pid namespace.
    pub fn builder(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits for the builder, and says why there was no beginning.
    pub fn failure_reason(&mut self) -> String {
        self.child.wait().map_or_else(|e| e.to_string(), |status| status.reason)
    }

    /// Ends the builder, who has no more to do. The first process becomes the keeper's own child, who must be a subreaper.
    pub fn dismiss_builder(&mut self) -> io::Result<()> {
        self.child.kill().map_err(io::Error::other)?;
        self.child.wait().map(drop).map_err(io::Error::other)
    }
}

/// Builds the walls and starts [`init`] behind them, as the calling user.
pub fn build(order: &JailRequest, plan: InitPlan) -> io::Result<JailHandle> {
    let (line, inner_line) = UnixStream::pair()?;
    let container = container(order)?;
    // SAFETY: the closure runs in a fork of this process, which has one thread, so no lock is left held by another.
    let mut command = unsafe { container.command_from_closure(move || init::main(&plan)) };
    command.stdin(OwnedFd::from(inner_line)).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(io::Error::other)?;
    let ends = child.stdout.take().zip(child.stderr.take());
    let (stdout, stderr) = ends.ok_or_else(|| io::Error::other("the jail has no output"))?;
    Ok(JailHandle { control_socket: line, stdout: stdout.into(), stderr: stderr.into(), child })
}

fn container(order: &JailRequest) -> io::Result<Container> {
    let mut container = Container::empty();
    for namespace in [Namespace::Mount, Namespace::Pid, Namespace::Network, Namespace::Ipc, Namespace::Uts] {
        container.unshare(namespace);
    }
    if order.user_namespace {
        container.unshare(Namespace::User).uidmap(order.uid).gidmap(order.gid);
    }
    container.hostname("greenroom").rootdir(&order.sources.root);
    programs(&mut container)?;
    etc_files(&mut container, order)?;
    own_directories(&mut container, order)?;
    memory_file_systems(&mut container, order);
    limits(&mut container, order);
    if landlock_available() {
        container.landlock_ruleset(landlock(order));
    }
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

fn etc_files(container: &mut Container, order: &JailRequest) -> io::Result<()> {
    let (uid, gid) = (order.uid, order.gid);
    container.dir("/etc", 0o755);
    for path in ETC_PATHS {
        if Path::new(path).exists() {
            bind(container, Path::new(path), path, MountAccess::Read)?;
        }
    }
    let passwd = format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:{uid}:{gid}:agent:{}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        sandbox_paths::HOME
    );
    container.file("/etc/passwd", &passwd);
    container.file("/etc/group", &format!("root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n"));
    container.file("/etc/hosts", "127.0.0.1 localhost greenroom\n::1 localhost\n");
    container.file("/etc/hostname", "greenroom\n");
    container.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n");
    container.file("/etc/resolv.conf", "# no network\n");
    container.file("/etc/shells", "/bin/sh\n/bin/bash\n");
    Ok(())
}

fn own_directories(container: &mut Container, order: &JailRequest) -> io::Result<()> {
    let sources = &order.sources;
    bind(container, &sources.agent, sandbox_paths::AGENT_BINARY, MountAccess::Read)?;
    bind(container, &sources.run, "/greenroom/run", MountAccess::Read)?;
    bind(container, &sources.run_agent, "/greenroom/run/agent", MountAccess::Write)?;
    bind(container, &sources.workspace, sandbox_paths::WORKSPACE, MountAccess::Write)?;
    bind(container, &sources.home, sandbox_paths::HOME, MountAccess::Write)?;
    for volume in &order.volumes {
        let right = if volume.writable { MountAccess::Write } else { MountAccess::Read };
        bind(container, &volume.host, utf8_path(&volume.inside)?, right)?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MountAccess {
    Read,
    Write,
}

/// Mounts a file or directory of the host. What its file system forbids stays forbidden: a user namespace may add to
/// `nosuid`, `nodev` and the like, and is refused when it leaves one out.
fn bind(container: &mut Container, host: &Path, inside: &str, right: MountAccess) -> io::Result<()> {
    let described = |e: io::Error| io::Error::new(e.kind(), format!("mount `{}`: {e}", host.display()));
    let forbidden = statvfs(host).map_err(|e| described(e.into()))?.f_flag;
    let mut options = MountOptions::BIND | MountOptions::REC | MountOptions::NOSUID | MountOptions::NODEV;
    if right == MountAccess::Read || forbidden.contains(StatVfsMountFlags::RDONLY) {
        options |= MountOptions::RDONLY;
    }
    if forbidden.contains(StatVfsMountFlags::NOEXEC) {
        options |= MountOptions::NOEXEC;
    }
    container.mount(utf8_path(host)?, inside, "", options, None);
    Ok(())
}

fn utf8_path(path: &Path) -> io::Result<&str> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` is not UTF-8", path.display()));
    path.to_str().ok_or_else(refused)
}

/// Files in memory count as memory where a control group counts it, and are limited here where none does.
fn memory_file_systems(container: &mut Container, order: &JailRequest) {
    let options = MountOptions::NOSUID | MountOptions::NODEV;
    let size = |part: u64| Some(format!("mode=1777,size={},nr_inodes=262144", order.limits.memory_bytes / part));
    container.procfsmount("/proc").devfsmount("/dev");
    container.mount("tmpfs", "/tmp", "tmpfs", options, size(2));
    container.mount("tmpfs", "/dev/shm", "tmpfs", options, size(4));
    container.symlink("/tmp", "/var/tmp").dir("/var", 0o755);
}

fn limits(container: &mut Container, order: &JailRequest) {
    let counted = order.cgroup.as_ref();
    container.setrlimit(Rlimit::Core, 0, 0);
    let most =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    container.setrlimit(Rlimit::Nofile, most, most);
    if order.user_namespace && !counted.is_some_and(|cgroup| cgroup.limits_pids()) {
        // Counted for each user namespace since Linux 5.14, which is to say for each sandbox; elsewhere for the user, whom
        // all sandboxes share.
        container.setrlimit(Rlimit::Nproc, order.limits.pids, order.limits.pids);
    }
    if !counted.is_some_and(|cgroup| cgroup.limits_memory()) {
        // What a process may write to, not what it reserves: node and browsers reserve far more than a machine has.
        container.setrlimit(Rlimit::Data, order.limits.memory_bytes, order.limits.memory_bytes);
    }
}

/// A second wall around files, which also holds where a mount below a read-only one is writable.
fn landlock(order: &JailRequest) -> Ruleset {
    let (read, write) = (FsAccess::R, FsAccess::R | FsAccess::W);
    let mut ruleset = Ruleset::default();
    ruleset.restrict(Resource::FS, CompatMode::Enforce).allow_path("/", read).allow_path("/proc", write);
    for path in PROGRAMS.iter().copied().filter(|path| Path::new(path).exists()) {
        ruleset.allow_path(path, read | FsAccess::X);
    }
    for path in DEVICES {
        ruleset.allow_path(path, write);
    }
    ruleset.allow_path("/greenroom/bin", read | FsAccess::X).allow_path("/greenroom/run/agent", write);
    for path in [sandbox_paths::WORKSPACE, sandbox_paths::HOME, "/tmp", "/dev/shm"] {
        ruleset.allow_path(path, write | FsAccess::X);
    }
    for volume in &order.volumes {
        let writable = if volume.writable { FsAccess::W } else { FsAccess::empty() };
        ruleset.allow_path(&volume.inside.to_string_lossy(), read | FsAccess::X | writable);
    }
    ruleset
}

//! Probe: builds a test jail to find out what the kernel permits. Also the text that describes the
//! isolation.

use std::{fs, path::Path};

use bytesize::ByteSize;
use greenroom_jailer::{cgroup::NodeCgroups, landlock_available};

use super::{ProcessDriver, blocking::failed};
use crate::{
    config::{SandboxLimits, SandboxNetwork},
    sandbox::{RunDir, SandboxDriver, SandboxError, SandboxSpec},
    store::SessionId,
};

/// Programs that exit at once, as the probe's agent. One of them exists on every host.
const NOOP_AGENTS: [&str; 2] = ["/usr/bin/true", "/bin/true"];

/// Builds a jail with all parts of a real one, and removes it.
pub(super) async fn probe_jail(driver: &ProcessDriver) -> Result<(), SandboxError> {
    let session = SessionId::generate();
    // A sibling of the sandboxes' directories. The name is no session id, so no list shows the
    // probe.
    let probe_dir = driver.node.sandboxes.join(format!("trial-{session}"));
    let started = match prepare_spec(&probe_dir, session) {
        Ok(spec) => driver.launch(&spec).await,
        Err(e) => Err(failed("prepare a probe")(e)),
    };
    let removed = driver.remove(session).await;
    // Only empty directories could be left.
    let _ = fs::remove_dir_all(probe_dir);
    started.and(removed)
}

/// Removes the directories of probes whose servers were killed.
pub(super) fn remove_leftovers(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("trial-") {
            // Retried at the next start. Until then the directory does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn prepare_spec(probe_dir: &Path, session: SessionId) -> std::io::Result<SandboxSpec> {
    let (workspace, home) = (probe_dir.join("workspace"), probe_dir.join("home"));
    fs::create_dir_all(&workspace)?;
    fs::create_dir_all(&home)?;
    // Any user id is possible. Without root, the driver uses its own.
    let (uid, gid) = (65_534, 65_534);
    let run = RunDir::of(probe_dir, session);
    run.prepare(uid, gid)?;
    let agent = NOOP_AGENTS.iter().find(|path| Path::new(path).exists()).unwrap_or(&NOOP_AGENTS[0]).into();
    let limits = SandboxLimits { memory: ByteSize::mib(64), cpus: 1.0, pids: 16 };
    let volumes = Vec::new();
    Ok(SandboxSpec {
        session,
        image: String::new(),
        run,
        agent,
        workspace,
        home,
        volumes,
        uid,
        gid,
        limits,
        network: SandboxNetwork::None,
    })
}

/// Adds the kernel setting that explains an error, if one is known.
pub(super) fn explain(detail: &str) -> String {
    let has_value = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    let settings = [
        ("kernel/unprivileged_userns_clone", "0", "`kernel.unprivileged_userns_clone = 0` forbids user namespaces"),
        ("user/max_user_namespaces", "0", "`user.max_user_namespaces = 0` forbids user namespaces"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "`kernel.apparmor_restrict_unprivileged_userns = 1` removes the privileges from user namespaces",
        ),
    ];
    let setting = settings.iter().find(|(name, value, _)| has_value(&format!("/proc/sys/{name}"), value));
    let masked_proc = detail.contains("proc") && detail.contains("EPERM");
    match setting {
        Some((_, _, reason)) => format!("{reason} ({detail})"),
        None if masked_proc => format!("parts of `/proc` are masked, as in a container ({detail})"),
        None => detail.to_owned(),
    }
}

/// Describes the isolation for the user.
pub(super) fn isolation(cgroups: Option<&NodeCgroups>, unconfined: bool) -> String {
    let mut text = String::from(
        "The agent runs on this machine's kernel, as an ordinary user without privileges, behind namespaces and a system \
         call filter. It sees the programs in /usr, its workspace and its home. It sees no other file, process or socket \
         of this host, and no network.",
    );
    if !landlock_available() {
        text.push_str(" This kernel has no Landlock, so files have one layer of protection less.");
    }
    text.push_str(match cgroups {
        Some(cgroups) if cgroups.limits_memory() && cgroups.limits_cpu() => {
            " Memory, CPU and processes are limited by control groups."
        }
        Some(_) => {
            " Memory is limited per process only, and CPU time is not limited: the control groups here cannot do it."
        }
        None => {
            " Memory is limited per process only, CPU time is not limited, and pausing works by signals, because control \
             groups are not available."
        }
    });
    text.push_str(
        " Disk space is not limited. A kernel vulnerability is a way out; Docker with gVisor isolates better.",
    );
    if unconfined {
        text.push_str(
            " WARNING: `sandbox.unconfined` is set: if this kernel denies user namespaces, root itself builds the jail, \
             and a mistake there gives root to the agent.",
        );
    }
    text
}

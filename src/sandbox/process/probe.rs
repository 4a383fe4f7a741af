//! Whether this kernel can confine, found out by doing it; and what the walls hold, said plainly.

use std::{fs, path::Path};

use greenroom_jailer::{cgroup::NodeCgroups, landlock_available};

use super::ProcessDriver;
use crate::{
    sandbox::{RunDir, SandboxDriver, SandboxError, SandboxLimits, SandboxNetwork, SandboxSpec},
    store::SessionId,
};

/// Does nothing, and is on every host; an agent that ends at once.
const NOOP_AGENTS: [&str; 2] = ["/usr/bin/true", "/bin/true"];

/// Builds a jail with everything that a real one has, and takes it down again.
pub(super) async fn probe_jail(driver: &ProcessDriver) -> Result<(), SandboxError> {
    let session = SessionId::generate();
    // Beside the sandboxes' own directories, and not a session's name, so that no list shows it.
    let trial = driver.options.state.join(format!("trial-{session}"));
    let started = match prepare_spec(&trial, session) {
        Ok(spec) => driver.launch(&spec).await,
        Err(e) => Err(super::failed("furnish a trial")(e)),
    };
    let removed = driver.remove(session).await;
    // What is left of it would only be empty directories.
    let _ = fs::remove_dir_all(trial);
    started.and(removed)
}

/// Removes the trials of servers that were killed at it.
pub(super) fn remove_leftovers(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("trial-") {
            // Tried again at the next start, and in nobody's way until then.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn prepare_spec(trial: &Path, session: SessionId) -> std::io::Result<SandboxSpec> {
    let (workspace, home) = (trial.join("workspace"), trial.join("home"));
    fs::create_dir_all(&workspace)?;
    fs::create_dir_all(&home)?;
    // Any user will do; as an ordinary one, the driver takes its own.
    let (uid, gid) = (65_534, 65_534);
    let run = RunDir::of(trial, session);
    run.prepare(uid, gid)?;
    let agent = NOOP_AGENTS.iter().find(|path| Path::new(path).exists()).unwrap_or(&NOOP_AGENTS[0]).into();
    let limits = SandboxLimits { memory_bytes: 64 << 20, cpus: 1.0, pids: 16 };
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

/// What the kernel answered, and the setting behind it where one is known.
pub(super) fn explain(detail: &str) -> String {
    let reads = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == value);
    let settings = [
        ("kernel/unprivileged_userns_clone", "0", "`kernel.unprivileged_userns_clone = 0` forbids user namespaces"),
        ("user/max_user_namespaces", "0", "`user.max_user_namespaces = 0` forbids user namespaces"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "`kernel.apparmor_restrict_unprivileged_userns = 1` takes the rights out of user namespaces",
        ),
    ];
    let found = settings.iter().find(|(name, value, _)| reads(&format!("/proc/sys/{name}"), value));
    let masked_proc = detail.contains("proc") && detail.contains("EPERM");
    match found {
        Some((_, _, why)) => format!("{why} ({detail})"),
        None if masked_proc => format!("parts of `/proc` are covered here, as in a container ({detail})"),
        None => detail.to_owned(),
    }
}

/// For the person at the screen.
pub(super) fn isolation(cgroups: Option<&NodeCgroups>, unconfined: bool) -> String {
    let mut text = String::from(
        "The agent runs on this machine's own kernel, as an ordinary user without any privilege, behind namespaces and a \
         system call filter: it sees the programs in /usr, its workspace and its home, no other file, process or socket \
         of this host, and no network.",
    );
    if !landlock_available() {
        text.push_str(" This kernel has no Landlock, so files have one wall less.");
    }
    text.push_str(match cgroups {
        Some(cgroups) if cgroups.limits_memory() && cgroups.limits_cpu() => {
            " Memory, CPU and processes are limited by control groups."
        }
        Some(_) => {
            " Memory is limited for each process only, and CPU time is not limited: control groups cannot do it here."
        }
        None => {
            " Memory is limited for each process only, CPU time is not limited, and pausing works by signals, because \
             control groups cannot be had here."
        }
    });
    text.push_str(" Disk space is not limited. A hole in the kernel is a way out; Docker with gVisor holds better.");
    if unconfined {
        text.push_str(" WARNING: `sandbox.unconfined` is set: where this kernel refuses user namespaces, root itself builds the walls, \
             and a mistake in them is root's.");
    }
    text
}

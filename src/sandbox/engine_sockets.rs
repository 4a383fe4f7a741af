//! Check that no directory of a sandbox contains the socket of a container engine.
//!
//! A process that reaches such a socket controls the whole machine.

use std::path::{Path, PathBuf};

use super::{SandboxError, SandboxSpec};

/// Default sockets of container engines.
const DEFAULT_SOCKETS: [&str; 4] =
    ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// Rejects a sandbox if one of its directories contains the socket of an engine.
///
/// Checked are `own` and the default sockets of engines. An engine that does not listen now may be
/// started while the sandbox runs. A read-only mount does not prevent a connection.
pub(super) fn reject_engine_sockets(spec: &SandboxSpec, own: Option<&Path>) -> Result<(), SandboxError> {
    let hosts = spec.volumes.iter().map(|volume| &volume.host).chain([&spec.workspace]);
    let sockets = || own.into_iter().map(Path::to_owned).chain(default_sockets());
    for host in hosts {
        if let Some(socket) = sockets().find(|socket| canonical(socket).starts_with(canonical(host))) {
            let detail = format!(
                "volume `{}` contains a container engine's socket (`{}`), which gives access to the whole machine; \
                 remove it from the volumes",
                host.display(),
                socket.display()
            );
            return Err(SandboxError::Failed { what: "start", detail });
        }
    }
    Ok(())
}

fn default_sockets() -> impl Iterator<Item = PathBuf> {
    // Sockets of a rootless engine.
    let rootless = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let rootless = rootless.into_iter().flat_map(|dir| [dir.join("docker.sock"), dir.join("podman/podman.sock")]);
    DEFAULT_SOCKETS.into_iter().map(PathBuf::from).chain(rootless)
}

/// Resolves the links in `path`, as far as the path exists.
pub(super) fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonical(parent).join(name),
        _ => path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::{
        config::{SandboxLimits, SandboxNetwork, SandboxVolume, VolumeAccess},
        sandbox::RunDir,
        store::SessionId,
    };

    fn spec(workspace: &Path, volume: &Path) -> SandboxSpec {
        let session = SessionId::generate();
        SandboxSpec {
            session,
            image: String::new(),
            run: RunDir::of(Path::new("/data/run"), session),
            agent: "/data/bin/agent".into(),
            workspace: workspace.to_owned(),
            home: "/data/home".into(),
            volumes: vec![SandboxVolume {
                host: volume.to_owned(),
                inside: "/v".into(),
                access: VolumeAccess::ReadOnly,
            }],
            uid: 1000,
            gid: 1000,
            limits: SandboxLimits { memory: bytesize::ByteSize::gib(1), cpus: 1.0, pids: 64 },
            network: SandboxNetwork::None,
        }
    }

    #[test]
    fn directories_with_engine_sockets_are_rejected() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plain, engine, link) = (dir.path().join("plain"), dir.path().join("engine"), dir.path().join("link"));
        std::fs::create_dir(&plain).and_then(|()| std::fs::create_dir(&engine)).expect("directories are created");
        symlink(&engine, &link).expect("a link");
        let own = link.join("own.sock");
        let check = |path: &Path, rejected: bool| {
            for spec in [spec(path, &plain), spec(&plain, path)] {
                let result = reject_engine_sockets(&spec, Some(&own)).map_err(|e| e.to_string());
                assert_eq!(result.is_err(), rejected, "{path:?}: {result:?}");
                assert!(
                    result.is_ok() || result.expect_err("sandbox is rejected").contains(&path.display().to_string())
                );
            }
        };
        for path in ["/", "/run", "/var/run", "/var/run/docker.sock", "/run/podman"] {
            check(Path::new(path), true);
        }
        // No socket exists below these paths yet. One path is a link.
        for path in [&engine, &link, &own, &engine.join("own.sock"), dir.path()] {
            check(path, true);
        }
        check(&plain, false);
        check(&engine.join("beside"), false);
        check(Path::new("/srv"), false);
    }
}

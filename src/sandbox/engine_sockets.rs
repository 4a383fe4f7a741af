//! What a directory brings into a sandbox with it. The sockets of container engines are kept out: who reaches one has the whole
//! machine.

use std::path::{Path, PathBuf};

use super::{SandboxError, SandboxSpec, SandboxVolume};

/// Where engines listen, unless they are told otherwise.
const DEFAULT_SOCKETS: [&str; 4] =
    ["/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// Refuses a sandbox that would be given a directory with the socket of an engine, `own` or one that listens where engines do.
/// One that does not listen now may be started while the sandbox runs. A mount that is read-only keeps nobody from connecting.
pub(super) fn reject_engine_sockets(spec: &SandboxSpec, own: Option<&Path>) -> Result<(), SandboxError> {
    let given = spec.volumes.iter().map(|volume| &volume.host).chain([&spec.workspace]);
    let sockets = || own.into_iter().map(Path::to_owned).chain(default_sockets());
    for host in given {
        if let Some(socket) = sockets().find(|socket| canonical(socket).starts_with(canonical(host))) {
            let detail = format!(
                "the volume `{}` holds a container engine's socket (`{}`), and with it this whole machine; take it out of the \
                 volumes",
                host.display(),
                socket.display()
            );
            return Err(SandboxError::Failed { what: "start", detail });
        }
    }
    Ok(())
}

impl SandboxVolume {
    /// Whether it brings `dir` inside, or a part of it, whichever way leads there.
    pub fn overlaps(&self, dir: &Path) -> bool {
        let (host, dir) = (canonical(&self.host), canonical(dir));
        dir.starts_with(&host) || host.starts_with(&dir)
    }
}

fn default_sockets() -> impl Iterator<Item = PathBuf> {
    // Those of a user's own engine lie there.
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let of_user = of_user.into_iter().flat_map(|dir| [dir.join("docker.sock"), dir.join("podman/podman.sock")]);
    DEFAULT_SOCKETS.into_iter().map(PathBuf::from).chain(of_user)
}

/// `path` without links, as far as it is there.
fn canonical(path: &Path) -> PathBuf {
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
        sandbox::{RunDir, SandboxLimits, SandboxNetwork, VolumeAccess},
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
            limits: SandboxLimits { memory_bytes: 1 << 30, cpus: 1.0, pids: 64 },
            network: SandboxNetwork::None,
        }
    }

    #[test]
    fn no_engine_comes_in_with_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (plain, engine, link) = (dir.path().join("plain"), dir.path().join("engine"), dir.path().join("link"));
        std::fs::create_dir(&plain).and_then(|()| std::fs::create_dir(&engine)).expect("there is room");
        symlink(&engine, &link).expect("a link");
        let own = link.join("own.sock");
        let check = |path: &Path, refused: bool| {
            for spec in [spec(path, &plain), spec(&plain, path)] {
                let told = reject_engine_sockets(&spec, Some(&own)).map_err(|e| e.to_string());
                assert_eq!(told.is_err(), refused, "{path:?}: {told:?}");
                assert!(told.is_ok() || told.expect_err("it is refused").contains(&path.display().to_string()));
            }
        };
        for path in ["/", "/run", "/var/run", "/var/run/docker.sock", "/run/podman"] {
            check(Path::new(path), true);
        }
        // Also where it does not listen yet, and whichever way leads there.
        for path in [&engine, &link, &own, &engine.join("own.sock"), dir.path()] {
            check(path, true);
        }
        check(&plain, false);
        check(&engine.join("beside"), false);
        check(Path::new("/srv"), false);
    }

    #[test]
    fn a_directory_comes_in_with_what_holds_it_and_in_parts() {
        let dir = tempfile::tempdir().expect("a directory");
        let [data, link] = ["data", "link"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(data.join("journal")).expect("there is room");
        symlink(dir.path(), &link).expect("a link");
        let check = |host: &Path, expected: bool| {
            let volume = SandboxVolume { host: host.to_owned(), inside: "/v".into(), access: VolumeAccess::ReadOnly };
            for data in [&data, &link.join("data")] {
                assert_eq!(volume.overlaps(data), expected, "{host:?} and {data:?}");
            }
        };
        for host in [Path::new("/"), dir.path(), &link, &data, &data.join("journal"), &link.join("data/not/yet")] {
            check(host, true);
        }
        check(&dir.path().join("data2"), false);
        check(&link.join("beside"), false);
    }
}

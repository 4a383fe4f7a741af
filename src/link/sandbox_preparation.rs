//! Preparation of a start: the sandbox's directories, their owner, and its way to the gateway.

use std::{io, path::Path};

use super::{LinkDeps, sandbox_lifecycle::SandboxSupervisor};
use crate::sandbox::{SandboxHome, SandboxSpec, VolumeWarning, change_owner, volume_warnings};

impl SandboxSupervisor {
    /// Returns a closure that creates the run directory and opens the model egress. Directories
    /// that exist keep their owner, because a sandbox may be running.
    ///
    /// # Errors
    /// The closure fails with the path that could not be created.
    pub(super) fn open_run_dir(&self) -> impl FnOnce() -> io::Result<()> + Send + 'static {
        let (parts, egress, run) = (self.parts.clone(), self.egress.clone(), self.run.clone());
        move || {
            let (uid, gid) = parts.config.sandbox.user();
            run.prepare(uid, gid).map_err(at(run.root()))?;
            egress.open(&parts.gateway, || run.bind_gateway()).map_err(at(run.root()))
        }
    }

    /// Returns a closure that creates the directories of a sandbox that does not run, gives them to
    /// its user and opens its model egress. Directories that exist keep their content.
    ///
    /// # Errors
    /// The closure fails with the path that could not be created.
    pub(super) fn prepare(&self) -> impl FnOnce() -> io::Result<(SandboxSpec, Vec<VolumeWarning>)> + Send + 'static {
        let (id, parts, open_run_dir) = (self.id, self.parts.clone(), self.open_run_dir());
        let (run, image, recorded_uid) = (self.run.clone(), self.image.clone(), self.recorded_uid);
        move || {
            let LinkDeps { dirs, config, .. } = &*parts;
            open_run_dir()?;
            let SandboxHome { path: home, uid, gid } = dirs.homes.home_of(id, recorded_uid)?;
            let workspace = dirs.workspaces.dir_of(id).map_err(at(&dirs.workspaces.root))?;
            let own_workspace = dirs.workspaces.shared.is_none().then_some(&workspace);
            for tree in [&home, &run.agent()].into_iter().chain(own_workspace) {
                change_owner(tree, uid, gid).map_err(at(tree))?;
            }
            let warnings = volume_warnings(&config.sandbox.volumes, uid, gid);
            let spec = SandboxSpec {
                session: id,
                image,
                agent: dirs.agent.clone(),
                workspace,
                home,
                volumes: config.sandbox.mounted_volumes().cloned().collect(),
                uid,
                gid,
                limits: config.sandbox.limits,
                network: config.sandbox.network.clone(),
                run,
            };
            Ok((spec, warnings))
        }
    }
}

/// Returns a closure that adds the path to an error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error + use<> {
    let path = path.display().to_string();
    move |e| io::Error::new(e.kind(), format!("`{path}`: {e}"))
}

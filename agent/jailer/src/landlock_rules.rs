//! Second protection of files, by Landlock. Holds even if a mount below a read-only mount is
//! writable.

use std::path::Path;

use greenroom_jailer::{landlock_available, request::JailRequest};
use greenroom_protocol::sandbox_paths;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    path_beneath_rules,
};

use crate::{jail::PROGRAMS, kernel_files::MESSAGE_QUEUES};

/// Writable devices. The directory itself is read-only.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/ptmx"];

/// Newest kernel interface that the rules use. On an older kernel, the rights that it lacks are
/// left out.
const NEWEST: ABI = ABI::V5;

/// Access rights by path.
#[derive(Clone)]
pub struct LandlockRules {
    rules: Vec<(String, BitFlags<AccessFs>)>,
}

impl LandlockRules {
    /// Rules of a jail.
    ///
    /// `/proc` is not writable: a process could make itself the last victim when memory runs out.
    pub fn of(request: &JailRequest) -> LandlockRules {
        let execute = BitFlags::from(AccessFs::Execute);
        let (read, write) = (AccessFs::from_read(NEWEST) & !execute, AccessFs::from_all(NEWEST) & !execute);
        let mut rules = vec![
            ("/".to_owned(), read),
            ("/greenroom/bin".to_owned(), read | execute),
            ("/greenroom/run/agent".to_owned(), write),
        ];
        let programs = PROGRAMS.iter().filter(|path| Path::new(path).exists());
        rules.extend(programs.map(|path| ((*path).to_owned(), read | execute)));
        rules.extend(DEVICES.iter().map(|path| ((*path).to_owned(), write)));
        rules.push((MESSAGE_QUEUES.to_owned(), write));
        let own = [sandbox_paths::WORKSPACE, sandbox_paths::HOME, "/tmp", "/dev/shm"];
        rules.extend(own.map(|path| (path.to_owned(), write | execute)));
        for volume in &request.volumes {
            let access = if volume.writable { write } else { read };
            rules.push((volume.inside.to_string_lossy().into_owned(), access | execute));
        }
        LandlockRules { rules }
    }

    /// Restricts this process, and all that it starts. Does nothing on a kernel without Landlock.
    ///
    /// No mount can be changed afterwards.
    pub fn apply(&self) -> Result<(), RulesetError> {
        if !landlock_available() {
            return Ok(());
        }
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V1))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))?
            .create()?;
        for (path, access) in &self.rules {
            ruleset = ruleset.add_rules(path_beneath_rules([path], *access))?;
        }
        ruleset.restrict_self().map(drop)
    }
}

//! Check that no volume gives agents access to the data directory.

use std::path::{Path, PathBuf};

use super::engine_sockets::canonical;
use crate::config::SandboxVolume;

/// Volume that overlaps the data directory.
///
/// The directory's mode does not protect it from agents that run as this server's user. A read-only
/// mount still allows reading, and connecting to another session's gateway.
#[derive(Debug, thiserror::Error)]
#[error(
    "volume `{volume}` must not overlap the data directory `{data}`: agents could reach the token, keys and other \
     sessions; choose another data directory with `--data DIR`, or a narrower volume"
)]
pub struct DataDirExposed {
    volume: PathBuf,
    data: PathBuf,
}

/// Checks that no volume, including a shared workspace, gives agents access to `data`.
///
/// # Errors
/// Names the first volume that overlaps `data`.
pub fn check_volumes_exclude(volumes: &[SandboxVolume], data: &Path) -> Result<(), DataDirExposed> {
    match volumes.iter().find(|volume| overlaps(volume, data)) {
        Some(volume) => Err(DataDirExposed { volume: volume.host.clone(), data: data.to_owned() }),
        None => Ok(()),
    }
}

/// Returns true if the volume contains `dir`, or lies in it. Symbolic links are resolved.
fn overlaps(volume: &SandboxVolume, dir: &Path) -> bool {
    let (host, dir) = (canonical(&volume.host), canonical(dir));
    dir.starts_with(&host) || host.starts_with(&dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::VolumeAccess;

    #[test]
    fn volume_overlaps_parents_and_parts_of_a_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let [data, link] = ["data", "link"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(data.join("journal")).expect("directories are created");
        symlink(dir.path(), &link).expect("a link");
        let check = |host: &Path, expected: bool| {
            let volume = SandboxVolume { host: host.to_owned(), inside: "/v".into(), access: VolumeAccess::ReadOnly };
            for data in [&data, &link.join("data")] {
                assert_eq!(overlaps(&volume, data), expected, "{host:?} and {data:?}");
            }
        };
        for host in [Path::new("/"), dir.path(), &link, &data, &data.join("journal"), &link.join("data/not/yet")] {
            check(host, true);
        }
        check(&dir.path().join("data2"), false);
        check(&link.join("beside"), false);
    }
}

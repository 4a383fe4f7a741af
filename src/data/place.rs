//! Where a data directory was when a server first started on it there. A copy has its node's name too, and so its sandboxes:
//! beside the original it would take them away, as those of sessions that it does not know.

use std::path::Path;

use rustix::fs::OFlags;

use super::{DataDir, DataError, Taken, lock};

/// Holds the path.
const FILE: &str = "place";

impl DataDir {
    /// Remembers that `node` is here. One that was moved, or put back from a backup, goes on; a copy stays one for as long as its
    /// original is there, and the two are never used at a time: the original is returned, and is taken while that lives.
    ///
    /// # Errors
    /// [`DataError::Copy`] where a server uses the original; and where the file can be neither read nor written.
    pub fn settle(&self, node: &str) -> Result<Option<DataDir>, DataError> {
        let before = self.read_private(FILE)?;
        if let Some(mut original) = before.as_deref().and_then(|path| self.twin(Path::new(path), node)) {
            return match lock(&original.path, &original.dir, OFlags::RDWR) {
                Ok(lock) => {
                    original.lock = Some(lock);
                    Ok(Some(original))
                }
                Err(DataError::InUse { path }) => Err(DataError::Copy { path: self.path.clone(), original: path }),
                // Where it cannot be locked, as on a disk that takes no writes, no server starts either.
                Err(_) => Ok(None),
            };
        }
        // Of one whose path is no text no copy is recognised: no reason not to serve there.
        if let Some(here) = self.path.to_str().filter(|here| before.as_deref() != Some(*here)) {
            let at = |source| DataError::Io { path: self.path.join(FILE), source };
            self.put(FILE, here, Taken::Replace).map_err(at)?;
        }
        Ok(None)
    }

    /// What is at `path`, if that is another directory of the same node. What cannot be looked at is no server's of this user.
    fn twin(&self, path: &Path, node: &str) -> Option<DataDir> {
        let other = DataDir::at(path).ok()?;
        let (ours, theirs) = (rustix::fs::fstat(&self.dir).ok()?, rustix::fs::fstat(&other.dir).ok()?);
        let is_other = (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino);
        let is_twin = is_other && other.read_private("node").ok()?.as_deref() == Some(node);
        is_twin.then_some(other)
    }
}

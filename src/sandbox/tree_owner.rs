//! Change of the owner of a session's tree, from the user of its earlier sandboxes to another one.
//!
//! Content of the tree is hostile. No link is followed, no other file system is entered, and the
//! tree may be deeper than a stack. No sandbox runs on the tree meanwhile.

use std::{ffi::CString, io, path::Path};

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, fstat, openat, statat},
};

const OPEN_DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes `uid` and `gid` the owner of the tree and of everything in it that belonged to the tree's
/// previous owner. Does nothing if the tree belongs to them, or if this server is not root.
///
/// The topmost directory is changed last, so a change that was cut short is repeated.
///
/// # Errors
/// Fails if an entry cannot be read or changed. A missing tree is an error.
pub fn change_owner(tree: &Path, uid: u32, gid: u32) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let top = openat(CWD, tree, OPEN_DIR, Mode::empty())?;
    let found = fstat(&top)?;
    if (found.st_uid, found.st_gid) == (uid, gid) {
        return Ok(());
    }
    let change = OwnerChange { previous: found.st_uid, device: found.st_dev, uid, gid };
    change.below(openat(&top, ".", OPEN_DIR, Mode::empty())?)?;
    Ok(rustix::fs::fchown(&top, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

struct OwnerChange {
    previous: u32,
    device: u64,
    uid: u32,
    gid: u32,
}

impl OwnerChange {
    /// Changes all below `dir`. Holds one descriptor at a time, and returns upwards through `..`.
    fn below(&self, mut dir: OwnedFd) -> io::Result<()> {
        let mut levels = vec![self.entries_of(&dir)?];
        while let Some(remaining) = levels.last_mut() {
            match remaining.pop() {
                Some(name) => {
                    dir = openat(&dir, &name, OPEN_DIR, Mode::empty())?;
                    levels.push(self.entries_of(&dir)?);
                }
                None => {
                    levels.pop();
                    if !levels.is_empty() {
                        dir = openat(&dir, "..", OPEN_DIR, Mode::empty())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes the entries of `dir`. Returns its directories.
    fn entries_of(&self, dir: impl AsFd) -> io::Result<Vec<CString>> {
        let mut dirs = Vec::new();
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let Stat { st_uid, st_dev, st_mode, .. } = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if st_dev != self.device {
                continue;
            }
            if st_uid == self.previous {
                let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
                chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            if FileType::from_raw_mode(st_mode) == FileType::Directory {
                dirs.push(name.to_owned());
            }
        }
        Ok(dirs)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, lchown, symlink},
    };

    use super::*;

    fn owner(path: &Path) -> u32 {
        path.symlink_metadata().expect("entry exists").uid()
    }

    #[test]
    fn tree_changes_and_nothing_outside_it() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can change owners");
        }
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (tree, outside) = (temp.path().join("tree"), temp.path().join("outside"));
        fs::create_dir_all(tree.join("a/b/c")).expect("directories are created");
        fs::create_dir_all(tree.join("a/d")).expect("directories are created");
        fs::write(&outside, "").expect("file is written");
        symlink(&outside, tree.join("a/link")).expect("link is created");
        symlink(temp.path(), tree.join("a/way")).expect("link is created");
        fs::write(tree.join("a/b/c/file"), "").expect("file is written");
        fs::write(tree.join("kept"), "").expect("file is written");
        let inside = ["", "a", "a/b", "a/b/c", "a/b/c/file", "a/d", "a/link", "a/way"].map(|path| tree.join(path));
        for path in &inside {
            lchown(path, Some(10_001), Some(10_001)).expect("owner is changed");
        }
        change_owner(&tree, 10_002, 10_003).expect("the tree changes");
        for path in &inside {
            assert_eq!(owner(path), 10_002, "{}", path.display());
        }
        assert_eq!(
            [owner(&tree.join("kept")), owner(&outside), owner(temp.path())],
            [0; 3],
            "not the previous owner's"
        );
    }

    #[test]
    fn tree_deeper_than_descriptors_changes() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can change owners");
        }
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).expect("directory is created");
        let mut dir = openat(CWD, &tree, OPEN_DIR, Mode::empty()).expect("directory opens");
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&dir, "d", Mode::RWXU).expect("directory is created");
            dir = openat(&dir, "d", OPEN_DIR, Mode::empty()).expect("directory opens");
        }
        change_owner(&tree, 10_002, 10_002).expect("the tree changes");
        assert_eq!(fstat(&dir).expect("directory exists").st_uid, 10_002);
    }
}

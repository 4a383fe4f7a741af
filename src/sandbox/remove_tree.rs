//! Removal of a tree that an agent left.
//!
//! The tree may be deeper than a stack, hold more entries than fit into memory, or have no
//! permissions. Files are unlinked, and directories are moved up into the topmost directory. So
//! only direct subdirectories of an open directory are opened. The number of steps is the number of
//! files and directories.

use std::{
    ffi::CStr,
    fs::{self, Permissions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat},
    io::Errno,
    path::Arg,
};

/// Set when the server ends, which waits for no removal. An unacknowledged removal is requested
/// again.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// Cancels all removals in progress. They may take long.
pub fn cancel_all() {
    CANCELLED.store(true, Ordering::Relaxed);
}

/// Removes these trees with their content, on a separate thread. A missing tree is no error.
///
/// # Errors
/// Fails if an entry cannot be removed, or with [`io::ErrorKind::Interrupted`] after
/// [`cancel_all`].
pub async fn remove_trees(trees: Vec<PathBuf>) -> io::Result<()> {
    let removed = tokio::task::spawn_blocking(move || trees.iter().try_for_each(|tree| remove_tree(tree)));
    removed.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

/// Removes a tree with its content. A missing tree is no error.
///
/// # Errors
/// As for [`remove_trees`].
pub fn remove_tree(tree: &Path) -> io::Result<()> {
    if try_unlink(CWD, tree)? {
        return Ok(());
    }
    let Some(top) = open_dir(CWD, tree)? else { return Ok(()) };
    let mut moved_count = 0;
    while for_each_entry(&top, |name| {
        if !try_unlink(&top, name)?
            && let Some(dir) = open_dir(&top, name)?
        {
            move_contents_up(&dir, &top, &mut moved_count)?;
            try_unlink(&top, name)?;
        }
        Ok(())
    })? {}
    try_unlink(CWD, tree)?;
    Ok(())
}

/// Removes the files in `dir`, and moves its directories up into `top`.
fn move_contents_up(dir: &OwnedFd, top: &OwnedFd, moved_count: &mut u64) -> io::Result<()> {
    while for_each_entry(dir, |name| {
        if try_unlink(dir, name)? {
            return Ok(());
        }
        // Opening resets the permissions. A directory that is not writable cannot be moved.
        open_dir(dir, name)?;
        loop {
            *moved_count += 1;
            match renameat_with(dir, name, top, format!("moved-{moved_count}"), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    })? {}
    Ok(())
}

/// Calls `f` for each entry. Returns true if there was an entry.
fn for_each_entry(dir: &OwnedFd, mut f: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<bool> {
    let mut any = false;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if CANCELLED.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the server is shutting down"));
        }
        if ![c".", c".."].contains(&entry.file_name()) {
            any = true;
            f(entry.file_name())?;
        }
    }
    Ok(any)
}

/// Removes the entry unless it is a directory with content. Returns true if the entry is gone.
///
/// A symbolic link is removed as a file and not followed.
fn try_unlink(dir: impl AsFd, name: impl Arg + Copy) -> io::Result<bool> {
    match unlinkat(&dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(e) => return Err(e.into()),
    }
    match unlinkat(&dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Opens a directory and resets its permissions. Some tools make their cache directories
/// unreadable.
///
/// `None` if another caller removed the directory meanwhile.
fn open_dir(dir: impl AsFd, name: impl Arg + Copy) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path_fd = match openat(&dir, name, flags | OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        path_fd => path_fd?,
    };
    // The `openat` below reports the failure if the directory belongs to another user.
    let _ = fs::set_permissions(format!("/proc/self/fd/{}", path_fd.as_raw_fd()), Permissions::from_mode(0o700));
    match openat(&dir, name, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn removal_deletes_the_tree_and_nothing_outside() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (tree, beside) = (temp.path().join("tree"), temp.path().join("beside"));
        for dir in ["a/b/c", "a/moved-1", "moved-2/x", "locked/in"] {
            fs::create_dir_all(tree.join(dir)).expect("entry is created");
        }
        fs::write(&beside, "stays").expect("file is written");
        fs::create_dir(temp.path().join("dir")).expect("entry is created");
        fs::write(temp.path().join("dir/file"), "stays").expect("file is written");
        for file in ["f", "a/f", "a/b/c/f", "locked/in/f"] {
            fs::write(tree.join(file), "").expect("file is written");
        }
        symlink(&beside, tree.join("a/link")).expect("entry is created");
        symlink(temp.path().join("dir"), tree.join("a/b/link")).expect("entry is created");
        for locked in ["locked/in", "locked"] {
            fs::set_permissions(tree.join(locked), Permissions::from_mode(0o000)).expect("permissions are set");
        }
        remove_tree(&tree).expect("tree is removed");
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(&beside).expect("entry exists"), "stays");
        assert_eq!(fs::read_to_string(temp.path().join("dir/file")).expect("entry exists"), "stays");
        remove_tree(&tree).expect("missing tree is no error");
    }

    #[test]
    fn concurrent_removals_of_one_tree_both_succeed() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        for _ in 0..20 {
            let tree = temp.path().join("tree");
            for n in 0..300 {
                fs::create_dir_all(tree.join(format!("{}/{n}/x/y/z", n % 7))).expect("entry is created");
            }
            std::thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| remove_tree(&tree)));
                both.into_iter().for_each(|one| one.join().expect("thread does not panic").expect("tree is removed"));
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn removal_of_30000_levels_needs_no_deep_stack() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).expect("entry is created");
        let mut dir = open_dir(CWD, &*tree).expect("directory is readable").expect("directory exists");
        for _ in 0..30_000 {
            mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).expect("entry is created");
            dir = open_dir(&dir, "d").expect("directory is readable").expect("directory exists");
        }
        let small = std::thread::Builder::new().stack_size(128 << 10);
        small
            .spawn(move || remove_tree(&tree))
            .expect("thread starts")
            .join()
            .expect("thread does not panic")
            .expect("tree is removed");
        assert_eq!(fs::read_dir(temp.path()).expect("entry exists").count(), 0);
    }
}

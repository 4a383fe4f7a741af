//! Removes what an agent left, whatever it is: deeper than a stack, more than fits into memory, without any rights to it.
//!
//! A directory that is not empty is emptied into the topmost one: its files go, and its directories move up. So nothing is
//! ever opened but what lies right there, and it takes as many steps as there are files and directories.

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

/// The server ends, and waits for no removal: what was not acknowledged is asked for again.
static CANCELLED: AtomicBool = AtomicBool::new(false);

/// Ends whatever is being removed, as it may be much.
pub fn cancel_all() {
    CANCELLED.store(true, Ordering::Relaxed);
}

/// Removes these with all that is in them, on a thread of its own. One that is not there is no error.
pub async fn remove_trees(trees: Vec<PathBuf>) -> io::Result<()> {
    let removed = tokio::task::spawn_blocking(move || trees.iter().try_for_each(|tree| remove_tree(tree)));
    removed.await.unwrap_or_else(|e| Err(io::Error::other(e)))
}

fn remove_tree(tree: &Path) -> io::Result<()> {
    if try_unlink(CWD, tree)? {
        return Ok(());
    }
    let Some(top) = open_dir(CWD, tree)? else { return Ok(()) };
    let mut moved = 0;
    while for_each_entry(&top, |name| {
        if !try_unlink(&top, name)?
            && let Some(dir) = open_dir(&top, name)?
        {
            move_contents_up(&dir, &top, &mut moved)?;
            try_unlink(&top, name)?;
        }
        Ok(())
    })? {}
    try_unlink(CWD, tree)?;
    Ok(())
}

/// Removes the files in `dir`, and moves its directories to the `top`.
fn move_contents_up(dir: &OwnedFd, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    while for_each_entry(dir, |name| {
        if try_unlink(dir, name)? {
            return Ok(());
        }
        // Where its rights are ours to give: a directory that cannot be written cannot be moved.
        open_dir(dir, name)?;
        loop {
            *moved += 1;
            match renameat_with(dir, name, top, format!("moved-{moved}"), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    })? {}
    Ok(())
}

/// Whether there was anything.
fn for_each_entry(dir: &OwnedFd, mut f: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<bool> {
    let mut any = false;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if CANCELLED.load(Ordering::Relaxed) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the server ends"));
        }
        if ![c".", c".."].contains(&entry.file_name()) {
            any = true;
            f(entry.file_name())?;
        }
    }
    Ok(any)
}

/// Removes it unless it is a directory with something in it. No link is followed: it is a file of its own here.
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

/// Opens a directory that an agent may have made unreadable, as some tools do with what they cache. `None`: somebody else was
/// quicker to remove it.
fn open_dir(dir: impl AsFd, name: impl Arg + Copy) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = match openat(&dir, name, flags | OFlags::PATH, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        there => there?,
    };
    // Where it is not ours, what follows says so.
    let _ = fs::set_permissions(format!("/proc/self/fd/{}", there.as_raw_fd()), Permissions::from_mode(0o700));
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
    fn what_an_agent_left_goes_and_nothing_else() {
        let temp = tempfile::tempdir().expect("a directory");
        let (tree, beside) = (temp.path().join("tree"), temp.path().join("beside"));
        for dir in ["a/b/c", "a/moved-1", "moved-2/x", "locked/in"] {
            fs::create_dir_all(tree.join(dir)).expect("it is made");
        }
        fs::write(&beside, "stays").expect("it is written");
        fs::create_dir(temp.path().join("dir")).expect("it is made");
        fs::write(temp.path().join("dir/file"), "stays").expect("it is written");
        for file in ["f", "a/f", "a/b/c/f", "locked/in/f"] {
            fs::write(tree.join(file), "").expect("it is written");
        }
        symlink(&beside, tree.join("a/link")).expect("it is made");
        symlink(temp.path().join("dir"), tree.join("a/b/link")).expect("it is made");
        for locked in ["locked/in", "locked"] {
            fs::set_permissions(tree.join(locked), Permissions::from_mode(0o000)).expect("it is ours");
        }
        remove_tree(&tree).expect("it goes");
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(&beside).expect("it is there"), "stays");
        assert_eq!(fs::read_to_string(temp.path().join("dir/file")).expect("it is there"), "stays");
        remove_tree(&tree).expect("one that is not there is no error");
    }

    #[test]
    fn two_who_remove_the_same_do_not_disturb_each_other() {
        let temp = tempfile::tempdir().expect("a directory");
        for _ in 0..20 {
            let tree = temp.path().join("tree");
            for n in 0..300 {
                fs::create_dir_all(tree.join(format!("{}/{n}/x/y/z", n % 7))).expect("it is made");
            }
            std::thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| remove_tree(&tree)));
                both.into_iter().for_each(|one| one.join().expect("it lives").expect("it goes"));
            });
            assert!(!tree.exists());
        }
    }

    #[test]
    fn deeper_than_any_stack() {
        let temp = tempfile::tempdir().expect("a directory");
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).expect("it is made");
        let mut dir = open_dir(CWD, &*tree).expect("it is ours").expect("it is there");
        for _ in 0..30_000 {
            mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).expect("it is made");
            dir = open_dir(&dir, "d").expect("it is ours").expect("it is there");
        }
        let small = std::thread::Builder::new().stack_size(128 << 10);
        small.spawn(move || remove_tree(&tree)).expect("a thread").join().expect("it lives").expect("it goes");
        assert_eq!(fs::read_dir(temp.path()).expect("it is there").count(), 0);
    }
}

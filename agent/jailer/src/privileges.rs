//! Whom a process is, and which capabilities it has: root becomes the sandbox's user, and what it may still do is given up.

use rustix::{
    io::Result,
    process::{Gid, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

/// Becomes this user for good, with all capabilities that it was permitted; the caller says next which of them it keeps.
pub fn become_user(uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_keep_capabilities(false)
}

/// Gives up all capabilities but these. With the change of user they are permitted and not in effect; here they are.
pub fn retain_capabilities(kept: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// Gives up all of them, and the way in which a program could bring some back.
pub fn drop_all() -> Result<()> {
    for right in CapabilitySet::all().iter() {
        // The newest kernels know more of them than older ones, which say that there is no such thing.
        match rustix::thread::remove_capability_from_bounding_set(right) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
    }
    retain_capabilities(CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true)
}

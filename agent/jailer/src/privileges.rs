//! User and capabilities of a process: change from root to the sandbox's user, and dropping of
//! capabilities.

use rustix::{
    io::Result,
    process::{Gid, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

/// Changes to this user permanently. All permitted capabilities stay permitted, and the caller
/// drops them next.
pub fn become_user(uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_keep_capabilities(true)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    rustix::thread::set_keep_capabilities(false)
}

/// Drops all capabilities except `kept`, which become effective.
///
/// After a change of user, capabilities are permitted but not effective.
pub fn retain_capabilities(kept: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}

/// Drops all capabilities, and every way for a program to regain them.
pub fn drop_all() -> Result<()> {
    for capability in CapabilitySet::all().iter() {
        // An older kernel rejects the capabilities that only newer kernels have.
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e),
        }
    }
    retain_capabilities(CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true)
}

//! Memory allocator of the server: mimalloc for small blocks, the C library for large ones.
//!
//! - Frames are allocated on one thread and dropped on another all the time. The C library's
//!   allocator takes locks for this. With mimalloc a flooding agent's events pass a third faster,
//!   and each connection takes less memory.
//! - mimalloc gets no huge pages. An idle server would use a small part of each.
//! - The C library takes large buffers from the system one by one. They are zero without being
//!   touched, and return to the system when dropped. sled allocates 20 MiB of such buffers and uses
//!   little of it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
};

use libmimalloc_sys::{mi_option_set, mi_option_t};
use mimalloc::MiMalloc;

/// Smallest large buffer, in bytes. A large buffer takes memory for its used part only.
pub const LARGE_BUFFER: usize = 256 << 10;

/// Global allocator: small blocks from mimalloc, large ones from the system.
pub struct SplitAllocator;

/// mimalloc's option for the delay before an empty page returns to the system, in milliseconds.
/// `libmimalloc_sys` has no name for this option.
const PURGE_DELAY: mi_option_t = 15;

/// Configures both allocators to return unused memory to the system at once.
///
/// Must be called before a second thread exists. By default glibc keeps ever larger buffers, and
/// mimalloc keeps an empty page for 10 ms. mimalloc checks again only when the owning thread
/// allocates, so an idle thread keeps its pages for good. After a flood and a long replay that was
/// 20 MiB.
pub fn configure_purge() {
    // SAFETY: no other thread exists yet; both calls set a number of an allocator.
    unsafe {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER as libc::c_int);
        mi_option_set(PURGE_DELAY, 0);
    }
}

// SAFETY: the size in a block's layout alone decides which allocator owns the block. Callers must
// pass the same layout back. Both allocators keep the contract.
unsafe impl GlobalAlloc for SplitAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { if layout.size() < LARGE_BUFFER { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe {
            if layout.size() < LARGE_BUFFER { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; the size names the block's allocator.
        unsafe {
            if layout.size() < LARGE_BUFFER { MiMalloc.dealloc(block, layout) } else { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`. A block that changes its allocator is
        // copied before it is freed, up to the smaller of both sizes.
        unsafe {
            match (layout.size() < LARGE_BUFFER, size < LARGE_BUFFER) {
                (true, true) => MiMalloc.realloc(block, layout, size),
                (false, false) => System.realloc(block, layout, size),
                (true, false) | (false, true) => {
                    let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
                    if !moved.is_null() {
                        ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_number_is_the_purge_delay() {
        let output = std::process::Command::new(std::env::current_exe().expect("the test binary has a path"))
            .env("MIMALLOC_PURGE_DELAY", "1234")
            .args(["--exact", "allocator::tests::prints_the_purge_delay", "--ignored", "--nocapture"])
            .output()
            .expect("the test binary starts");
        assert!(String::from_utf8_lossy(&output.stdout).contains("the delay is 1234"), "{output:?}");
    }

    #[test]
    #[ignore = "`option_number_is_the_purge_delay` runs it in its own process"]
    fn prints_the_purge_delay() {
        // SAFETY: the call reads a number.
        println!("the delay is {}", unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) });
    }

    #[test]
    fn block_keeps_its_content_when_it_changes_allocator() {
        let mut size = 1000;
        let layout = |size| Layout::from_size_align(size, 64).expect("64 is a valid alignment");
        // SAFETY: each block is used within its size and freed with its own layout.
        unsafe {
            let mut block = SplitAllocator.alloc_zeroed(layout(size));
            *block = 7;
            *block.add(size - 1) = 8;
            for next in [LARGE_BUFFER - 1, LARGE_BUFFER, 5 * LARGE_BUFFER, LARGE_BUFFER + 1, 2000] {
                block = SplitAllocator.realloc(block, layout(size), next);
                size = next;
                assert!(!block.is_null() && block.addr() % 64 == 0, "{next}");
                assert_eq!((*block, *block.add(998), *block.add(999)), (7, 0, 8), "{next}");
            }
            SplitAllocator.dealloc(block, layout(size));
            let large = SplitAllocator.alloc_zeroed(layout(2 * LARGE_BUFFER));
            assert!((0..2 * LARGE_BUFFER).all(|at| *large.add(at) == 0));
            SplitAllocator.dealloc(large, layout(2 * LARGE_BUFFER));
        }
    }
}

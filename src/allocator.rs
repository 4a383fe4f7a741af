//! Where the server's memory comes from.
//!
//! Frames are made on one thread and dropped on another all the time, where the C library's allocator takes locks: with mimalloc
//! a flooding agent's events go through a third faster, and each connection takes less. It gets no huge pages, of which a server
//! that waits for people would use a corner each. Large buffers stay with the C library, which takes them from the system one by
//! one: they are zero without being touched (sled asks for 20 MiB of such, and uses little of it) and go back when dropped.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr,
};

use libmimalloc_sys::{mi_option_set, mi_option_t};
use mimalloc::MiMalloc;

/// From this size on a buffer is large, in bytes. What is used of it takes memory, not what it has room for.
pub const LARGE_BUFFER: usize = 256 << 10;

/// Small from mimalloc, large from the system.
pub struct SplitAllocator;

/// mimalloc's option for how long a page stays in which nothing stands any more, in milliseconds. Its binding has no name for it.
const PURGE_DELAY: mi_option_t = 15;

/// Has what is not used go back to the system. To be called before there is a second thread.
///
/// Left alone, glibc keeps ever larger buffers. mimalloc waits for 10 ms, and then looks again when the thread that had the memory
/// asks for more; one that has nothing more to do keeps it for good. After a flood and a long replay that was 20 MiB.
pub fn configure_purge() {
    // SAFETY: no other thread is there yet; the calls set a number of the allocators'.
    unsafe {
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BUFFER as libc::c_int);
        mi_option_set(PURGE_DELAY, 0);
    }
}

// SAFETY: which of the two a block is from follows from the size in its layout alone, which callers must give back as it was;
// each of them keeps the contract.
unsafe impl GlobalAlloc for SplitAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe { if layout.size() < LARGE_BUFFER { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        unsafe {
            if layout.size() < LARGE_BUFFER { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises; the size says where the block came from.
        unsafe {
            if layout.size() < LARGE_BUFFER { MiMalloc.dealloc(block, layout) } else { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises. A block that changes sides is copied before it is freed, as far as both reach.
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
    fn the_option_is_the_one_that_is_meant() {
        let told = std::process::Command::new(std::env::current_exe().expect("it runs"))
            .env("MIMALLOC_PURGE_DELAY", "1234")
            .args(["--exact", "allocator::tests::says_the_delay", "--ignored", "--nocapture"])
            .output()
            .expect("it starts");
        assert!(String::from_utf8_lossy(&told.stdout).contains("the delay is 1234"), "{told:?}");
    }

    #[test]
    #[ignore = "another test runs it in a process of its own"]
    fn says_the_delay() {
        // SAFETY: it reads a number.
        println!("the delay is {}", unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) });
    }

    #[test]
    fn a_block_keeps_what_is_in_it_when_it_changes_sides() {
        let mut size = 1000;
        let layout = |size| Layout::from_size_align(size, 64).expect("a layout");
        // SAFETY: each block is used within its size and given back with its own layout.
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

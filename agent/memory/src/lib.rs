//! What a program that waits for long has in memory, where a thousand of it may wait.

use std::{ops::Range, ptr};

use rustix::{
    mm::{Advice, madvise},
    param::page_size,
};

unsafe extern "C" {
    /// Made by the linker: where the program begins, and where its code ends.
    static __executable_start: u8;
    static etext: u8;
}

/// Lets go of the program's code and constants until they are needed, when they come back from the page cache by themselves.
///
/// They are in memory once, however many run the same program; but a kernel that wants to know whether a page of it is in
/// use asks each process that has it mapped.
pub fn release_code_pages() {
    let Range { start, end } = code_range();
    let begin = ptr::with_exposed_provenance_mut(start);
    // SAFETY: what is never written lies there and nothing else, so the program's file has all of it. (What the loader
    // writes, addresses, comes behind the code.) Where the kernel refuses, all stays as it was.
    let _ = unsafe { madvise(begin, end.saturating_sub(start), Advice::LinuxDontNeed) };
}

/// Gives back what was allocated once and is free: an allocator keeps it for the next time, which may be days away.
pub fn release_free_memory() {
    // Elsewhere allocators see to it by themselves.
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no conditions. What it answers, whether there was something to give back, changes nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The addresses of the pages in which nothing else lies.
fn code_range() -> Range<usize> {
    let page = page_size();
    ptr::addr_of!(__executable_start).addr().next_multiple_of(page)..ptr::addr_of!(etext).addr() / page * page
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use std::fs;

    use super::*;

    /// How much of this program's code is mapped, KiB.
    fn mapped() -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let code = maps.lines().skip_while(|line| !line.contains(" r-xp "));
        let resident = code.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn what_is_free_goes() {
        let resident = || -> u64 {
            let pages = fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * page_size() as u64
        };
        // Each too small for a mapping of its own, and the last of them holds the end of the heap.
        let mut blocks: Vec<_> = (0..1024).map(|_| vec![7_u8; 32 << 10]).collect();
        let last = blocks.pop();
        drop(blocks);
        let before = resident();
        release_free_memory();
        let after = resident();
        assert!(before - after > 16 << 20, "{after} of {before} bytes");
        drop(last);
    }

    #[test]
    fn code_goes_and_comes_back() {
        for page in code_range().step_by(page_size()) {
            // SAFETY: the program lies there, from its beginning to the end of its code.
            unsafe { ptr::with_exposed_provenance::<u8>(page).read_volatile() };
        }
        let before = mapped();
        release_code_pages();
        let after = mapped();
        assert!(after < before, "{after} of {before} KiB");
        let words = ["what", "runs", "goes", "on"];
        for _ in 0..100 {
            release_code_pages();
            assert_eq!(format!("{:?}", words.map(str::to_uppercase)), r#"["WHAT", "RUNS", "GOES", "ON"]"#);
        }
    }
}

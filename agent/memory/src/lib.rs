//! Memory release for a program that waits for a long time and may run a thousand times.

use std::{ops::Range, ptr};

use rustix::{
    mm::{Advice, madvise},
    param::page_size,
};

unsafe extern "C" {
    /// Start of the program, and end of its code. Defined by the linker.
    static __executable_start: u8;
    static etext: u8;
}

/// Releases the program's code and constants. The kernel reads them back from the page cache when
/// they are needed.
///
/// The processes of a program share these pages. To find out if a page is in use, however, the
/// kernel checks every process that maps the page.
pub fn release_code_pages() {
    let Range { start, end } = code_range();
    let begin = ptr::with_exposed_provenance_mut(start);
    // Otherwise the first page that is needed brings 2 MiB with it.
    for advice in [Advice::LinuxNoHugepage, Advice::LinuxDontNeed] {
        // SAFETY: the range holds only data that is never written, so the program's file has all of
        // it. Data that the loader writes (addresses) lies behind the code. If the kernel rejects
        // the call, nothing changes.
        let _ = unsafe { madvise(begin, end.saturating_sub(start), advice) };
    }
}

/// Returns free heap memory to the kernel. An allocator would keep the memory for its next use,
/// which may be days away.
pub fn release_free_memory() {
    // Other allocators return free memory by themselves.
    #[cfg(target_env = "gnu")]
    // SAFETY: the call has no preconditions. Its result (memory was returned or not) is not needed.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Address range of the pages that hold nothing but code and constants.
fn code_range() -> Range<usize> {
    let page = page_size();
    ptr::addr_of!(__executable_start).addr().next_multiple_of(page)..ptr::addr_of!(etext).addr() / page * page
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed `unwrap` fails the test")]
mod tests {
    use std::fs;

    use super::*;

    /// Resident size of this program's code, in KiB.
    fn resident_code() -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let code = maps.lines().skip_while(|line| !line.contains(" r-xp "));
        let resident = code.skip(1).find_map(|line| line.strip_prefix("Rss:")).unwrap();
        resident.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn free_heap_is_returned() {
        let resident = || -> u64 {
            let pages = fs::read_to_string("/proc/self/statm").unwrap();
            pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * page_size() as u64
        };
        // Each block is too small for a mapping of its own. The last block holds the end of the
        // heap.
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
    fn released_code_is_read_back() {
        for page in code_range().step_by(page_size()) {
            // SAFETY: the program is mapped there, from its beginning to the end of its code.
            unsafe { ptr::with_exposed_provenance::<u8>(page).read_volatile() };
        }
        let before = resident_code();
        release_code_pages();
        let after = resident_code();
        assert!(after < before, "{after} of {before} KiB");
        let words = ["what", "runs", "goes", "on"];
        for _ in 0..100 {
            release_code_pages();
            assert_eq!(format!("{:?}", words.map(str::to_uppercase)), r#"["WHAT", "RUNS", "GOES", "ON"]"#);
        }
    }
}

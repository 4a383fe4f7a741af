//! Work beside the one thread: what takes long, or may have to wait for a file system that does not answer.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::sync::oneshot;

/// Does `work` while the one thread hears the link. Given up, it goes on by itself, and keeps its thread until it ends.
///
/// Not on the runtime's pool: that panics where commands have left no room for another thread (then the one thread does it), has
/// only so many, and would keep the agent from ending while one of them waits.
///
/// # Panics
/// As `work` does.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = oneshot::channel();
    let work = Arc::new(Mutex::new(Some(work)));
    let theirs = work.clone();
    let begun = thread::Builder::new().spawn(move || {
        // Whoever asked may have gone away.
        let _ = tell.send(run_once(&theirs));
    });
    let done = match begun {
        Ok(_) => told.await.ok().flatten(),
        Err(_) => run_once(&work),
    };
    done.expect("it is taken up once, and ends by telling").unwrap_or_else(|panic| resume_unwind(panic))
}

/// What it came to; `None` where it was taken up before.
fn run_once<T>(work: &Mutex<Option<impl FnOnce() -> T>>) -> Option<thread::Result<T>> {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    work.map(|work| catch_unwind(AssertUnwindSafe(work)))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_it_comes_to_is_told_and_a_panic_is_passed_on() {
        let here = thread::current().id();
        assert_ne!(off_thread(|| thread::current().id()).await, here);
        let panic = AssertUnwindSafe(off_thread(|| -> u8 { panic!("a fault") })).catch_unwind().await;
        assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&"a fault"));
    }
}

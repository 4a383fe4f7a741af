//! Work off the agent's only thread: long computations, and calls that a file system may never
//! answer.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use tokio::sync::oneshot;

/// Runs `work` on a thread of its own, while the agent's only thread serves the link. If the future
/// is dropped, the work goes on and keeps its thread until its end.
///
/// The runtime's blocking pool is unsuitable for three reasons:
/// - It panics if commands have left no room for another thread. This function then runs the work
///   on the caller's thread.
/// - It has a limited number of threads.
/// - It keeps the agent from ending while one of its threads blocks.
///
/// # Panics
/// Panics if `work` panics.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = oneshot::channel();
    let work = Arc::new(Mutex::new(Some(work)));
    let shared = work.clone();
    let spawned = thread::Builder::new().spawn(move || {
        // The caller may have dropped the future.
        let _ = sender.send(run_once(&shared));
    });
    let outcome = match spawned {
        Ok(_) => receiver.await.ok().flatten(),
        Err(_) => run_once(&work),
    };
    outcome
        .expect("the work is taken once, and its thread always sends the result")
        .unwrap_or_else(|panic| resume_unwind(panic))
}

/// Runs the work and returns its result, or `None` if the work was taken before.
fn run_once<T>(work: &Mutex<Option<impl FnOnce() -> T>>) -> Option<thread::Result<T>> {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    work.map(|work| catch_unwind(AssertUnwindSafe(work)))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn result_is_returned_and_panic_is_propagated() {
        let here = thread::current().id();
        assert_ne!(off_thread(|| thread::current().id()).await, here);
        let panic = AssertUnwindSafe(off_thread(|| -> u8 { panic!("a test panic") })).catch_unwind().await;
        assert_eq!(panic.expect_err("the work panics").downcast_ref(), Some(&"a test panic"));
    }
}

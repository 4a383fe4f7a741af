//! Wake batches: tasks that other threads wake on this thread, woken together.
//!
//! While a thread has work of its own, tokio's `LocalSet` takes wake-ups from other threads only in
//! every 31st turn. One commit of the journal wakes hundreds of sessions. Each would need such a
//! turn of its own, behind frames that arrived later. So these wake-ups go into a list. One task
//! wakes all of them from this thread, and they run in order.
//!
//! [`PollWhenWoken`] serves tasks that wait for rare and frequent things at once: the rare one is
//! polled only if it was woken.

use std::{
    cell::{OnceCell, RefCell},
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{FutureExt, future::poll_fn, task::AtomicWaker};

thread_local! {
    static CURRENT_LIST: OnceCell<Arc<WakeList>> = const { OnceCell::new() };
    /// Lists whose drain tasks this thread wakes at the end of `coalesce_wakes`.
    static DEFERRED_DRAINS: RefCell<Option<Vec<Arc<WakeList>>>> = const { RefCell::new(None) };
}

/// Tasks of one thread that other threads have woken.
#[derive(Default)]
struct WakeList {
    list: Mutex<Vec<Waker>>,
    /// Wakes the task that drains the list.
    drain_task: AtomicWaker,
}

impl WakeList {
    fn list(&self) -> MutexGuard<'_, Vec<Waker>> {
        // A list of wakers is consistent at any moment.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts wake batching on this thread. The thread must run a `LocalSet`, as an arbiter does.
pub fn start_batching() {
    let woken = Arc::new(WakeList::default());
    if CURRENT_LIST.with(|wake_list| wake_list.set(woken.clone())).is_err() {
        return;
    }
    actix::spawn(poll_fn(move |cx| {
        woken.drain_task.register(cx.waker());
        let list = mem::take(&mut *woken.list());
        list.into_iter().for_each(Waker::wake);
        Poll::<()>::Pending
    }));
}

/// Runs `wake`, which wakes many tasks, and calls each of their threads once at the end.
///
/// Calling a thread is a system call, which may take longer than all other work. Without this
/// function, a thread that drains its list meanwhile would be called again and again.
pub fn coalesce_wakes<T>(wake: impl FnOnce() -> T) -> T {
    struct WakeFlush;
    impl Drop for WakeFlush {
        fn drop(&mut self) {
            let threads = DEFERRED_DRAINS.take();
            threads.into_iter().flatten().for_each(|woken| woken.drain_task.wake());
        }
    }
    DEFERRED_DRAINS.set(Some(Vec::new()));
    let _then = WakeFlush;
    wake()
}

/// Wraps `work` so that wake-ups from other threads join this thread's wake batch. On a thread
/// without batching, the work is unchanged.
pub fn with_batched_wakes<F: Future + Unpin>(work: F) -> impl Future<Output = F::Output> + use<F> {
    BatchedWakes { work, wake_list: CURRENT_LIST.with(|wake_list| wake_list.get().cloned()), wakers: None }
}

struct BatchedWakes<F> {
    work: F,
    wake_list: Option<Arc<WakeList>>,
    wakers: Option<BatchedWakers>,
}

struct BatchedWakers {
    task: Waker,
    /// Waker that the work receives instead of `task`.
    list_waker: Waker,
}

impl<F: Future + Unpin> Future for BatchedWakes<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let BatchedWakes { work, wake_list, wakers } = &mut *self;
        let Some(wake_list) = wake_list else { return work.poll_unpin(cx) };
        let known = wakers.take().filter(|wakers| wakers.task.will_wake(cx.waker()));
        let wakers = wakers.insert(known.unwrap_or_else(|| {
            let task = cx.waker().clone();
            let by_list = Arc::new(ListWaker { task: task.clone(), wake_list: wake_list.clone() }).into();
            BatchedWakers { task, list_waker: by_list }
        }));
        work.poll_unpin(&mut Context::from_waker(&wakers.list_waker))
    }
}

struct ListWaker {
    task: Waker,
    wake_list: Arc<WakeList>,
}

impl Wake for ListWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let first = {
            let mut list = self.wake_list.list();
            list.push(self.task.clone());
            list.len() == 1
        };
        // A wake-up that found the list not empty needs no call: the first one has made it or will.
        if first {
            let is_deferred = DEFERRED_DRAINS.try_with(|threads| {
                threads.borrow_mut().as_mut().map(|threads| threads.push(self.wake_list.clone())).is_some()
            });
            if is_deferred != Ok(true) {
                self.wake_list.drain_task.wake();
            }
        }
    }
}

/// Polls rare work only when it was woken, or was ready at the last poll.
///
/// A task that is woken by a frame polls everything that it waits for. With ten thousand sockets,
/// each with a timer and a token, none of that is in the processor's cache.
pub struct PollWhenWoken {
    flag: Arc<WakeFlag>,
    waker: Waker,
}

impl Default for PollWhenWoken {
    fn default() -> PollWhenWoken {
        let flag = Arc::new(WakeFlag::default());
        flag.set();
        PollWhenWoken { waker: flag.clone().into(), flag }
    }
}

impl PollWhenWoken {
    /// Polls `work` if it was woken. Always pass the same work. The work must become ready only
    /// after it has woken its waker.
    pub fn poll<T>(&mut self, cx: &mut Context<'_>, work: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        self.flag.register(cx.waker());
        if !self.flag.is_set() {
            return Poll::Pending;
        }
        self.flag.clear();
        let polled = work(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            self.flag.set();
        }
        polled
    }
}

/// Flag that a part of a task is to be polled again. Setting the flag wakes the task.
#[derive(Default)]
pub struct WakeFlag {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl WakeFlag {
    /// Registers the task to wake. Must precede [`WakeFlag::is_set`], or a wake between the two is
    /// lost.
    pub fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Returns true if a wake has arrived since the last [`WakeFlag::clear`].
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// Clears the flag. Later reads see everything that was written before the wake.
    pub fn clear(&self) {
        self.is_set.swap(false, Ordering::AcqRel);
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
        self.task.wake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails with a panic")]
mod tests {
    use std::{cell::Cell, rc::Rc, thread};

    use futures::future::join_all;
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    /// Wakes 100 tasks from another thread. Returns the turns of this thread's own work until all
    /// have run.
    async fn own_turns_before_wakes() -> u64 {
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        let busy = actix::spawn(poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
        let waiting: Vec<_> =
            receivers.into_iter().map(|receiver| actix::spawn(with_batched_wakes(receiver))).collect();
        // Let all tasks register their wakers.
        yield_now().await;
        let others = thread::spawn(|| senders.into_iter().for_each(|sender| sender.send(()).unwrap()));
        others.join().unwrap();
        let before = turns.get();
        join_all(waiting).await.into_iter().for_each(|woken| woken.unwrap().unwrap());
        busy.abort();
        turns.get() - before
    }

    #[actix::test]
    async fn batched_wakes_are_not_delayed_by_busy_thread() {
        let one_by_one = own_turns_before_wakes().await;
        start_batching();
        let together = own_turns_before_wakes().await;
        assert!(together < 100 && one_by_one > 1_000, "{together} turns with a batch, {one_by_one} without");
    }

    #[actix::test]
    async fn drain_task_is_woken_once_after_all_wakes() {
        start_batching();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
        let received = Rc::new(Cell::new(0));
        for receiver in receivers {
            let received = received.clone();
            actix::spawn(with_batched_wakes(receiver).map(move |_| received.set(received.get() + 1)));
        }
        // Let all tasks register their wakers.
        for _ in 0..100 {
            yield_now().await;
        }
        let (all_woken, woken) = oneshot::channel();
        let (go_on, going_on) = std::sync::mpsc::channel::<()>();
        let others = thread::spawn(move || {
            coalesce_wakes(|| {
                senders.into_iter().for_each(|sender| sender.send(()).unwrap());
                all_woken.send(()).unwrap();
                going_on.recv().unwrap();
            });
        });
        woken.await.unwrap();
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!(received.get(), 0, "no task is woken before the closure returns");
        go_on.send(()).unwrap();
        others.join().unwrap();
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert_eq!(received.get(), 100);
    }

    /// Watched work of a task that is also polled for other reasons.
    struct WatchedTask {
        watch: PollWhenWoken,
        polled: usize,
    }

    impl WatchedTask {
        fn poll<T>(&mut self, waker: &Waker, work: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
            self.watch.poll(&mut Context::from_waker(waker), |cx| {
                self.polled += 1;
                work(cx)
            })
        }
    }

    #[test]
    fn only_woken_work_is_polled() {
        let task = Waker::noop();
        let mut watched = WatchedTask { watch: PollWhenWoken::default(), polled: 0 };
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..10 {
            assert!(watched.poll(task, |cx| received.poll_recv(cx)).is_pending());
        }
        assert_eq!(watched.polled, 1);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        assert_eq!(watched.poll(task, |cx| received.poll_recv(cx)), Poll::Ready(Some(1)));
        assert_eq!(watched.poll(task, |cx| received.poll_recv(cx)), Poll::Ready(Some(2)), "no second wake is needed");
        assert!(watched.poll(task, |cx| received.poll_recv(cx)).is_pending());
        assert!(watched.poll(task, |cx| received.poll_recv(cx)).is_pending());
        assert_eq!(watched.polled, 4);
    }

    #[actix::test]
    async fn no_wake_from_another_thread_is_lost() {
        let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
        let others = thread::spawn(move || (0..100_000).for_each(|n| sender.send(n).unwrap()));
        let mut watch = PollWhenWoken::default();
        for n in 0..100_000 {
            let next = poll_fn(|cx| watch.poll(cx, |cx| received.poll_recv(cx)));
            assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(20), next).await.unwrap(), Some(n));
        }
        others.join().unwrap();
    }

    #[actix::test]
    async fn work_without_a_list_is_unchanged() {
        assert_eq!(with_batched_wakes(std::future::ready(7)).await, 7);
    }
}

//! What other threads wake on this one, woken together.
//!
//! While a thread has work of its own, tokio's `LocalSet` looks only every 31st time at what others have woken there. One commit of
//! the journal wakes hundreds of sessions, and each would wait for a 31st time of its own, behind frames that came after it. So
//! whoever is woken from without is put on a list, and one task wakes them all from here: then they come in turn.
//!
//! And what waits long beside what comes often, in the same task: it is polled only when it has itself been woken.

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
    static HERE: OnceCell<Arc<WakeList>> = const { OnceCell::new() };
    /// Threads that this one is going to call, while it wakes many.
    static TO_CALL: RefCell<Option<Vec<Arc<WakeList>>>> = const { RefCell::new(None) };
}

/// Whom others have woken on one thread.
#[derive(Default)]
struct WakeList {
    list: Mutex<Vec<Waker>>,
    /// Wakes the task that goes through the list.
    drain_task: AtomicWaker,
}

impl WakeList {
    fn list(&self) -> MutexGuard<'_, Vec<Waker>> {
        // A list of wakers is whole at any moment.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to gather on this thread, which must run a `LocalSet`, as an arbiter does.
pub fn start_batching() {
    let woken = Arc::new(WakeList::default());
    if HERE.with(|here| here.set(woken.clone())).is_err() {
        return;
    }
    actix::spawn(poll_fn(move |cx| {
        woken.drain_task.register(cx.waker());
        let list = mem::take(&mut *woken.list());
        list.into_iter().for_each(Waker::wake);
        Poll::<()>::Pending
    }));
}

/// Wakes many: each thread is called once, when all are on its list, and not again and again as it goes through it. A call is a
/// system call, which may take longer than all the rest.
pub fn coalesce_wakes<T>(wake: impl FnOnce() -> T) -> T {
    struct WakeFlush;
    impl Drop for WakeFlush {
        fn drop(&mut self) {
            let threads = TO_CALL.take();
            threads.into_iter().flatten().for_each(|woken| woken.drain_task.wake());
        }
    }
    TO_CALL.set(Some(Vec::new()));
    let _then = WakeFlush;
    wake()
}

/// The same work; what wakes it from another thread wakes it together with others, where this thread gathers.
pub fn with_batched_wakes<F: Future + Unpin>(work: F) -> impl Future<Output = F::Output> + use<F> {
    BatchedWakes { work, wake_list: HERE.with(|here| here.get().cloned()), wakers: None }
}

struct BatchedWakes<F> {
    work: F,
    wake_list: Option<Arc<WakeList>>,
    wakers: Option<BatchedWakers>,
}

struct BatchedWakers {
    task: Waker,
    /// What the work gets in place of it.
    list_waker: Waker,
}

impl<F: Future + Unpin> Future for BatchedWakes<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let BatchedWakes { work, wake_list: here, wakers } = &mut *self;
        let Some(here) = here else { return work.poll_unpin(cx) };
        let known = wakers.take().filter(|wakers| wakers.task.will_wake(cx.waker()));
        let wakers = wakers.insert(known.unwrap_or_else(|| {
            let task = cx.waker().clone();
            let by_list = Arc::new(ListWaker { task: task.clone(), wake_list: here.clone() }).into();
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
        // Whoever put the others there has woken it already, or is going to.
        if first {
            let is_noted = TO_CALL.try_with(|threads| {
                threads.borrow_mut().as_mut().map(|threads| threads.push(self.wake_list.clone())).is_some()
            });
            if is_noted != Ok(true) {
                self.wake_list.drain_task.wake();
            }
        }
    }
}

/// Polls what waits for a long time only when it has been woken, or was ready the last time. A task that hears of a frame polls
/// all it waits for: of ten thousand sockets, each with a timer and a token, none is in the processor's cache.
pub struct PollWhenWoken {
    flag: Arc<WakeFlag>,
    waker: Waker,
}

impl Default for PollWhenWoken {
    fn default() -> PollWhenWoken {
        let call = Arc::new(WakeFlag::default());
        call.set();
        PollWhenWoken { waker: call.clone().into(), flag: call }
    }
}

impl PollWhenWoken {
    /// Always of the same `work`, which must not be ready for any other reason than that it has woken its waker.
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

/// Notes that a part of a task wants to be polled again, and wakes the task.
#[derive(Default)]
pub struct WakeFlag {
    is_set: AtomicBool,
    task: AtomicWaker,
}

impl WakeFlag {
    /// Whom to wake: the task that polls. Before [`Call::is_made`], or a call between the two would be missed.
    pub fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// What follows sees all that came before the call.
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
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use std::{cell::Cell, rc::Rc, thread};

    use futures::future::join_all;
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    /// How often this thread's own work has its turn before all have been heard whom another thread has just woken.
    async fn turns_meanwhile() -> u64 {
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        let busy = actix::spawn(poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let (wakers, answers): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
        let waiting: Vec<_> = answers.into_iter().map(|answer| actix::spawn(with_batched_wakes(answer))).collect();
        // All of them wait by now.
        yield_now().await;
        let others = thread::spawn(|| wakers.into_iter().for_each(|waker| waker.send(()).unwrap()));
        others.join().unwrap();
        let before = turns.get();
        join_all(waiting).await.into_iter().for_each(|woken| woken.unwrap().unwrap());
        busy.abort();
        turns.get() - before
    }

    #[actix::test]
    async fn who_is_woken_by_another_thread_does_not_wait_behind_what_this_one_does() {
        let one_by_one = turns_meanwhile().await;
        start_batching();
        let together = turns_meanwhile().await;
        assert!(together < 100 && one_by_one > 1_000, "{together} turns together, {one_by_one} one by one");
    }

    #[actix::test]
    async fn a_thread_is_called_when_all_are_on_its_list() {
        start_batching();
        let (wakers, answers): (Vec<_>, Vec<_>) = (0..100).map(|_| oneshot::channel()).unzip();
        let heard = Rc::new(Cell::new(0));
        for answer in answers {
            let heard = heard.clone();
            actix::spawn(with_batched_wakes(answer).map(move |_| heard.set(heard.get() + 1)));
        }
        // All of them wait by now.
        for _ in 0..100 {
            yield_now().await;
        }
        let (all_woken, woken) = oneshot::channel();
        let (go_on, going_on) = std::sync::mpsc::channel::<()>();
        let others = thread::spawn(move || {
            coalesce_wakes(|| {
                wakers.into_iter().for_each(|waker| waker.send(()).unwrap());
                all_woken.send(()).unwrap();
                going_on.recv().unwrap();
            });
        });
        woken.await.unwrap();
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!(heard.get(), 0, "they are woken when the other is done");
        go_on.send(()).unwrap();
        others.join().unwrap();
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert_eq!(heard.get(), 100);
    }

    /// A task that is polled for other reasons, and what it waits for besides.
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
    fn what_was_not_woken_is_not_polled_and_what_was_is() {
        let task = Waker::noop();
        let mut beside = WatchedTask { watch: PollWhenWoken::default(), polled: 0 };
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..10 {
            assert!(beside.poll(task, |cx| heard.poll_recv(cx)).is_pending());
        }
        assert_eq!(beside.polled, 1);
        say.send(1).unwrap();
        say.send(2).unwrap();
        assert_eq!(beside.poll(task, |cx| heard.poll_recv(cx)), Poll::Ready(Some(1)));
        assert_eq!(beside.poll(task, |cx| heard.poll_recv(cx)), Poll::Ready(Some(2)), "there was no second call");
        assert!(beside.poll(task, |cx| heard.poll_recv(cx)).is_pending());
        assert!(beside.poll(task, |cx| heard.poll_recv(cx)).is_pending());
        assert_eq!(beside.polled, 4);
    }

    #[actix::test]
    async fn what_others_wake_at_any_moment_is_heard() {
        let (say, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let others = thread::spawn(move || (0..100_000).for_each(|n| say.send(n).unwrap()));
        let mut watch = PollWhenWoken::default();
        for n in 0..100_000 {
            let next = poll_fn(|cx| watch.poll(cx, |cx| heard.poll_recv(cx)));
            assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(20), next).await.unwrap(), Some(n));
        }
        others.join().unwrap();
    }

    #[actix::test]
    async fn without_a_list_it_is_the_same_work() {
        assert_eq!(with_batched_wakes(std::future::ready(7)).await, 7);
    }
}

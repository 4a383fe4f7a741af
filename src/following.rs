//! Who is woken by a link or a session runs right behind it.
//!
//! A `LocalSet` runs its tasks in the order in which they were woken. Where twenty agents have spoken by the time that a thread gets
//! its core, it would run twenty links, and then the twenty sockets that those woke: the first token waits for all links, and the
//! last for all sockets. So what a *leading* task wakes of those that *follow*, on its own thread, is polled as soon as the leading
//! one is done, while all that they share is still in the processor's cache. Woken by anything else they are tasks like others.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use futures::{FutureExt, future::LocalBoxFuture, task::AtomicWaker};
use slab::Slab;

thread_local! {
    static HERE: Here = Here::default();
}

/// What one thread knows of those who follow on it.
#[derive(Default)]
struct Here {
    /// Whether somebody who leads is being polled.
    leads: Cell<bool>,
    /// Whom it has woken so far.
    woken: RefCell<VecDeque<usize>>,
    followers: RefCell<Slab<Rc<Follower>>>,
}

impl Here {
    /// Tells threads apart: a thread's own is in one place for as long as it runs.
    fn name(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn follower(&self, slot: usize) -> Option<Rc<Follower>> {
        self.followers.borrow().get(slot).cloned()
    }
}

/// The same work; whom it wakes here of those who follow, they run right behind it.
pub fn leading<F: Future + Unpin>(work: F) -> impl Future<Output = F::Output> {
    Leading(work)
}

struct Leading<F>(F);

impl<F: Future + Unpin> Future for Leading<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        HERE.with(|here| {
            let lead = Lead::take(here);
            let polled = self.0.poll_unpin(cx);
            if let Some(lead) = lead {
                lead.let_follow();
            }
            polled
        })
    }
}

/// Held while somebody leads. Dropped by a panic it wakes the tasks of those who were to follow.
struct Lead<'a>(&'a Here);

impl<'a> Lead<'a> {
    /// `None` where somebody leads already.
    fn take(here: &'a Here) -> Option<Lead<'a>> {
        (!here.leads.replace(true)).then(|| Lead(here))
    }

    fn let_follow(self) {
        // Whom they wake in turn are tasks like others, or two of them could keep the thread for ever.
        self.0.leads.set(false);
        // One by one: should what one of them drops panic, the others still have their tasks.
        loop {
            let Some(slot) = self.0.woken.borrow_mut().pop_front() else { return };
            if let Some(follower) = self.0.follower(slot) {
                follower.follow();
            }
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.0.leads.set(false);
        for slot in self.0.woken.borrow_mut().drain(..) {
            if let Some(follower) = self.0.follower(slot) {
                follower.is_woken.set(false);
                follower.call.task.wake();
            }
        }
    }
}

/// The same work, for a task of this thread: whoever leads and wakes it has it run right behind.
pub fn following(work: impl Future<Output = ()> + 'static) -> impl Future<Output = ()> {
    HERE.with(|here| {
        let mut followers = here.followers.borrow_mut();
        let slot = followers.vacant_entry();
        let call = Arc::new(Call { thread: here.name(), slot: slot.key(), task: AtomicWaker::new() });
        let (work, waker) = (RefCell::new(Work::Goes(work.boxed_local())), call.clone().into());
        Following(slot.insert(Rc::new(Follower { call, waker, is_woken: Cell::new(false), work })).clone())
    })
}

struct Following(Rc<Follower>);

struct Follower {
    call: Arc<Call>,
    /// The same, as the work gets it.
    waker: Waker,
    /// Whether it is on the list already.
    is_woken: Cell<bool>,
    work: RefCell<Work>,
}

enum Work {
    Goes(LocalBoxFuture<'static, ()>),
    Done,
    /// It panicked while it followed, which is no fault of the one who led: its own task shall be the one that ends.
    Panicked(Box<dyn Any + Send>),
}

impl Follower {
    fn poll(&self, work: &mut Work) -> Poll<()> {
        let Work::Goes(goes) = work else { return Poll::Ready(()) };
        let polled = goes.poll_unpin(&mut Context::from_waker(&self.waker));
        if polled.is_ready() {
            *work = Work::Done;
        }
        polled
    }

    fn follow(&self) {
        self.is_woken.set(false);
        // Somebody leads who is part of it: it is being polled.
        let Ok(mut work) = self.work.try_borrow_mut() else { return self.call.task.wake() };
        let over = match catch_unwind(AssertUnwindSafe(|| self.poll(&mut work))) {
            Ok(polled) => polled.is_ready(),
            Err(panic) => {
                *work = Work::Panicked(panic);
                true
            }
        };
        if over {
            self.call.task.wake();
        }
    }
}

impl Future for Following {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.call.task.register(cx.waker());
        self.0.is_woken.set(false);
        let mut work = self.0.work.borrow_mut();
        match std::mem::replace(&mut *work, Work::Done) {
            Work::Panicked(panic) => {
                drop(work);
                resume_unwind(panic)
            }
            known => *work = known,
        }
        self.0.poll(&mut work)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // A thread that ends may have forgotten it already.
        let _forgotten = HERE.try_with(|here| here.followers.borrow_mut().try_remove(self.0.call.slot));
    }
}

/// Calls a follower, from any thread.
struct Call {
    thread: usize,
    slot: usize,
    task: AtomicWaker,
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let is_led = HERE.try_with(|here| {
            let is_led = here.leads.get() && here.name() == self.thread;
            // One that is there no more has nothing to be woken for.
            if is_led
                && let Some(follower) = here.follower(self.slot)
                && !follower.is_woken.replace(true)
            {
                here.woken.borrow_mut().push_back(self.slot);
            }
            is_led
        });
        if is_led != Ok(true) {
            self.task.wake();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use futures::StreamExt;
    use tokio::{
        sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        task::{JoinHandle, yield_now},
    };

    use super::*;

    type Said = Rc<RefCell<Vec<String>>>;

    /// Somebody who says so when it has heard something, and passes it on.
    async fn hears(name: &'static str, said: Said, mut ear: UnboundedReceiver<u8>, on: Option<UnboundedSender<u8>>) {
        while let Some(heard) = ear.recv().await {
            assert!(heard != 0, "it was to panic");
            said.borrow_mut().push(format!("{name}{heard}"));
            on.iter().for_each(|on| on.send(heard).unwrap());
        }
    }

    /// A leader, to whom one can speak, and its follower, with both their tasks.
    fn pair(names: [&'static str; 2], said: &Said) -> (UnboundedSender<u8>, UnboundedSender<u8>, [JoinHandle<()>; 2]) {
        let ((to_leader, leader), (to_follower, follower)) = (unbounded_channel(), unbounded_channel());
        let leads = Box::pin(hears(names[0], said.clone(), leader, Some(to_follower.clone())));
        let leads = actix::spawn(leading(leads));
        let follows = actix::spawn(following(hears(names[1], said.clone(), follower, None)));
        (to_leader, to_follower, [leads, follows])
    }

    async fn a_while() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[actix::test]
    async fn who_follows_comes_before_the_next_who_leads() {
        let said = Said::default();
        let (one, _, _tasks) = pair(["a", "A"], &said);
        let (other, _, _tasks) = pair(["b", "B"], &said);
        a_while().await;
        for word in [1, 2] {
            one.send(word).unwrap();
            other.send(word).unwrap();
            a_while().await;
        }
        assert_eq!(said.take(), ["a1", "A1", "b1", "B1", "a2", "A2", "b2", "B2"]);
    }

    #[actix::test]
    async fn one_who_leads_within_another_does_not_end_its_lead() {
        let said = Said::default();
        let (to_follower, follower) = unbounded_channel();
        let _follows = actix::spawn(following(hears("A", said.clone(), follower, None)));
        a_while().await;
        let outer = async move {
            leading(std::future::ready(())).await;
            to_follower.send(1).unwrap();
        };
        let _leads = actix::spawn(leading(Box::pin(outer)));
        let next = said.clone();
        let _next = actix::spawn(async move { next.borrow_mut().push("next".to_owned()) });
        a_while().await;
        assert_eq!(said.take(), ["A1", "next"]);
    }

    #[actix::test]
    async fn whoever_else_wakes_it_gives_it_a_turn_like_others() {
        let said = Said::default();
        let (_, to_follower, [_, follows]) = pair(["a", "A"], &said);
        a_while().await;
        std::thread::spawn(move || to_follower.send(1).unwrap()).join().unwrap();
        futures::stream::repeat(()).then(|()| yield_now()).take(100).for_each(|()| async {}).await;
        assert_eq!(said.take(), ["A1"]);
        follows.await.unwrap();
    }

    #[actix::test]
    async fn one_that_ends_or_panics_while_it_follows_does_so_in_its_own_task() {
        let said = Said::default();
        let ((to_leader, leader), (to_follower, follower)) = (unbounded_channel(), unbounded_channel());
        let leads = actix::spawn(leading(Box::pin(hears("a", said.clone(), leader, Some(to_follower)))));
        let follows = actix::spawn(following(async move {
            let mut follower: UnboundedReceiver<u8> = follower;
            assert_eq!(follower.recv().await, Some(1));
            panic!("as it was to");
        }));
        a_while().await;
        to_leader.send(1).unwrap();
        assert!(follows.await.unwrap_err().is_panic());
        assert_eq!(said.take(), ["a1"]);
        drop(to_leader);
        leads.await.unwrap();
    }

    #[actix::test]
    async fn a_leader_that_panics_takes_nobody_with_it() {
        let said = Said::default();
        let (to_leader, to_follower, [leads, follows]) = pair(["a", "A"], &said);
        a_while().await;
        // Both are heard in one turn, and the second is its last.
        to_leader.send(1).unwrap();
        to_leader.send(0).unwrap();
        assert!(leads.await.unwrap_err().is_panic());
        let (next, _, _tasks) = pair(["b", "B"], &said);
        next.send(2).unwrap();
        a_while().await;
        to_follower.send(3).unwrap();
        drop(to_follower);
        follows.await.unwrap();
        assert_eq!(said.take(), ["a1", "A1", "b2", "B2", "A3"]);
    }
}

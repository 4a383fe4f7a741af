//! Many clients that ask the same in the same moment. They are on the cores that they measure: so one thread has all their sockets,
//! and does nothing for an answer but read it.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

/// How long an answer may take.
const PATIENCE: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };

/// How long those waited, in milliseconds, whose answer has this status.
pub(crate) fn at_once(clients: usize, authority: &str, call: &str, status: u16) -> Vec<f64> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).expect("the kernel has room for it");
    let mut clients: Vec<_> = (0..clients as u64)
        .map(|number| {
            let client = TcpStream::connect(authority).expect("it listens");
            let number = epoll::EventData::new_u64(number);
            epoll::add(&all, &client, number, epoll::EventFlags::IN).expect("it is a socket");
            client
        })
        .collect();
    // All of them are let in.
    std::thread::sleep(Duration::from_secs(1));
    let asked: Vec<_> = clients
        .iter_mut()
        .map(|client| {
            let asked = Instant::now();
            client.write_all(call.as_bytes()).expect("it is heard");
            asked
        })
        .collect();
    let (mut left, mut waited) = (clients.len(), Vec::new());
    let mut answered = Vec::with_capacity(64);
    let status = format!("HTTP/1.1 {status} ");
    while left > 0 {
        let some = epoll::wait(&all, spare_capacity(&mut answered), Some(&PATIENCE)).expect("it can be waited for");
        assert!(some > 0, "{left} of {} were not answered", clients.len());
        for event in answered.drain(..) {
            let number = event.data.u64() as usize;
            let (client, mut answer) = (&mut clients[number], [0; 4096]);
            let read = client.read(&mut answer).expect("it is answered");
            let took = asked[number].elapsed();
            epoll::delete(&all, client).expect("it was added");
            left -= 1;
            if answer[..read].starts_with(status.as_bytes()) {
                waited.push(took.as_secs_f64() * 1e3);
            }
        }
    }
    waited
}

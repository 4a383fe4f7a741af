//! Many clients that send the same request at the same moment.
//!
//! The clients share the cores that they measure. One thread has all sockets and does nothing for
//! an answer but read it. That thread reads most answers late, so the kernel's receive time counts.

use std::{
    io::{IoSliceMut, Write},
    net::TcpStream,
    os::fd::AsRawFd,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::sys::{
    socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns},
    time::TimeSpec,
};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

/// Time limit for an answer.
const PATIENCE: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };

/// Connection state of the clients before they send.
#[derive(Clone, Copy)]
pub(crate) enum CrowdArrival {
    /// Each on a connection that the server has already accepted.
    Connected,
    /// Each connects first; the wait includes that.
    NewConnection,
}

/// Returns the waits of the answers with this status, in milliseconds.
pub(crate) fn at_once(clients: usize, come: CrowdArrival, authority: &str, call: &str, status: u16) -> Vec<f64> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC).expect("the kernel has room for it");
    let connect = |number| {
        let client = TcpStream::connect(authority).expect("it listens");
        setsockopt(&client, ReceiveTimestampns, &true).expect("it is a socket");
        epoll::add(&all, &client, epoll::EventData::new_u64(number), epoll::EventFlags::IN).expect("it is a socket");
        client
    };
    let numbers = 0..clients as u64;
    let mut connected = match come {
        CrowdArrival::Connected => numbers.clone().map(connect).collect(),
        CrowdArrival::NewConnection => Vec::new(),
    }
    .into_iter();
    // Every connection is accepted.
    std::thread::sleep(Duration::from_secs(1));
    let asked: Vec<_> = numbers
        .map(|number| {
            let asked = SystemTime::now();
            let mut client = connected.next().unwrap_or_else(|| connect(number));
            client.write_all(call.as_bytes()).expect("it is heard");
            (client, asked)
        })
        .collect();
    let (mut left, mut waited) = (clients, Vec::new());
    let mut answered = Vec::with_capacity(64);
    let status = format!("HTTP/1.1 {status} ");
    while left > 0 {
        let some = epoll::wait(&all, spare_capacity(&mut answered), Some(&PATIENCE)).expect("it can be waited for");
        assert!(some > 0, "{left} of {clients} were not answered");
        for event in answered.drain(..) {
            let (client, asked) = &asked[event.data.u64() as usize];
            let mut answer = [0; 4096];
            let (read, arrived) = read_answer(client, &mut answer);
            epoll::delete(&all, client).expect("it was added");
            left -= 1;
            if answer[..read].starts_with(status.as_bytes()) {
                waited.push(arrived.duration_since(*asked).unwrap_or_default().as_secs_f64() * 1e3);
            }
        }
    }
    waited
}

/// Returns the length of the answer that has arrived, and its arrival time.
fn read_answer(client: &TcpStream, answer: &mut [u8]) -> (usize, SystemTime) {
    let (mut pieces, mut told) = ([IoSliceMut::new(answer)], nix::cmsg_space!(TimeSpec));
    let heard = recvmsg::<()>(client.as_raw_fd(), &mut pieces, Some(&mut told), MsgFlags::empty());
    let heard = heard.expect("it is answered");
    let arrived = heard.cmsgs().expect("there is room for what the kernel tells").find_map(|told| match told {
        ControlMessageOwned::ScmTimestampns(arrived) => Some(UNIX_EPOCH + Duration::from(arrived)),
        _ => None,
    });
    (heard.bytes, arrived.expect("the kernel was asked for it"))
}

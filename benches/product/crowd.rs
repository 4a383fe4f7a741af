//! Many clients that ask the same in the same moment. They are on the cores that they measure: so one thread has all their sockets,
//! and does nothing for an answer but read it. It comes late to most of them; when each was there, the kernel tells.

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

/// How long an answer may take.
const PATIENCE: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };

/// How a crowd comes.
#[derive(Clone, Copy)]
pub(crate) enum CrowdArrival {
    /// Each over a connection that the server has taken up before.
    Connected,
    /// Each connects first, and waits for that too.
    NewConnection,
}

/// How long those waited, in milliseconds, whose answer has this status.
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
    // All of them are let in.
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

/// How long the answer is that is there, and when it had arrived.
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

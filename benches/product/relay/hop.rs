//! The smallest hop with Greenroom's promise for events: one thread that reads, writes to disk, and
//! passes on. The hop has no sessions, parses no frame, and wakes no thread between disk and
//! sockets.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::{
        fd::AsFd,
        unix::{fs::FileExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, EventData, EventFlags},
};

/// Length of the log before it starts over, in bytes.
const LOG: u64 = 64 << 20;
/// Epoll data of the listener. A pair has twice its number, plus one for the agent's side.
const LISTENER: u64 = u64::MAX;

/// Client, and the agent connection opened for it.
struct HopPair {
    client: TcpStream,
    agent: UnixStream,
}

/// Starts a hop before the agent on this socket, with a log in this directory. Returns its port.
/// The hop ends with the process.
pub(super) fn start(home: &Path, agent: PathBuf) -> u16 {
    let log = File::create(home.join("hop.log")).expect("a log");
    // Like Greenroom's journal: while a file does not grow, the file system commits nothing itself.
    log.write_all_at(&vec![0; LOG as usize], 0).and_then(|()| log.sync_all()).expect("there is room");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || run(&listener, &agent, &log).expect("the hop goes on"));
    port
}

fn run(listener: &TcpListener, agent: &Path, log: &File) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watch = |fd: &dyn AsFd, what: u64| epoll::add(&epoll, fd, EventData::new_u64(what), EventFlags::IN);
    watch(listener, LISTENER)?;
    let (mut pairs, mut events) = (Vec::<HopPair>::new(), Vec::with_capacity(1024));
    let (mut bytes, mut parts, mut at, mut buffer) = (Vec::new(), Vec::new(), 0, vec![0; 64 << 10]);
    loop {
        events.clear();
        epoll::wait(&epoll, spare_capacity(&mut events), None)?;
        for event in &events {
            let what = event.data.u64();
            if what == LISTENER {
                let (client, _) = listener.accept()?;
                let agent = UnixStream::connect(agent)?;
                client.set_nodelay(true)?;
                let n = pairs.len() as u64 * 2;
                watch(&client, n)?;
                watch(&agent, n + 1)?;
                pairs.push(HopPair { client, agent });
                continue;
            }
            let n = what as usize / 2;
            let HopPair { client, agent } = &mut pairs[n];
            let (from, is_client): (&mut dyn Read, bool) = if what % 2 == 0 { (client, true) } else { (agent, false) };
            let read = from.read(&mut buffer).unwrap_or(0);
            if read == 0 {
                let _ = epoll::delete(&epoll, client.as_fd());
                let _ = epoll::delete(&epoll, agent.as_fd());
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = agent.shutdown(std::net::Shutdown::Both);
            } else if is_client {
                let _ = agent.write_all(&buffer[..read]);
            } else {
                bytes.extend_from_slice(&buffer[..read]);
                parts.push((n, read));
            }
        }
        if bytes.is_empty() {
            continue;
        }
        if at + bytes.len() as u64 > LOG {
            at = 0;
        }
        log.write_all_at(&bytes, at)?;
        log.sync_data()?;
        at += bytes.len() as u64;
        let mut rest = &bytes[..];
        for (n, len) in parts.drain(..) {
            let (frame, more) = rest.split_at(len);
            // A client that disconnected.
            let _ = pairs[n].client.write_all(frame);
            rest = more;
        }
        bytes.clear();
    }
}

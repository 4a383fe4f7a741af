//! What keeps Greenroom's promise with nothing else to it: nginx's hop, and then a log on which a frame must be before it counts.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Instant,
};

use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::{WARM_UP, latency};
use crate::figures::Figures;

/// A log as simple as one can be: a thread writes what has come, waits for the disk, and looks again.
pub(super) struct BareLog {
    frames: Sender<Utf8Bytes>,
    writing: JoinHandle<Figures>,
}

impl BareLog {
    /// One in this directory, for clients who begin to read now.
    pub(super) fn open(home: &Path) -> BareLog {
        let counts_from = Instant::now() + WARM_UP;
        let path = home.join("bare.log");
        let file = File::create(&path).expect("a log");
        let _not_kept = fs::remove_file(path);
        let (frames, coming) = channel();
        BareLog { frames, writing: thread::spawn(move || write(file, &coming, counts_from)) }
    }

    /// For one client.
    pub(super) fn appender(&self) -> Sender<Utf8Bytes> {
        self.frames.clone()
    }

    /// When all clients are done: how long each frame took until it was on disk.
    pub(super) fn close(self) -> Figures {
        drop(self.frames);
        self.writing.join().expect("it writes")
    }
}

fn write(mut file: File, coming: &Receiver<Utf8Bytes>, counts_from: Instant) -> Figures {
    let (mut latencies, mut together, mut bytes) = (Figures::default(), Vec::new(), Vec::new());
    while let Ok(first) = coming.recv() {
        together.push(first);
        together.extend(coming.try_iter());
        together.iter().for_each(|frame| bytes.extend_from_slice(frame.as_bytes()));
        file.write_all(&bytes).expect("there is room");
        file.sync_data().expect("the disk answers");
        let now = Instant::now();
        for frame in together.drain(..).filter(|_| now >= counts_from) {
            latency(&frame, now).into_iter().for_each(|taken| latencies.add(taken));
        }
        bytes.clear();
    }
    latencies
}

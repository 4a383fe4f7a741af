//! Stream that is cut, delayed and split at random bytes.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream, unix},
};

/// Number of cuts of a link before it is left alone, so that a history ends.
const CUTS: usize = 25;
/// Range of a cut within a connection: after fewer than this many bytes, in either direction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CutRange {
    /// In the first exchange, or soon after.
    Early = 3_000,
    Late = 12_000,
}

/// Stream between the two ends, with every fault that a stream may have.
pub(crate) struct LossyLink {
    pub(crate) dice: Rng,
    /// Socket of the agent.
    pub(crate) agent: PathBuf,
    pub(crate) cuts: Arc<AtomicUsize>,
    pub(crate) cut: CutRange,
}

impl LossyLink {
    pub(crate) async fn carry(mut self, server: UnixListener) {
        loop {
            let (up, _) = server.accept().await.expect("the socket is there");
            let down = loop {
                match UnixStream::connect(&self.agent).await {
                    Ok(down) => break down,
                    Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            };
            let ((up_read, up_write), (down_read, down_write)) = (up.into_split(), down.into_split());
            let mut bytes = || match self.cuts.load(Relaxed) {
                CUTS.. => usize::MAX,
                _ => self.dice.usize(0..self.cut as usize),
            };
            let (to_agent, to_server) = (bytes(), bytes());
            tokio::select! {
                () = copy(up_read, down_write, to_agent, self.dice.fork()) => {}
                () = copy(down_read, up_write, to_server, self.dice.fork()) => {}
            }
            self.cuts.fetch_add(1, Relaxed);
        }
    }
}

/// Copies this many bytes in pieces of any size, then returns, possibly in the middle of a frame.
async fn copy(mut from: unix::OwnedReadHalf, mut to: unix::OwnedWriteHalf, mut bytes: usize, mut dice: Rng) {
    let mut piece = [0; 4096];
    while bytes > 0 {
        let len = dice.usize(1..=piece.len()).min(bytes);
        let Ok(read @ 1..) = from.read(&mut piece[..len]).await else { return };
        bytes -= read;
        for part in piece[..read].chunks(dice.usize(1..=read)) {
            if to.write_all(part).await.is_err() {
                return;
            }
            if dice.u8(0..8) == 0 {
                random_delay(&mut dice).await;
            }
        }
    }
}

pub(crate) async fn random_delay(dice: &mut Rng) {
    match dice.u8(0..4) {
        0 => tokio::time::sleep(Duration::from_micros(dice.u64(0..3_000))).await,
        _ => tokio::task::yield_now().await,
    }
}

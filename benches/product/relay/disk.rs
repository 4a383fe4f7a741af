//! The disk alone, without other load: the floor for any journal that waits for it.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::figures::{Figures, table};

const WATCHED: Duration = Duration::from_secs(10);
const EVERY: Duration = Duration::from_millis(1);
/// Size of a write over existing bytes: about the events of a thousand connections in a
/// millisecond.
const BYTES: usize = 2_000;
/// Wait after which the disk stands still.
const LONG: Duration = Duration::from_millis(3);

/// Prints the time of a small synced write, and the share of time in which the disk stands still.
pub(super) fn alone(home: &Path) {
    let file = File::create(home.join("disk")).expect("a file");
    let most = WATCHED.as_millis() as usize * BYTES;
    file.write_all_at(&vec![0; most], 0).and_then(|()| file.sync_all()).expect("there is room");
    let (mut times, mut still) = (Figures::default(), Duration::ZERO);
    let began = Instant::now();
    for n in 0.. {
        let asked = Instant::now();
        if asked - began >= WATCHED {
            break;
        }
        file.write_all_at(&[7; BYTES], (n * BYTES % most) as u64).and_then(|()| file.sync_data()).expect("it answers");
        let taken = asked.elapsed();
        times.add_ms(taken);
        still += if taken > LONG { taken } else { Duration::ZERO };
        thread::sleep(EVERY.saturating_sub(taken));
    }
    let times = [times.p(50), times.p(99), times.p(100)].map(|ms| format!("{ms:.2} ms"));
    let share = format!("{:.1} %", still.as_secs_f64() / WATCHED.as_secs_f64() * 100.0);
    let row = times.into_iter().chain([share]).collect();
    table(
        "The disk alone: a write and `fdatasync` each millisecond",
        &["p50", "p99", "worst", "of the time it stands still for more than 3 ms"],
        &[row],
    );
}

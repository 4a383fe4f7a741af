//! A snapshot must show, in an empty terminal, what the program's output shows.

use proptest::prelude::*;

use super::*;
use crate::terminals::scrollback::{BYTES_LIMIT, LINES_LIMIT};

const SIZE: ScreenSize = ScreenSize { cols: 20, rows: 5 };

fn printed(size: ScreenSize, output: &str) -> EmulatedScreen {
    let mut screen = EmulatedScreen::new(size);
    screen.print(output.as_bytes());
    screen
}

fn bytes(snapshot: &[Arc<[u8]>]) -> Vec<u8> {
    snapshot.concat()
}

/// Terminal with scrollback, as a client has it, that shows a snapshot.
fn client(screen: &mut EmulatedScreen) -> Terminal {
    let (cols, rows) = (screen.size.cols.into(), screen.size.rows.into());
    let mut terminal = Terminal::with_scrollback(cols, rows, None).expect("both are above 0");
    terminal.feed("rest of an earlier screen\x1b]0;an open title");
    terminal.feed(&*String::from_utf8_lossy(&bytes(&screen.snapshot())));
    terminal
}

fn visible(terminal: &Terminal) -> Vec<Vec<avt::Cell>> {
    terminal.screen().visible_lines().map(|line| line.cells().to_vec()).collect()
}

/// Checks that the snapshot shows what the output shows, and that both go on alike.
fn check(output: &str) {
    let mut screen = printed(SIZE, output);
    let mut client = client(&mut screen);
    for more in ["", "more", "\r\n\x1b[?1049l", "\x1b8after"] {
        client.feed(more);
        screen.print(more.as_bytes());
        assert_eq!(visible(&client), visible(&screen.terminal), "{output:?} and {more:?}");
        assert_eq!(client.cursor(), screen.terminal.cursor(), "{output:?} and {more:?}");
    }
}

#[test]
fn snapshot_shows_the_screen() {
    check("");
    check("$ ls\r\nCargo.toml  src\r\n$ ");
    check("\x1b[1;31mred\x1b[0m \x1b[38;5;200;48;2;1;2;3mcolours\x1b[m \x1b[7minverse");
    check("wide \u{754c}\u{754c} and \u{1f600}");
    check("a line that is longer than the screen is wide, twice over, at least");
    check("12345678901234567890");
    check("one\r\ntwo\x1b[?1049h\x1b[2J\x1b[3;4Hvim\x1b[?25l");
    check("\x1b[2;4r\x1b[?6h\x1b[2;2Hinside");
    check("\x1b[3;3H\x1b7\x1b[31m\x1b[1;1Hsaved");
    check("\x1b(0lqqk");
    check("cut \x1b[3");
    check(&(1..100).map(|n| format!("line {n}\r\n")).collect::<String>());
}

#[test]
fn cut_character_is_completed_after_a_snapshot() {
    let mut screen = EmulatedScreen::new(SIZE);
    let (first, rest) = "a€".as_bytes().split_at(2);
    screen.print(first);
    let mut shown = bytes(&screen.snapshot());
    shown.extend_from_slice(rest);
    assert!(String::from_utf8_lossy(&shown).ends_with('€'));
    screen.print(rest);
    assert_eq!(screen.terminal.screen().text().first().map(String::as_str), Some("a€"));
}

#[test]
fn modes_are_in_the_snapshot() {
    let mut screen = printed(SIZE, "\x1b[?1h\x1b[?2004h\x1b[?1002h\x1b[?1006h\x1b[?1049hvim");
    let shown = String::from_utf8(bytes(&screen.snapshot())).expect("text");
    for mode in ["\x1b[?1h", "\x1b[?2004h", "\x1b[?1002h", "\x1b[?1006h", "\x1b[?1047h"] {
        assert!(shown.contains(mode), "{mode:?} is missing in {shown:?}");
    }
}

#[test]
fn scrollback_has_the_newest_lines_with_their_colours() {
    for count in [3, 4, 5, 7, 30, LINES_LIMIT + 300] {
        let output: String = (1..=count).map(|n| format!("\x1b[32mline\x1b[m {n}\r\n")).collect();
        let mut screen = printed(SIZE, &output);
        let client = client(&mut screen);
        let lines = client.screen().text();
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        let kept = count.min(LINES_LIMIT);
        assert!(lines.len() + 60 > kept && lines.len() <= kept + 5, "{} of {count}", lines.len());
        assert_eq!(lines.last(), Some(&format!("line {count}").as_str()));
        let first = count + 1 - lines.len();
        assert_eq!(lines[0], format!("line {first}"), "the lines have no gap, of {count}");
        let green = client.screen().all_lines().find(|line| line.text().starts_with("line")).expect("a line");
        assert_eq!(green.cells()[0].pen().foreground(), Some(avt::Color::Indexed(2)));
    }
}

#[test]
fn long_lines_of_the_scrollback_are_one_line() {
    let long = "x".repeat(50);
    let mut screen = printed(SIZE, &format!("{long}\r\n{}", "\r\n".repeat(8)));
    let client = client(&mut screen);
    assert_eq!(client.screen().text().first(), Some(&long));
}

#[test]
fn clearing_the_scrollback_clears_it() {
    let mut screen = printed(SIZE, &"line\r\n".repeat(100));
    assert!(screen.scrollback.lines() > 90);
    screen.print(b"\x1b[H\x1b[2J\x1b[3J");
    assert_eq!(screen.scrollback.lines(), 0);
}

#[test]
fn size_is_clamped() {
    for ((cols, rows), expected) in [
        ((80, 24), (80, 24)),
        ((1, 1), (2, 1)),
        ((u16::MAX, u16::MAX), (500, 80)),
        ((100, u16::MAX), (100, 300)),
        ((400, 100), (400, 100)),
    ] {
        let size = ScreenSize::clamped(cols, rows);
        assert_eq!((size.cols, size.rows), expected, "{cols} x {rows}");
    }
}

/// Pieces of which hostile output is made: valid sequences, huge parameters, and cut ones.
const PIECES: [&str; 40] = [
    "\x1b[",
    "\x1b]",
    "\x1bP",
    "\x1b_",
    "\x1b",
    "\x07",
    "\x1b\\",
    "\u{9b}",
    "\u{9d}",
    "\x18",
    "?",
    ";",
    ":",
    "0",
    "1049",
    "1047",
    "6",
    "7",
    "99999999999",
    "h",
    "l",
    "m",
    "r",
    "H",
    "J",
    "K",
    "L",
    "M",
    "P",
    "@",
    "X",
    "b",
    "S",
    "T",
    "\n",
    "\r",
    "\t",
    "\x08",
    "\u{754c}",
    "e\u{301}",
];

const MORE_PIECES: [&str; 16] = [
    "\x1bc",
    "\x1b[!p",
    "\x1b7",
    "\x1b8",
    "\x1bM",
    "\x1bD",
    "\x1bE",
    "\x1bH",
    "\x1b#8",
    "\x1b(0",
    "\x0e",
    "\x1b[3J",
    "\x1b[2J",
    "\x1b[8;1000;1000t",
    "\x1b[38;2;1;2;3m",
    "\x1b[38:2::1:2:3:4:5m",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any output at any size, with resizes between, nothing panics, and the snapshot shows the
    /// screen.
    #[test]
    fn hostile_output_neither_panics_nor_differs(
        pieces in prop::collection::vec(0..PIECES.len() + MORE_PIECES.len(), 1..300),
        sizes in prop::collection::vec((2..60u16, 1..30u16), 1..4),
    ) {
        let output: String =
            pieces.iter().map(|at| *PIECES.iter().chain(&MORE_PIECES).nth(*at).expect("within the lists")).collect();
        let mut screen = EmulatedScreen::new(SIZE);
        for (cols, rows) in sizes {
            screen.print(output.as_bytes());
            screen.resize(ScreenSize { cols, rows });
            prop_assert_eq!(screen.faults, 0);
        }
        screen.print(b"\x18\x1b[!p");
        let client = client(&mut screen);
        prop_assert_eq!(visible(&client), visible(&screen.terminal));
    }

    #[test]
    fn any_bytes_are_printed(output in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mut screen = EmulatedScreen::new(SIZE);
        output.chunks(7).for_each(|chunk| screen.print(chunk));
        screen.snapshot();
        prop_assert_eq!(screen.faults, 0);
    }
}

/// Output of programs that never end a sequence, or print lines with as many attributes as
/// possible.
#[test]
fn memory_is_bounded_under_a_flood() {
    let cells: String =
        (0..500).map(|n| format!("\x1b[1;3;4;5;7;9;38;2;1;2;{};48;2;9;8;{}mX", n % 256, n % 255)).collect();
    let lines = format!("{cells}\r\n");
    let size = ScreenSize::clamped(500, 80);
    for flood in ["\x1b]0;", "\x1bP", "\x1b[1;", "\u{9d}52;c;", lines.as_str(), "e\u{301}\u{301}", "\t\x1bH", "y\r\n"] {
        let mut screen = EmulatedScreen::new(size);
        for _ in 0..(768 << 10) / flood.len() {
            screen.print(flood.as_bytes());
        }
        assert!(screen.scrollback.bytes() <= BYTES_LIMIT, "{flood:?}");
        assert!(screen.scrollback.lines() <= LINES_LIMIT, "{flood:?}");
        assert!(screen.partial_char.capacity() < 8192, "{flood:?}");
        let snapshot: usize = screen.snapshot().iter().map(|piece| piece.len()).sum();
        assert!(snapshot < 4 << 20, "a snapshot of {snapshot} bytes after {flood:?}");
    }
}

#[test]
fn faulty_screen_is_cleared_and_goes_on() {
    let mut screen = printed(SIZE, &"line\r\n".repeat(20));
    screen.recover();
    screen.print(b"after");
    let client = client(&mut screen);
    assert_eq!(client.screen().line(0).map(|line| line.text().trim_end().to_owned()).as_deref(), Some("after"));
    assert_eq!(screen.faults, 1);
}

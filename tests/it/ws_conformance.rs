//! Conformance of the sockets to RFC 6455, over raw connections.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
    within,
};

const FIN: u8 = 0x80;
const TEXT: u8 = FIN | 0x1;
const BINARY: u8 = FIN | 0x2;
const CLOSE: u8 = FIN | 0x8;
const PING: u8 = FIN | 0x9;
const PONG: u8 = FIN | 0xa;
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const APP_PING: &[u8] = br#"{"action":"ping"}"#;
const CHAT_PING: &[u8] = br#"{"type":"ping"}"#;

/// Returns a frame as a client sends it, with a mask that changes every byte.
fn frame(first: u8, content: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match content.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length @ 126..=0xffff => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(content.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes()[..], reason].concat())
}

/// Socket of which each byte is written and read here.
struct RawSocket(TcpStream);

impl RawSocket {
    async fn open(server: &TestServer, path: &str) -> RawSocket {
        let mut stream = TcpStream::connect(&server.rest.authority).await.expect("the server listens");
        let request = handshake(server, path, "HTTP/1.1", &usual_headers());
        stream.write_all(request.as_bytes()).await.expect("the server reads");
        let mut socket = RawSocket(stream);
        let head = socket.read_head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        // The digest of the key in RFC 6455, section 1.3.
        assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
        socket
    }

    async fn read_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within("an answer", self.0.read_u8()).await.expect("the answer arrives"));
        }
        String::from_utf8(head).expect("a head is text")
    }

    async fn send(&mut self, bytes: &[u8]) {
        // A server that has closed the socket reads no further.
        let _sent_or_closed = self.0.write_all(bytes).await;
    }

    /// Reads a frame. Checks what RFC 6455 demands of every frame of a server.
    async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = within("a frame", self.0.read_u8()).await.ok()?;
        let second = self.0.read_u8().await.expect("a frame has a length");
        assert!(first & 0x70 == 0 && second & 0x80 == 0, "no reserved bit and no mask");
        let length = match second {
            126 => u64::from(self.0.read_u16().await.expect("a length")),
            127 => self.0.read_u64().await.expect("a length"),
            length => length.into(),
        };
        assert!(first & 0x8 == 0 || (length <= 125 && first & FIN != 0), "a control frame is small and whole");
        let mut content = vec![0; length as usize];
        self.0.read_exact(&mut content).await.expect("the content arrives");
        Some((first, content))
    }

    /// Reads to the first frame that is not part of the greeting.
    async fn answer(&mut self) -> SocketAnswer {
        while let Some((first, content)) = self.frame().await {
            match first {
                TEXT => {
                    let json: Value = serde_json::from_slice(&content).expect("a text frame is JSON");
                    let status = json.get("status").or(json.get("type")).and_then(Value::as_str).unwrap_or_default();
                    if status == "pong" {
                        return SocketAnswer::AppPong;
                    }
                    if json.get("error").is_some() || status == "error" {
                        return SocketAnswer::Error;
                    }
                }
                PONG => return SocketAnswer::Pong(content),
                CLOSE => {
                    let code = content.first_chunk().map(|code| u16::from_be_bytes(*code));
                    let reason = String::from_utf8(content[content.len().min(2)..].to_vec()).expect("text");
                    // Nothing follows a close.
                    assert_eq!(self.frame().await, None);
                    return SocketAnswer::Closed(code, reason);
                }
                _ => {}
            }
        }
        SocketAnswer::HungUp
    }
}

#[derive(Debug, PartialEq)]
enum SocketAnswer {
    /// Answer to a ping of the application.
    AppPong,
    Error,
    Pong(Vec<u8>),
    Closed(Option<u16>, String),
    HungUp,
}

enum ExpectedAnswer {
    AppPong,
    Error,
    Pong(&'static [u8]),
    /// Close with this code, and a reason that contains the text.
    Closed(u16, &'static str),
    ClosedWithoutCode,
}

use ExpectedAnswer::{AppPong, Closed, ClosedWithoutCode, Error, Pong};

/// Frames of a client and the answer to them.
fn cases(ping: &[u8]) -> Vec<(String, Vec<u8>, ExpectedAnswer)> {
    let mut cases = Vec::new();
    let mut case = |name: &str, frames: &[Vec<u8>], expected| cases.push((name.to_owned(), frames.concat(), expected));
    let text = |content: &[u8]| frame(TEXT, content);
    let (begin, more, last) = (0x1, 0x0, FIN);
    let split = |at: usize| [frame(begin, &ping[..at]), frame(last, &ping[at..])];

    // Messages and their lengths.
    case("a text", &[text(ping)], AppPong);
    for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 300_000] {
        case(&format!("{length} bytes of text"), &[text(&vec![b' '; length])], Error);
        case(&format!("{length} bytes of data"), &[frame(BINARY, &vec![0xff; length])], Error);
    }
    case("text with characters of all lengths", &[text("é€𐍈\u{10ffff}\0".as_bytes())], Error);

    // Pings and pongs.
    case("a ping", &[frame(PING, b"hello")], Pong(b"hello"));
    case("an empty ping", &[frame(PING, b"")], Pong(b""));
    case("a ping of bytes", &[frame(PING, b"\xff\xfe\0")], Pong(b"\xff\xfe\0"));
    case("the largest ping", &[frame(PING, &[b'x'; 125])], Pong(&[b'x'; 125]));
    case("too large a ping", &[frame(PING, &[b'x'; 126])], Closed(1002, "125 bytes"));
    case("too large a pong", &[frame(PONG, &[b'x'; 126])], Closed(1002, "125 bytes"));
    case("a pong that nobody asked for", &[frame(PONG, b"?"), text(ping)], AppPong);

    // Fragments.
    for at in [0, 1, ping.len()] {
        case(&format!("a message split after {at}"), &split(at), AppPong);
    }
    let bytewise: Vec<_> = ping.iter().map(|byte| frame(more, &[*byte])).collect();
    case("a fragment for each byte", &[vec![frame(begin, b"")], bytewise, vec![frame(last, b"")]].concat(), AppPong);
    let [first, second] = split(4);
    case("a ping between fragments", &[first.clone(), frame(PING, b"\xff"), second.clone()], Pong(b"\xff"));
    case("a pong between fragments", &[first.clone(), frame(PONG, b""), second.clone()], AppPong);
    case("a fragmented binary message", &[frame(0x2, b"\xff"), frame(last, b"\xfe")], Error);
    case("a continuation of nothing", &[frame(last, ping)], Closed(1002, "no message to continue"));
    case("an unfinished continuation of nothing", &[frame(more, ping)], Closed(1002, "no message to continue"));
    case("a continuation after the end", &[first.clone(), second, frame(last, ping)], AppPong);
    case("a text within a text", &[first.clone(), text(ping)], Closed(1002, "before the last fragment"));
    case("data within a text", &[first.clone(), frame(0x2, b"")], Closed(1002, "before the last fragment"));
    case("a fragmented ping", &[frame(0x9, b"a"), frame(last, b"b")], Closed(1002, "must not be fragmented"));
    case("a fragmented close", &[frame(0x8, b"")], Closed(1002, "must not be fragmented"));

    // Reserved bits and opcodes, masks, lengths.
    for bit in [0x10, 0x20, 0x40, 0x50, 0x70] {
        case(&format!("reserved bits {bit:#x}"), &[frame(TEXT | bit, ping)], Closed(1002, "reserved bit"));
        case(&format!("reserved bits {bit:#x} in a ping"), &[frame(PING | bit, b"")], Closed(1002, "reserved bit"));
    }
    for opcode in [0x3, 0x4, 0x5, 0x6, 0x7, 0xb, 0xc, 0xd, 0xe, 0xf] {
        case(&format!("opcode {opcode:#x}"), &[frame(FIN | opcode, b"")], Closed(1002, "opcode"));
        case(&format!("opcode {opcode:#x} with data"), &[frame(FIN | opcode, b"data")], Closed(1002, "opcode"));
    }
    case("a frame without a mask", &[[&[TEXT, ping.len() as u8], ping].concat()], Closed(1002, "masked"));
    case("a ping without a mask", &[vec![PING, 0]], Closed(1002, "masked"));
    let length = [&[TEXT, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    case("a length of 64 bits", &[length], Closed(1002, "63 bits"));

    // UTF-8.
    let invalid: [&[u8]; 8] = [
        b"\xff",
        b"\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xfc\x83",
        b"\xe2\x82",
    ];
    for bytes in invalid {
        let name = format!("text {bytes:x?}");
        let long = [&[b'x'; 40_000], bytes].concat();
        case(&name, &[text(bytes)], Closed(1007, "UTF-8"));
        case(&format!("{name} after text"), &[text(&[b"hello ", bytes].concat())], Closed(1007, "UTF-8"));
        case(&format!("{name} after long text"), &[text(&long)], Closed(1007, "UTF-8"));
        case(
            &format!("{name} in the first fragment"),
            &[frame(begin, bytes), frame(last, b"x")],
            Closed(1007, "UTF-8"),
        );
        case(&format!("{name} in the last fragment"), &[frame(begin, b"x"), frame(last, bytes)], Closed(1007, "UTF-8"));
        let pings = [frame(begin, &bytes[..1]), frame(PONG, b""), frame(last, &bytes[1..])];
        case(&format!("{name} in both"), &pings, Closed(1007, "UTF-8"));
        case(&format!("{name} in a close"), &[close(1000, bytes)], Closed(1007, "UTF-8"));
    }
    let euro = "€".as_bytes();
    let divided = [frame(begin, br#"{"x":""#), frame(more, &euro[..1]), frame(more, &euro[1..]), frame(last, br#""}"#)];
    case("a character divided between fragments", &divided, Error);
    case(
        "a continuation that never ends a character",
        &[frame(begin, euro), frame(last, &euro[..2])],
        Closed(1007, "UTF-8"),
    );

    // Closes.
    case("a close", &[close(1000, b"")], Closed(1000, ""));
    case("a close without a code", &[frame(CLOSE, b"")], ClosedWithoutCode);
    case("a close with a reason", &[close(1001, "auf Wiedersehen, Grüße".as_bytes())], Closed(1001, "Grüße"));
    case("the largest close", &[close(1000, &[b'x'; 123])], Closed(1000, "xxx"));
    case("too large a close", &[close(1000, &[b'x'; 124])], Closed(1002, "125 bytes"));
    case("half a code", &[frame(CLOSE, b"\x03")], Closed(1002, "half a status code"));
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        case(&format!("a close with {code}"), &[close(code, b"")], Closed(code, ""));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        case(&format!("a close with {code}"), &[close(code, b"")], Closed(1002, "not allowed"));
    }
    case("a text after a close", &[close(1000, b""), text(ping)], Closed(1000, ""));
    case("a close between fragments", &[first, close(1000, b"")], Closed(1000, ""));
    cases
}

async fn check(server: &TestServer, path: &str, ping: &[u8]) {
    for (name, bytes, expected) in cases(ping) {
        // In one piece, and byte by byte if that is not too long.
        for size in [bytes.len(), if bytes.len() < 300 { 1 } else { 9_999 }] {
            let mut socket = RawSocket::open(server, path).await;
            for part in bytes.chunks(size.max(1)) {
                socket.send(part).await;
            }
            let answer = socket.answer().await;
            let is_expected = match (&expected, &answer) {
                (AppPong, SocketAnswer::AppPong) | (Error, SocketAnswer::Error) => true,
                (Pong(content), SocketAnswer::Pong(found)) => content == found,
                (Closed(code, part), SocketAnswer::Closed(Some(found), reason)) => {
                    code == found && reason.contains(part)
                }
                (ClosedWithoutCode, SocketAnswer::Closed(None, _)) => true,
                _ => false,
            };
            assert!(is_expected, "{path}: {name}, in parts of {size}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn session_socket_keeps_to_the_rfc() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    check(&server, "/ws", APP_PING).await;
}

#[tokio::test]
async fn chat_socket_keeps_to_the_rfc() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    check(&server, &format!("/ws/sessions/{session}/chat"), CHAT_PING).await;
}

type HandshakeLines = Vec<(&'static str, &'static str)>;

fn usual_headers() -> HandshakeLines {
    vec![
        ("upgrade", "websocket"),
        ("connection", "Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", KEY),
    ]
}

/// Returns the usual headers with one replaced or, if the value is empty, left out.
fn with(name: &'static str, value: &'static str) -> HandshakeLines {
    let others = usual_headers().into_iter().filter(|(other, _)| *other != name);
    others.chain((!value.is_empty()).then_some((name, value))).collect()
}

fn handshake(server: &TestServer, path: &str, version: &str, headers: &HandshakeLines) -> String {
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let rest = &server.rest;
    format!("GET {path} {version}\r\nhost: {}\r\nauthorization: bearer {}\r\n{lines}\r\n", rest.authority, rest.token)
}

#[tokio::test]
async fn handshakes_keep_to_the_rfc() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    let twice = [usual_headers(), vec![("sec-websocket-key", KEY)]].concat();
    let table: [(&str, &str, HandshakeLines, u16); 17] = [
        ("the usual", "HTTP/1.1", usual_headers(), 101),
        ("upper case", "HTTP/1.1", with("upgrade", "WebSocket"), 101),
        ("several connection options", "HTTP/1.1", with("connection", "keep-alive, Upgrade"), 101),
        (
            "extensions and protocols to choose from",
            "HTTP/1.1",
            [usual_headers(), vec![("sec-websocket-extensions", "permessage-deflate")]].concat(),
            101,
        ),
        ("HTTP/1.0", "HTTP/1.0", usual_headers(), 400),
        ("no upgrade", "HTTP/1.1", with("upgrade", ""), 400),
        ("another upgrade", "HTTP/1.1", with("upgrade", "h2c"), 400),
        ("no connection option", "HTTP/1.1", with("connection", "keep-alive"), 400),
        ("no version", "HTTP/1.1", with("sec-websocket-version", ""), 400),
        ("an old version", "HTTP/1.1", with("sec-websocket-version", "8"), 426),
        ("a later version", "HTTP/1.1", with("sec-websocket-version", "14"), 426),
        ("no number", "HTTP/1.1", with("sec-websocket-version", "thirteen"), 426),
        ("no key", "HTTP/1.1", with("sec-websocket-key", ""), 400),
        ("a short key", "HTTP/1.1", with("sec-websocket-key", "c2hvcnQ="), 400),
        ("a long key", "HTTP/1.1", with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZTEyMzQ="), 400),
        ("a key that is no base64", "HTTP/1.1", with("sec-websocket-key", "!!!!!!!!!!!!!!!!!!!!!!=="), 400),
        ("two keys", "HTTP/1.1", twice, 400),
    ];
    for path in ["/ws".to_owned(), format!("/ws/sessions/{session}/chat")] {
        for (name, version, headers, expected) in &table {
            let mut socket = RawSocket(TcpStream::connect(&server.rest.authority).await.expect("the server listens"));
            socket.send(handshake(&server, &path, version, headers).as_bytes()).await;
            let head = socket.read_head().await;
            let status = head.split(' ').nth(1).expect("a status");
            assert_eq!(status, expected.to_string(), "{path}: {name}: {head}");
            assert_eq!(head.contains("sec-websocket-version: 13\r\n"), *expected == 426, "{name}: {head}");
            assert!(!head.contains("sec-websocket-extensions"), "no extension is supported");
            if *expected != 101 {
                assert!(head.contains("application/json") && head.contains("nosniff"), "{name}: {head}");
            }
        }
    }
}

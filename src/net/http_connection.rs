//! Connection beneath HTTP, with answers to requests that cannot be parsed.
//!
//! The HTTP library answers such a request itself: a malformed head, a head that is too large or
//! takes too long. Its answer is a bare status, and no middleware sees it. So the answer is
//! completed on its way to the client.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use actix_http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{client_stream::ClientStream, idle_timeout::ResponseCounts};

/// Answer to a request that cannot be parsed: what the library's bare status lacks.
pub struct UnparsedAnswer {
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Answers to requests that cannot be parsed.
#[derive(Clone, Copy)]
pub struct UnparsedAnswers {
    /// Returns true if a request begins like that of a browser that opens a page.
    pub is_navigation: fn(&[u8]) -> bool,
    /// Returns the answer with this status, as a page if the flag is true.
    pub answer: fn(StatusCode, bool) -> UnparsedAnswer,
}

/// Connection beneath HTTP.
pub(super) struct HttpConnection {
    stream: ClientStream,
    unparsed: UnparsedAnswers,
    /// True if the newest request began like that of a browser that opens a page.
    is_navigation: bool,
    /// Number of the application's responses when all bytes so far were sent. `None` while a
    /// response may still have bytes in the library's buffer.
    sent_with: Option<u64>,
    /// Unsent rest of a completed answer.
    unsent: Vec<u8>,
}

impl HttpConnection {
    pub(super) fn new(stream: ClientStream, unparsed: UnparsedAnswers) -> HttpConnection {
        HttpConnection { stream, unparsed, is_navigation: false, sent_with: Some(0), unsent: Vec::new() }
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        self.stream.tcp()
    }

    pub(super) fn into_stream(self) -> ClientStream {
        self.stream
    }

    /// Returns the complete form of an answer of the library.
    ///
    /// `None` if a byte of `written` may come from the application. A download could contain what
    /// looks like an answer of the library.
    fn complete(&self, written: &[u8]) -> Option<Vec<u8>> {
        let counts = ResponseCounts::of_polled()?;
        let is_of_library = counts.active == 0 && self.sent_with == Some(counts.begun);
        let (status, head) = is_of_library.then(|| bare_error(written)).flatten()?;
        let UnparsedAnswer { headers, body } = (self.unparsed.answer)(status, self.is_navigation);
        let mut answer = head.to_owned().into_bytes();
        let mut add = |name: &HeaderName, value: &[u8]| {
            answer.extend_from_slice(&[name.as_str().as_bytes(), b": ", value, b"\r\n"].concat());
        };
        headers.iter().for_each(|(name, value)| add(name, value.as_bytes()));
        add(&header::CONTENT_LENGTH, body.len().to_string().as_bytes());
        add(&header::CONNECTION, b"close");
        answer.extend_from_slice(&[b"\r\n", &body[..]].concat());
        Some(answer)
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.unsent))?;
            self.unsent.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the status and the lines to keep of a head that is an error without a body.
fn bare_error(written: &[u8]) -> Option<(StatusCode, String)> {
    let head = std::str::from_utf8(written).ok()?.strip_suffix("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next().filter(|line| line.starts_with("HTTP/1."))?;
    let status: StatusCode = status_line.split(' ').nth(1)?.parse().ok()?;
    let is_error = status.is_client_error() || status.is_server_error();
    let mut kept = format!("{status_line}\r\n");
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        match name {
            "content-length" if value == "0" => {}
            "connection" => {}
            // A second head, or a body.
            "content-length" | "transfer-encoding" => return None,
            _ => kept.extend([line, "\r\n"]),
        }
    }
    is_error.then_some((status, kept))
}

impl AsyncRead for HttpConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        // Bytes after all answers were sent begin a request. The rest of a head comes later.
        if self.sent_with.is_some() && buffer.filled().len() > before {
            self.is_navigation |= (self.unparsed.is_navigation)(&buffer.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for HttpConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, written: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_unsent(cx))?;
        let Some(answer) = self.complete(written) else { return Pin::new(&mut self.stream).poll_write(cx, written) };
        self.unsent = answer;
        // A flush follows, and sends what is left.
        let _is_sent = self.poll_unsent(cx)?;
        Poll::Ready(Ok(written.len()))
    }

    /// Called when the library's buffer is empty.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let sent_with = ResponseCounts::of_polled().filter(|counts| counts.active == 0).map(|counts| counts.begun);
        self.is_navigation &= sent_with == self.sent_with;
        self.sent_with = sent_with;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_error_of_the_library_is_completed() {
        let check = |written: &str, expected: Option<&str>| {
            assert_eq!(bare_error(written.as_bytes()).map(|(_, kept)| kept).as_deref(), expected, "{written}");
        };
        let bare = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\ndate: now\r\n\r\n";
        check(bare, Some("HTTP/1.1 400 Bad Request\r\ndate: now\r\n"));
        check("HTTP/1.0 408 Request Timeout\r\ncontent-length: 0\r\n\r\n", Some("HTTP/1.0 408 Request Timeout\r\n"));
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None);
        check("HTTP/1.1 100 Continue\r\n\r\n", None);
        check("HTTP/1.1 400 Bad Request\r\ncontent-length: 3\r\n\r\n", None);
        check("HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n", None);
        check(&format!("{bare}{bare}"), None);
        check(&format!("{bare}x"), None);
        check("HTTP/1.1 400 Bad Request\r\ncontent-le", None);
    }
}

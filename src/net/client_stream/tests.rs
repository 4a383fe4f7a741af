use std::time::Duration;

use greenroom_testkit::tls::TestCertificate;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::net::tls_config;

/// Returns both ends of a connection after the handshake.
async fn ends() -> (TlsStream<TcpStream>, ClientStream) {
    let (client, server) = handshake().await;
    (client.expect("the client accepts the certificate"), server.expect("the server accepts the client"))
}

async fn handshake() -> (io::Result<TlsStream<TcpStream>>, io::Result<ClientStream>) {
    let (certificate, dir) = (TestCertificate::new(), tempfile::tempdir().expect("a temporary directory"));
    let (cert, key) = certificate.write(dir.path());
    let config = tls_config(&cert, &key).expect("the files are valid");
    let (client, server) = tcp_ends().await;
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(certificate.client_config());
    tokio::join!(connector.connect(name, client), ClientStream::accept_tls(server, config))
}

async fn tcp_ends() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("the listener binds");
    let address = listener.local_addr().expect("the listener is bound");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (client.expect("the client connects"), accepted.expect("a client has connected").0)
}

#[tokio::test]
async fn large_data_passes_both_ways_and_ends_cleanly() {
    let (mut client, mut server) = ends().await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let (up, down) = (sent.clone(), sent.clone());
    let client = tokio::spawn(async move {
        let (mut reads, mut writes) = tokio::io::split(&mut client);
        let mut received = Vec::new();
        let sending = async {
            writes.write_all(&up).await?;
            writes.shutdown().await
        };
        let (read, sent) = tokio::join!(reads.read_to_end(&mut received), sending);
        sent.and(read).map(|_| received)
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.expect("the client sends");
    server.write_all(&down).await.expect("the client reads");
    server.shutdown().await.expect("the farewell is sent");
    assert!(received == sent, "{} bytes arrived", received.len());
    let received = client.await.expect("the client does not panic").expect("the connection ends cleanly");
    assert!(received == sent, "{} bytes arrived", received.len());
}

#[tokio::test]
async fn decrypted_rest_is_readable_without_further_data() {
    let (mut client, mut server) = ends().await;
    client.write_all(b"0123456789").await.expect("the server reads");
    client.flush().await.expect("the server reads");
    let mut read = [0; 4];
    for expected in [b"0123", b"4567"] {
        poll_fn(|cx| server.poll_read_ready(cx)).await.expect("the connection is open");
        let count = loop {
            match server.try_read(&mut read) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| server.poll_read_ready(cx)).await.expect("open")
                }
                other => break other.expect("data has arrived"),
            }
        };
        assert_eq!(&read[..count], expected);
    }
}

#[tokio::test]
async fn detached_stream_continues_after_attaching() {
    let (mut client, server) = ends().await;
    client.write_all(b"before").await.expect("the server reads");
    client.flush().await.expect("the server reads");
    let mut server = server.detach().expect("the runtime releases the socket").attach().expect("the runtime takes it");
    let mut read = [0; 6];
    server.read_exact(&mut read).await.expect("the data of before arrives");
    assert_eq!(&read, b"before");
    server.write_all(b"after").await.expect("the client reads");
    server.flush().await.expect("the client reads");
    let mut read = [0; 5];
    client.read_exact(&mut read).await.expect("the answer arrives");
    assert_eq!(&read, b"after");
}

#[tokio::test]
async fn unread_bytes_stay_in_the_bounded_buffer() {
    let (client, mut server) = ends().await;
    let mut written = 0;
    // The client reads nothing, so the kernel's buffers fill up.
    let blocked = loop {
        match server.try_write(&[b'x'; 16 << 10]) {
            Ok(count) => written += count,
            Err(e) => break e,
        }
        let _writable = timeout(Duration::from_millis(100), poll_fn(|cx| server.poll_write_ready(cx))).await;
    };
    assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
    assert!(server.has_unsent(), "{written} bytes are written");
    drop(client);
}

#[tokio::test]
async fn client_without_tls_is_rejected() {
    let (certificate, dir) = (TestCertificate::new(), tempfile::tempdir().expect("a temporary directory"));
    let (cert, key) = certificate.write(dir.path());
    let config = tls_config(&cert, &key).expect("the files are valid");
    let (mut client, server) = tcp_ends().await;
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("the server reads");
    let error = ClientStream::accept_tls(server, config).await.err().expect("the handshake fails");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn unusable_files_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (first, second) = (TestCertificate::new(), TestCertificate::new());
    let (cert, key) = first.write(dir.path());
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("the file is written");
        path
    };
    let (other_key, empty) = (write("other.key", &second.key_pem), write("empty.pem", ""));
    let (garbage, missing) = (write("garbage.pem", "-----BEGIN CERTIFICATE-----\nx"), dir.path().join("missing.pem"));
    let check = |cert: &std::path::Path, key: &std::path::Path, parts: &[&str]| {
        let error = tls_config(cert, key).expect_err("the files are unusable").to_string();
        parts.iter().for_each(|part| assert!(error.contains(part), "no {part:?} in {error}"));
    };
    check(&missing, &key, &["missing.pem` of `server.tls`", "certificate chain in PEM format"]);
    check(&cert, &missing, &["missing.pem` of `server.tls`", "private key in PEM format"]);
    check(&empty, &key, &["empty.pem` of `server.tls` contains no certificate"]);
    check(&garbage, &key, &["garbage.pem` of `server.tls`"]);
    check(&cert, &empty, &["empty.pem` of `server.tls`", "private key"]);
    check(&cert, &other_key, &["other.key` of `server.tls` does not fit", "both must come from one"]);
}

//! temp
use super::*;
use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

fn server(base: Instant, tokens: usize, pause: Duration) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut s = stream.unwrap();
            s.set_nodelay(true).unwrap();
            std::thread::spawn(move || {
                let mut buf = vec![0; 65536];
                loop {
                    if s.read(&mut buf).unwrap_or(0) == 0 {
                        return;
                    }
                    s.write_all(
                        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
                    )
                    .unwrap();
                    for _ in 0..tokens {
                        std::thread::sleep(pause);
                        let t = base.elapsed().as_nanos();
                        let ev = format!(
                            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\" hello\"}},\"t\":{t:020}}}\n\n"
                        );
                        s.write_all(format!("{:x}\r\n{ev}\r\n", ev.len()).as_bytes()).unwrap();
                    }
                    let ev = "data: {\"type\":\"message_stop\"}\n\n";
                    s.write_all(format!("{:x}\r\n{ev}\r\n0\r\n\r\n", ev.len()).as_bytes()).unwrap();
                }
            });
        }
    });
    url
}

async fn latencies<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static>(
    s: T,
    path: String,
    base: Instant,
) -> Vec<u128> {
    let (mut client, conn) = http1::handshake(TokioIo::new(s)).await.unwrap();
    tokio::spawn(conn);
    let r = client
        .send_request(
            Request::post(&path).header("host", "x").body(Full::<Bytes>::from(streaming("claude-x"))).unwrap(),
        )
        .await
        .unwrap();
    let mut body = r.into_body();
    let mut out = vec![];
    while let Some(f) = body.frame().await {
        let now = base.elapsed().as_nanos();
        let d = f.unwrap().into_data().unwrap();
        let t = String::from_utf8_lossy(&d);
        for p in t.split("\"t\":").skip(1) {
            out.push(now.saturating_sub(p[..20].parse::<u128>().unwrap()));
        }
    }
    out
}

fn show(name: &str, mut v: Vec<u128>) {
    v.sort();
    println!(
        "{name}: n={} p50={}us p90={}us p99={}us max={}us",
        v.len(),
        v[v.len() / 2] / 1000,
        v[v.len() * 9 / 10] / 1000,
        v[v.len() * 99 / 100] / 1000,
        v[v.len() - 1] / 1000
    );
}

fn rss() -> usize {
    let s = std::fs::read_to_string("/proc/self/statm").unwrap();
    s.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
#[ignore]
fn measure() {
    let base = Instant::now();
    for streams in [1usize, 50] {
        let url = server(base, 1000, Duration::from_millis(if streams == 1 { 2 } else { 20 }));
        let dir = tempfile::tempdir().unwrap();
        let socks: Vec<_> = (0..streams).map(|n| dir.path().join(format!("{n}"))).collect();
        let (tx, rx) = std::sync::mpsc::channel();
        {
            let url = url.clone();
            let socks = socks.clone();
            std::thread::spawn(move || {
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
                    let g = Gateway::new(options(&url)).unwrap();
                    let _eps: Vec<_> = socks
                        .iter()
                        .map(|s| g.open(UnixListener::bind(s).unwrap(), Arc::new(Ledger::default())))
                        .collect();
                    tx.send(()).unwrap();
                    std::future::pending::<()>().await
                })
            });
        }
        rx.recv().unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            for round in 0..2 {
                let addr = url.strip_prefix("http://").unwrap();
                let direct: Vec<_> = (0..streams)
                    .map(|_| async {
                        let s = tokio::net::TcpStream::connect(addr).await.unwrap();
                        s.set_nodelay(true).unwrap();
                        latencies(s, "/v1/messages".into(), base).await
                    })
                    .collect();
                show(&format!("{streams} direct {round}"), futures::future::join_all(direct).await.concat());
                let via: Vec<_> =
                    socks
                        .iter()
                        .map(|p| async move {
                            latencies(UnixStream::connect(p).await.unwrap(), MESSAGES.into(), base).await
                        })
                        .collect();
                show(&format!("{streams} gateway {round}"), futures::future::join_all(via).await.concat());
            }
        });
    }
}

#[tokio::test]
#[ignore]
async fn memory() {
    let dir = tempfile::tempdir().unwrap();
    let g = Gateway::new(options("http://127.0.0.1:9")).unwrap();
    let ledger = Arc::new(Ledger::default());
    let mut eps = vec![];
    for n in 0..100 {
        eps.push(g.open(UnixListener::bind(dir.path().join(format!("w{n}"))).unwrap(), ledger.clone()));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = rss();
    const N: usize = 10_000;
    eps.reserve(N);
    for n in 0..N {
        eps.push(g.open(UnixListener::bind(dir.path().join(format!("{n}"))).unwrap(), ledger.clone()));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("per idle endpoint: {} bytes (rss)", (rss() - before) / N);
    let before = rss();
    let mut conns = vec![];
    for n in 0..2000 {
        conns.push(UnixStream::connect(dir.path().join(format!("{n}"))).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    println!("per idle connection, both ends: {} bytes (rss)", (rss() - before) / 2000);
}

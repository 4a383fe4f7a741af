//! Token latency: from the moment at which the model sends a token to the moment at which a client has it, through gateway,
//! agent, link, session and socket; beside a client that reads the same model directly.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::json;

use crate::{
    figures::{Figures, table, times},
    harness::{
        driver::Driver,
        model::{Model, Rule},
        server::{Options, Server},
        socket::Socket,
    },
};

/// 20 tokens a second, for ten seconds.
const EVERY_MS: u64 = 50;
const TOKENS: usize = 200;

pub(crate) async fn run() {
    let mut rows = Vec::new();
    for clients in [1, 10, 50] {
        let model = Arc::new(Model::with(vec![Rule {
            say: Some("token ".into()),
            times: TOKENS,
            every_ms: EVERY_MS,
            stamped: true,
            ..Rule::default()
        }]));
        let direct = together(clients, |_| directly(model.url())).await;
        let server = Arc::new(Server::start(Options::anthropic(Driver::Process, &model)).await);
        let through = together(clients, |_| through(server.clone())).await;
        let us = |value: f64| format!("{value:.0} µs");
        rows.push(vec![
            clients.to_string(),
            format!("{} / {}", us(direct.p(50)), us(direct.p(99))),
            format!("{} / {}", us(through.p(50)), us(through.p(99))),
            format!("{} / {}", times(through.p(50), direct.p(50)), times(through.p(99), direct.p(99))),
        ]);
    }
    let head = ["sessions", "directly, p50 / p99", "through Greenroom, p50 / p99", "ratio"];
    table("Token latency, model → client (20 tokens/s a session)", &head, &rows);
}

async fn together<F: Future<Output = Figures> + Send + 'static>(n: usize, client: impl Fn(usize) -> F) -> Figures {
    let clients: Vec<_> = (0..n).map(|i| tokio::spawn(client(i))).collect();
    let mut all = Figures::default();
    for client in clients {
        all.extend(client.await.expect("no client fails"));
    }
    all
}

async fn directly(url: String) -> Figures {
    let body =
        json!({ "model": "m", "max_tokens": 1, "stream": true, "messages": [{ "role": "user", "content": "go" }] });
    let request = reqwest::Client::new().post(format!("{url}/v1/messages")).json(&body);
    let mut response = request.send().await.expect("the model answers");
    let mut figures = Figures::default();
    while let Some(chunk) = response.chunk().await.expect("the stream holds") {
        stamps(&String::from_utf8_lossy(&chunk), &mut figures);
    }
    figures
}

async fn through(server: Arc<Server>) -> Figures {
    let mut socket = Socket::open(&server.rest).await;
    socket.act("start", json!({ "task": "go" })).await;
    let mut figures = Figures::default();
    loop {
        let frame = socket.next().await;
        if frame["delta"] == "text" {
            stamps(frame["content"].as_str().unwrap_or_default(), &mut figures);
        }
        if frame["extras"]["agent_state"] == "idle" && figures.len() > 0 {
            return figures;
        }
    }
}

/// Every word that is a time in microseconds tells how long it took to get here.
fn stamps(text: &str, figures: &mut Figures) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_micros() as f64;
    let words = text.split(|c: char| !c.is_ascii_digit()).filter(|word| word.len() == 16);
    words.filter_map(|word| word.parse::<f64>().ok()).for_each(|sent| figures.add(now - sent));
}

//! Model that receives one call of each session, keeps its prompt for the test, and answers 402.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use greenroom::store::SessionId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

const SPENT: &[u8] = b"HTTP/1.1 402 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

pub(crate) struct LinkModel {
    pub(crate) socket: PathBuf,
    /// Prompts by the session that the question names.
    prompts: Arc<Mutex<HashMap<String, String>>>,
}

impl LinkModel {
    pub(crate) fn start(socket: &Path) -> LinkModel {
        let listener = UnixListener::bind(socket).expect("a socket");
        let prompts: Arc<Mutex<HashMap<String, String>>> = Arc::default();
        let all = prompts.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, all.clone()));
            }
        });
        LinkModel { socket: socket.to_owned(), prompts }
    }

    /// Returns the question of a session's agent, by which the model identifies the session.
    pub(crate) fn question(id: SessionId) -> String {
        format!("and now, in {id}?")
    }

    /// Returns the prompt that contained the session's question.
    pub(crate) async fn take_prompt(&self, id: SessionId) -> String {
        loop {
            let prompt = self.prompts.lock().expect("lock is never poisoned: no holder panics").remove(&id.to_string());
            match prompt {
                Some(prompt) => return prompt,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

async fn answer(mut stream: UnixStream, prompts: Arc<Mutex<HashMap<String, String>>>) {
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(read @ 1..) = stream.read(&mut piece).await else { return };
        got.extend_from_slice(&piece[..read]);
        let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let (head, body) = (String::from_utf8_lossy(&got[..end]).to_lowercase(), &got[end + 4..]);
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        if body.len() < length.trim().parse::<usize>().expect("a number") {
            continue;
        }
        let body = String::from_utf8_lossy(body);
        let (_, id) = body.rsplit_once("and now, in ").expect("the question");
        let id = id.split('?').next().expect("a session").to_owned();
        prompts.lock().expect("lock is never poisoned: no holder panics").insert(id, body.into_owned());
        // An agent that has left receives no answer.
        let _ = stream.write_all(SPENT).await;
        return;
    }
}

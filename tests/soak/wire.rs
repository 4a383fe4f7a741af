//! A socket of a client that lives in a world where servers die.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use super::world::World;

/// How long a server may take for a handshake before it counts as gone.
const HANDSHAKE: Duration = Duration::from_secs(5);

pub(super) struct Wire(WebSocketStream<TcpStream>);

/// What came over it.
pub(super) enum Heard {
    Frame(Value),
    Nothing,
    /// The connection is gone.
    Cut,
}

impl Wire {
    /// `None` where nobody answers.
    pub(super) async fn attach(world: &World, session: &str, after: impl std::fmt::Display) -> Option<Wire> {
        let authority = &world.rest.authority;
        let mut request =
            format!("ws://{authority}/ws?session={session}&after={after}").into_client_request().expect("an address");
        let bearer = HeaderValue::from_str(&format!("Bearer {}", world.rest.token)).expect("a token is text");
        request.headers_mut().insert("authorization", bearer);
        let opened = async {
            let tcp = TcpStream::connect(authority).await.ok()?;
            Some(client_async(request, tcp).await.ok()?.0)
        };
        let wire = timeout(HANDSHAKE, opened).await.ok()??;
        world.connected();
        Some(Wire(wire))
    }

    pub(super) async fn hear(&mut self, wait: Duration) -> Heard {
        loop {
            match timeout(wait, self.0.next()).await {
                Err(_) => return Heard::Nothing,
                Ok(Some(Ok(Message::Text(text)))) => {
                    return serde_json::from_str(&text).map_or(Heard::Cut, Heard::Frame);
                }
                Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return Heard::Cut,
                Ok(Some(Ok(_))) => {}
            }
        }
    }

    /// False where it could not be sent.
    pub(super) async fn say(&mut self, frame: &Value) -> bool {
        matches!(timeout(HANDSHAKE, self.0.send(Message::text(frame.to_string()))).await, Ok(Ok(())))
    }
}

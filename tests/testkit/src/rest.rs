//! The REST API, as a script would use it.

use reqwest::{Method, RequestBuilder, StatusCode, header::HeaderMap};
use serde_json::{Value, json};

use super::within;

/// Where a server listens, and the token that opens it.
#[derive(Clone)]
pub(crate) struct RestClient {
    http: reqwest::Client,
    /// Such as `127.0.0.1:40001`.
    pub(crate) authority: String,
    pub(crate) token: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct RestReply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// A client that follows no redirect.
pub(crate) fn client() -> reqwest::Client {
    // Refused where there is one already, which is as good.
    let _is_set = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    client.expect("a plain client needs nothing")
}

impl RestClient {
    /// From the line that a server prints: `listening on http://127.0.0.1:3000/?token=…`.
    pub(crate) fn from_line(line: &str) -> RestClient {
        let link = line.strip_prefix("listening on http://").unwrap_or_else(|| panic!("not the agreed line: {line}"));
        let (authority, token) = link.split_once("/?token=").unwrap_or_else(|| panic!("no token in: {line}"));
        RestClient { http: client(), authority: authority.to_owned(), token: token.trim().to_owned() }
    }

    /// The link that a person opens.
    pub(crate) fn link(&self) -> String {
        format!("http://{}/?token={}", self.authority, self.token)
    }

    /// A request without the token, to be completed.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.authority))
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.token)
    }

    pub(crate) async fn get(&self, path: &str) -> RestReply {
        send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> RestReply {
        send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> RestReply {
        send(self.request(Method::PATCH, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> RestReply {
        send(self.request(Method::DELETE, path)).await
    }

    /// Makes a session and returns its id.
    pub(crate) async fn create(&self, body: Value) -> String {
        let reply = self.post("/api/sessions", body).await;
        reply.expect(201)["id"].as_str().expect("a session has an id").to_owned()
    }

    /// Makes a session that works on `task`.
    pub(crate) async fn start(&self, task: &str) -> String {
        self.create(json!({ "task": task })).await
    }

    pub(crate) async fn session(&self, id: &str) -> Value {
        self.get(&format!("/api/sessions/{id}")).await.expect(200)
    }

    /// Every durable event of a session.
    pub(crate) async fn events(&self, id: &str) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event["seq"].as_u64().expect("an event has a seq"));
            let page = self.get(&format!("/api/sessions/{id}/events?after={after}")).await.expect(200);
            let items = page["items"].as_array().expect("items").clone();
            events.extend(items);
            if events.last().is_none_or(|event| event["seq"] == page["last_seq"]) {
                return events;
            }
        }
    }

    /// Waits until the session is in that state.
    pub(crate) async fn until_state(&self, id: &str, state: &str) {
        super::eventually(&format!("session {id} to be {state}"), || async move {
            self.session(id).await["state"] == state
        })
        .await;
    }
}

/// Sends it and reads the answer to its end.
pub(crate) async fn send(request: RequestBuilder) -> RestReply {
    within("an answer", async {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status(), response.headers().clone());
        RestReply { status, headers, text: response.text().await.expect("the answer is text") }
    })
    .await
}

impl RestReply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("no JSON ({e}): {} {}", self.status, self.text))
    }

    /// The body, where the status is the expected one.
    #[track_caller]
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Where it is an error in the agreed form, of that status and code; returns its text.
    #[track_caller]
    pub(crate) fn error(&self, status: u16, code: &str) -> String {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{body}");
        body["error"]["message"].as_str().expect("an error says why").to_owned()
    }
}

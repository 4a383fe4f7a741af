//! Client of the REST API, as a script would use it.

use reqwest::{
    Method, RequestBuilder, StatusCode,
    header::{self, HeaderMap},
};
use serde_json::{Value, json};

use super::{tls::TestCertificate, within};

/// Address of a server, and its token.
#[derive(Clone)]
pub struct RestClient {
    http: reqwest::Client,
    /// Certificate of the server. `None`: plain HTTP.
    certificate: Option<TestCertificate>,
    /// Host and port, such as `127.0.0.1:40001`.
    pub authority: String,
    /// Path before all addresses, such as `/greenroom`. Empty: the root.
    pub base_path: String,
    pub token: String,
}

/// Cookie and secret of a browser that has signed in.
pub struct SignedInClient {
    pub cookie: String,
    pub secret: String,
}

impl SignedInClient {
    /// Returns the WebSocket protocols that the page offers.
    pub fn protocols(&self) -> String {
        format!("greenroom, secret.{}", self.secret)
    }
}

/// Answer, read to its end.
#[derive(Debug)]
pub struct RestReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

/// Returns an HTTP client that follows no redirect.
pub fn client() -> reqwest::Client {
    // Fails if a provider is installed already, which serves as well.
    let _is_set = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    client.expect("a client without options can be built")
}

impl RestClient {
    /// Parses the line that a server prints: `listening on http://127.0.0.1:3000/?token=…`.
    ///
    /// A server with `https` gets a client without certificates; see [`RestClient::trusting`].
    pub fn from_line(line: &str) -> RestClient {
        let link = line.strip_prefix("listening on ").and_then(|link| link.split_once("://"));
        let (_, link) = link.unwrap_or_else(|| panic!("not the documented line: {line}"));
        let (address, token) = link.split_once("/?token=").unwrap_or_else(|| panic!("no token in: {line}"));
        let (authority, base_path) = address.find('/').map_or((address, ""), |at| address.split_at(at));
        RestClient {
            http: client(),
            certificate: None,
            authority: authority.to_owned(),
            base_path: base_path.to_owned(),
            token: token.trim().to_owned(),
        }
    }

    /// Returns a client of the same server at another address, such as a proxy's.
    pub fn at(&self, authority: &str, base_path: &str) -> RestClient {
        RestClient { authority: authority.to_owned(), base_path: base_path.to_owned(), ..self.clone() }
    }

    /// Returns a client that speaks TLS and accepts this certificate only.
    pub fn trusting(&self, certificate: &TestCertificate) -> RestClient {
        // Sets the provider of ciphers.
        let _plain = client();
        RestClient { http: certificate.http_client(), certificate: Some(certificate.clone()), ..self.clone() }
    }

    /// Returns the certificate of a server with TLS.
    pub(super) fn certificate(&self) -> Option<&TestCertificate> {
        self.certificate.as_ref()
    }

    /// Returns the origin of the server's pages, such as `https://127.0.0.1:40001`.
    pub fn origin(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Returns the address of a path of this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}{}{path}", self.origin(), self.base_path)
    }

    /// Returns the link that a person opens.
    pub fn link(&self) -> String {
        self.url(&format!("/?token={}", self.token))
    }

    /// Opens the printed link, as a browser would.
    pub async fn sign_in(&self) -> SignedInClient {
        let reply = send(self.bare(Method::GET, &format!("/?token={}", self.token))).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let set = reply.headers[header::SET_COOKIE].to_str().expect("text");
        assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
        assert!(!set.contains(&self.token) && !reply.text.contains(&self.token), "the token is in the answer: {set}");
        let (_, rest) = reply.text.split_once(r#"type="application/json">"#).expect("the page has a data element");
        let given: Value = serde_json::from_str(rest.split('<').next().expect("the element ends")).expect("JSON");
        SignedInClient {
            cookie: set.split(';').next().expect("a cookie").to_owned(),
            secret: given["secret"].as_str().expect("the page has a secret").to_owned(),
        }
    }

    /// Begins a request as the page of a signed-in browser sends it.
    pub fn as_browser(&self, browser: &SignedInClient, method: Method, path: &str) -> RequestBuilder {
        let request = self.bare(method, path).header("cookie", &browser.cookie);
        request.header("x-greenroom-secret", &browser.secret).header("origin", self.origin())
    }

    /// Begins a request without the token.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path))
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.token)
    }

    pub async fn get(&self, path: &str) -> RestReply {
        send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> RestReply {
        send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> RestReply {
        send(self.request(Method::PATCH, path).json(&body)).await
    }

    pub async fn delete(&self, path: &str) -> RestReply {
        send(self.request(Method::DELETE, path)).await
    }

    /// Creates a session and returns its id.
    pub async fn create(&self, body: Value) -> String {
        let reply = self.post("/api/sessions", body).await;
        reply.expect(201)["id"].as_str().expect("a session has an id").to_owned()
    }

    /// Creates a session that works on `task`. Returns its id.
    pub async fn start(&self, task: &str) -> String {
        self.create(json!({ "task": task })).await
    }

    pub async fn session(&self, id: &str) -> Value {
        self.get(&format!("/api/sessions/{id}")).await.expect(200)
    }

    /// Returns every durable event of a session.
    pub async fn events(&self, id: &str) -> Vec<Value> {
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
    pub async fn until_state(&self, id: &str, state: &str) {
        super::eventually(&format!("session {id} to be {state}"), || async move {
            self.session(id).await["state"] == state
        })
        .await;
    }

    /// Waits until the session is idle, and the changes of its newest turn are captured.
    pub async fn until_captured(&self, id: &str) {
        self.until_state(id, "idle").await;
        super::eventually(&format!("session {id} to be captured"), || async move {
            self.events(id).await.last().is_some_and(|event| event["observation"] == "changes")
        })
        .await;
    }
}

/// Sends the request and reads the answer to its end.
pub async fn send(request: RequestBuilder) -> RestReply {
    within("an answer", async {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status(), response.headers().clone());
        RestReply { status, headers, text: response.text().await.expect("the answer is text") }
    })
    .await
}

impl RestReply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("no JSON ({e}): {} {}", self.status, self.text))
    }

    /// Returns the body after checking the status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Checks that the answer is an error of this status and code. Returns its text.
    #[track_caller]
    pub fn error(&self, status: u16, code: &str) -> String {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{body}");
        body["error"]["message"].as_str().expect("an error has a message").to_owned()
    }
}

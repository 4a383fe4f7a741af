//! Analyzer `http`: asks a service about each call. Without a valid answer, the risk is high.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, future::BoxFuture};
use greenroom_protocol::approval::{RiskAssessment, RiskLevel};
use percent_encoding::percent_decode_str;
use reqwest::{Client, Method, Response, Url, header::CONTENT_TYPE, redirect};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::Semaphore, time::timeout};

use super::analyzer::{Analyzer, AssessedCall, PassError, PassedRequest, PassedResponse, assessment};
use crate::config::{ANALYZER_NAMES, HttpAnalyzerConfig};

/// Size limit of an assessment from the service, in bytes.
const ASSESSMENT_LIMIT: usize = 64 * 1024;

/// Size limit of the answer to a passed request, in bytes.
const PASSED_LIMIT: usize = 1024 * 1024;

/// Time limit for a passed request.
const PASSED_TIMEOUT: Duration = Duration::from_secs(30);

/// Requests to the service at a time. Further ones wait, and their time limit runs.
const CONCURRENCY: usize = 32;

/// Passed requests at a time. Fewer, so that they hold up no assessment.
const PASSED_CONCURRENCY: usize = 8;

/// Methods that are passed.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Analyzer `http`.
#[derive(Debug)]
pub(super) struct HttpAnalyzer {
    service: AnalyzerService,
    timeout: Duration,
}

/// Connection to the service.
#[derive(Debug, Clone)]
struct AnalyzerService {
    client: Client,
    /// `None` if the address is no URL. The configuration allows only addresses that are one.
    url: Option<Url>,
    slots: Arc<Semaphore>,
    passed_slots: Arc<Semaphore>,
}

/// Assessment, as the service sends it.
#[derive(Debug, Deserialize)]
struct ServiceAnswer {
    level: RiskLevel,
    #[serde(default)]
    reasons: Vec<String>,
}

impl HttpAnalyzer {
    /// Prepares the client.
    ///
    /// # Errors
    /// The client's TLS cannot be set up.
    pub fn new(config: &HttpAnalyzerConfig) -> Result<HttpAnalyzer, reqwest::Error> {
        // Fails if a crypto provider is installed already. The installed one serves as well.
        let _is_set = rustls::crypto::ring::default_provider().install_default();
        // A redirect would send the call to an address that nobody configured.
        let client = Client::builder().redirect(redirect::Policy::none()).build()?;
        let url = config.url.parse().ok();
        let service = AnalyzerService {
            client,
            url,
            slots: Arc::new(Semaphore::new(CONCURRENCY)),
            passed_slots: Arc::new(Semaphore::new(PASSED_CONCURRENCY)),
        };
        Ok(HttpAnalyzer { service, timeout: config.timeout.0 })
    }
}

impl Analyzer for HttpAnalyzer {
    fn name(&self) -> &'static str {
        ANALYZER_NAMES[2]
    }

    fn assess(&self, call: AssessedCall<'_>) -> BoxFuture<'static, RiskAssessment> {
        let AssessedCall { call, session, workspace, agent } = call;
        let body = json!({ "session": session, "call": call, "workspace": workspace, "agent": agent });
        let (service, limit, name) = (self.service.clone(), self.timeout, self.name());
        async move {
            let failure = match timeout(limit, service.ask(body)).await {
                Ok(Ok(ServiceAnswer { level, reasons })) => return assessment(level, reasons, name),
                Ok(Err(reason)) => reason,
                Err(_) => format!("no answer within {} s", limit.as_secs_f64()),
            };
            let reason = format!("the analyzer's service gave no assessment: {failure}");
            assessment(RiskLevel::High, vec![reason], name)
        }
        .boxed()
    }

    fn pass(&self, request: PassedRequest) -> BoxFuture<'static, Result<PassedResponse, PassError>> {
        let service = self.service.clone();
        let work = async move {
            match timeout(PASSED_TIMEOUT, service.pass(request)).await {
                Ok(result) => result,
                Err(_) => Err(PassError::Timeout),
            }
        };
        work.boxed()
    }
}

impl AnalyzerService {
    /// Sends a call. The error is a reason in words.
    async fn ask(&self, body: serde_json::Value) -> Result<ServiceAnswer, String> {
        let _slot = self.slots.acquire().await.map_err(|e| e.to_string())?;
        let url = self.url.clone().ok_or("its address is no URL")?;
        let response = self.client.post(url).json(&body).send().await.map_err(root_cause)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("it answered with status {}", status.as_u16()));
        }
        match read(response, ASSESSMENT_LIMIT).await {
            Ok(answer) => serde_json::from_slice(&answer).map_err(|_| "its answer is no assessment".to_owned()),
            Err(ReadError::TooLarge) => Err(format!("its answer is larger than {ASSESSMENT_LIMIT} bytes")),
            Err(ReadError::Broken(cause)) => Err(cause),
        }
    }

    async fn pass(&self, request: PassedRequest) -> Result<PassedResponse, PassError> {
        let PassedRequest { method, path, query, content_type, body } = request;
        let Some(method) = METHODS.into_iter().find(|known| known.as_str() == method) else {
            return Err(PassError::BadMethod(method.chars().take(20).collect()));
        };
        let url = self.below(&path, query.as_deref()).ok_or(PassError::BadPath)?;
        let _slot = self.passed_slots.acquire().await.map_err(|e| PassError::Unreachable(e.to_string()))?;
        let mut sent = self.client.request(method, url).body(body);
        if let Some(content_type) = content_type {
            sent = sent.header(CONTENT_TYPE, content_type);
        }
        let response = sent.send().await.map_err(|e| PassError::Unreachable(root_cause(e)))?;
        let status = response.status().as_u16();
        let content_type =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = read(response, PASSED_LIMIT).await.map_err(|e| match e {
            ReadError::TooLarge => PassError::TooLarge { limit: PASSED_LIMIT },
            ReadError::Broken(cause) => PassError::Unreachable(cause),
        })?;
        Ok(PassedResponse { status, content_type, body })
    }

    /// Returns the address of `path` below that of the service. `None` if the path leads elsewhere.
    fn below(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let base = self.url.as_ref()?;
        let root = format!("{}/", base.path().trim_end_matches('/'));
        let mut url = base.clone();
        url.set_path(&format!("{root}{path}"));
        url.set_query(query.filter(|query| !query.is_empty()));
        // Dots were resolved by now.
        let is_below = url.path().starts_with(&root) && url.path().len() > root.len() && !may_leave(path);
        is_below.then_some(url)
    }
}

/// Returns true if a service that decodes the path, even several times, may leave its directory.
fn may_leave(path: &str) -> bool {
    let mut decoded = path.to_owned();
    while let Ok(next) = percent_decode_str(&decoded).decode_utf8()
        && next != decoded
    {
        decoded = next.into_owned();
    }
    let is_up = |segment: &str| segment.split(';').next().is_some_and(|name| name == "..");
    decoded.contains('\\') || decoded.split('/').any(is_up) || percent_decode_str(&decoded).decode_utf8().is_err()
}

/// Failure while an answer is read.
enum ReadError {
    TooLarge,
    Broken(String),
}

/// Reads a body of at most `limit` bytes.
async fn read(mut response: Response, limit: usize) -> Result<Bytes, ReadError> {
    let mut body = BytesMut::new();
    while let Some(piece) = response.chunk().await.map_err(|e| ReadError::Broken(root_cause(e)))? {
        if body.len() + piece.len() > limit {
            return Err(ReadError::TooLarge);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// Returns the innermost cause. The outer ones repeat the address.
fn root_cause(error: reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match cause.is::<reqwest::Error>() {
        true => "the connection failed".to_owned(),
        false => cause.to_string(),
    }
}

#[cfg(test)]
mod tests;

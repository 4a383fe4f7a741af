//! Client of the model behind the gateway: sends a request, and reads the answer as it comes.

use std::{error::Error as _, path::PathBuf, time::Duration};

use greenroom_protocol::link::{AgentSettings, ProviderApi, ReasoningEffort};
use greenroom_provider::{
    AnswerPiece, AnswerReader, AnswerVerdict, ProviderError, WireFormat,
    request::{AssistantOutput, ModelRequest, RequestCall, RequestMessage, RequestResult, RequestTool, ThinkingEffort},
};

use super::conversation::{AssistantMessage, ConversationEntry, ToolCallRequest, ToolCallResult};
use crate::{clock, tls, tools};

/// Size limit of an error's body, in bytes.
const ERROR_LIMIT: usize = 64 * 1024;
/// Wait for the end of a body after the provider has ended its answer. Only usage may follow, which
/// the gateway reads.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestFailure {
    #[error("the model gateway does not answer: {0}")]
    Unreachable(String),
    /// The gateway or the provider answered with an error status.
    #[error("the model answered {}: {}", .0.status, .0.message)]
    Rejected(ProviderError),
}

/// Client that reaches the model through the gateway's socket. Built at the first call.
pub(super) struct ModelClient {
    socket: PathBuf,
    client: Option<reqwest::Client>,
}

/// Answer that is being received.
#[derive(Debug)]
pub(super) struct ModelAnswer {
    response: reqwest::Response,
    reader: AnswerReader,
    is_over: bool,
    /// Failure of the connection that cut the answer.
    broken: Option<String>,
}

/// End of an answer.
#[derive(Debug)]
pub(super) struct AnswerEnd {
    pub verdict: AnswerVerdict,
    /// Error that the provider reported within the answer.
    pub error: Option<ProviderError>,
    /// Provider's words for a refused or filtered answer, or the failure that cut it.
    pub reason: Option<String>,
}

impl ModelClient {
    pub(super) fn new(socket: PathBuf) -> ModelClient {
        ModelClient { socket, client: None }
    }

    /// Path of the gateway's socket.
    pub(super) fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Sends a request. Returns when the answer begins.
    pub(super) async fn send(
        &mut self,
        api: ProviderApi,
        request: &ModelRequest<'_>,
    ) -> Result<ModelAnswer, RequestFailure> {
        let (format, path, body) = match api {
            ProviderApi::Anthropic => {
                (WireFormat::Messages, "anthropic/v1/messages".to_owned(), request.messages_body())
            }
            ProviderApi::Openai => (WireFormat::Chat, "openai/v1/chat/completions".to_owned(), request.chat_body()),
            ProviderApi::Gemini => {
                let path = format!("gemini/v1beta/models/{}:streamGenerateContent?alt=sse", request.model);
                (WireFormat::Gemini, path, request.gemini_body())
            }
        };
        let mut post = self.client()?.post(format!("http://gateway/{path}"));
        post = match api {
            ProviderApi::Anthropic => post.header("anthropic-version", "2023-06-01"),
            ProviderApi::Openai | ProviderApi::Gemini => post,
        };
        let post = post.header("content-type", "application/json").body(body.to_string());
        let response = post.send().await.map_err(|error| RequestFailure::Unreachable(innermost(&error)))?;
        if !response.status().is_success() {
            return Err(rejection(response).await);
        }
        Ok(ModelAnswer { response, reader: AnswerReader::new(format), is_over: false, broken: None })
    }

    fn client(&mut self) -> Result<reqwest::Client, RequestFailure> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = reqwest::Client::builder()
            .unix_socket(self.socket.clone())
            .tls_backend_preconfigured(tls::no_roots())
            // After a restart of the server, a kept connection would fail the next call.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| RequestFailure::Unreachable(error.to_string()))?;
        Ok(self.client.insert(client).clone())
    }
}

impl ModelAnswer {
    /// Returns the next pieces, or `None` at the end of the answer. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Vec<AnswerPiece>> {
        let mut pieces = Vec::new();
        while pieces.is_empty() {
            if self.is_over {
                return None;
            }
            let chunk = if self.reader.is_complete() {
                tokio::select! {
                    chunk = self.response.chunk() => chunk,
                    () = clock::sleep(END_TIMEOUT) => Ok(None),
                }
            } else {
                self.response.chunk().await
            };
            match chunk {
                Ok(Some(bytes)) => self.reader.read(&bytes, &mut pieces),
                Ok(None) => {
                    self.is_over = true;
                    self.reader.finish(false, &mut pieces);
                }
                Err(error) => {
                    self.is_over = true;
                    self.broken = Some(innermost(&error));
                    self.reader.finish(true, &mut pieces);
                }
            }
        }
        Some(pieces)
    }

    /// Returns how the answer ended. Final after the last piece.
    pub(super) fn end(&self) -> AnswerEnd {
        AnswerEnd {
            verdict: self.reader.verdict(),
            error: self.reader.error().cloned(),
            reason: self.reader.reason().map(str::to_owned).or_else(|| self.broken.clone()),
        }
    }
}

/// Returns the request for the next step of a conversation.
pub(super) fn step_request<'a>(
    settings: &'a AgentSettings,
    system: &'a str,
    entries: Vec<ConversationEntry>,
    max_tokens: u64,
) -> ModelRequest<'a> {
    let messages = entries.into_iter().map(|entry| message(entry, settings.takes_images)).collect();
    let effort = settings.effort.map(|effort| match effort {
        ReasoningEffort::Minimal => ThinkingEffort::Minimal,
        ReasoningEffort::Low => ThinkingEffort::Low,
        ReasoningEffort::Medium => ThinkingEffort::Medium,
        ReasoningEffort::High => ThinkingEffort::High,
    });
    let tool = |tool: &tools::AgentTool| RequestTool {
        name: tool.name,
        description: tool.about,
        parameters: (tool.arguments)(),
    };
    let tools = tools::TOOLS.iter().map(tool).collect();
    ModelRequest { model: &settings.model, system, messages, tools, effort, max_tokens }
}

fn message(entry: ConversationEntry, takes_images: bool) -> RequestMessage {
    match entry {
        ConversationEntry::User(input) => RequestMessage::User(input.into_parts(takes_images)),
        ConversationEntry::Assistant(AssistantMessage { opaque, text, calls }) => {
            let call = |call| {
                let ToolCallRequest { id, name, arguments, unusable: _ } = call;
                RequestCall { id, name, arguments }
            };
            RequestMessage::Assistant(AssistantOutput { text, calls: calls.into_iter().map(call).collect(), opaque })
        }
        ConversationEntry::Results { results, user } => {
            let result = |ToolCallResult { id, text }| RequestResult { call_id: id, text };
            let results = results.into_iter().map(result).collect();
            RequestMessage::Results { results, user: user.into_parts(takes_images) }
        }
    }
}

/// Reads the error of a response. A body that cannot be read is an error without words.
async fn rejection(mut response: reqwest::Response) -> RequestFailure {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes[..bytes.len().min(ERROR_LIMIT - body.len())]);
        if body.len() == ERROR_LIMIT {
            break;
        }
    }
    let status = response.status().as_u16();
    RequestFailure::Rejected(ProviderError::of_response(status, |name| header(&response, name), &body))
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}

fn innermost(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

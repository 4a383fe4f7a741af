//! Client of the model behind the gateway. Only this file uses `genai`, the crate for the
//! providers' formats.

use std::{
    collections::VecDeque,
    error::Error as _,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::{Stream, StreamExt};
use genai::{
    Client, ModelIden, ModelSpec, ServiceTarget,
    adapter::AdapterKind,
    chat::{
        CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStream, ChatStreamEvent, ContentPart, MessageContent,
        StreamEnd, Tool, ToolCall, ToolResponse,
    },
    resolver::{AuthData, Endpoint},
};
use greenroom_protocol::link::{AgentSettings, ProviderApi};
use serde_json::Value;

use super::{
    conversation::{AssistantMessage, ConversationEntry, ToolCallRequest},
    provider_errors,
    tool_call_parser::{ToolCallDelta, ToolCallParser},
};
use crate::{tls, tools};

/// Thought that the model signed or encrypted, and requires back unchanged.
pub(super) type SignedThought = ContentPart;

/// Piece of an answer.
#[derive(Debug)]
pub(super) enum AnswerPiece {
    Text(String),
    Thinking(String),
    /// More of a tool call's arguments.
    ToolInput(ToolCallDelta),
    /// Complete answer, always the last piece.
    End(AssistantMessage),
}

/// Reason why there is no answer, or no complete one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelError {
    /// The session may not call its model any more.
    #[error("{0}")]
    Budget(String),
    #[error("the conversation is too long for the model: {0}")]
    TooLong(String),
    /// The provider or the gateway rejected the request.
    #[error("{0}")]
    Rejected(String),
    /// The gateway cut or rejected the call because the user interrupts the turn. The stop follows
    /// soon.
    #[error("{0}")]
    Interrupted(String),
    /// The provider broke off with an error of its own.
    #[error("the model broke off with an error: {0}")]
    ProviderFailed(String),
    /// The gateway cannot be reached.
    #[error("the model gateway does not answer: {0}")]
    Unreachable(String),
    /// The answer was cut.
    #[error("the model's answer was cut: {0}")]
    Cut(String),
}

/// Client that reaches the model through the gateway's socket. Built at the first call.
pub(super) struct ModelClient {
    socket: PathBuf,
    client: Option<Client>,
}

impl ModelClient {
    pub(super) fn new(socket: PathBuf) -> ModelClient {
        ModelClient { socket, client: None }
    }

    /// Path of the gateway's socket.
    pub(super) fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Requests one answer. The stream ends with [`AnswerPiece::End`] or an error.
    pub(super) async fn ask(
        &mut self,
        settings: &AgentSettings,
        system: String,
        entries: Vec<ConversationEntry>,
    ) -> Result<impl Stream<Item = Result<AnswerPiece, ModelError>> + Send + use<>, ModelError> {
        let client = self.client()?;
        let mut messages: Vec<_> = entries.into_iter().flat_map(|entry| messages(entry, settings.api)).collect();
        if let (ProviderApi::Anthropic, Some(last)) = (settings.api, messages.last_mut()) {
            // The next step sends all of this again and a little more. Other providers cache
            // without a mark.
            last.options = Some(CacheControl::Ephemeral.into());
        }
        let request = ChatRequest::new(messages).with_system(system).with_tools(tools());
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_reasoning_content(true);
        let (options, tool_calls) = match settings.api {
            ProviderApi::Anthropic => (options.with_capture_tool_calls(true), None),
            ProviderApi::Openai => {
                let calls = Arc::new(Mutex::new(ToolCallParser::default()));
                let parser = calls.clone();
                (options.with_raw_frame_fn(move |_, frame| lock(&parser).parse_frame(frame.data)), Some(calls))
            }
        };
        let answer =
            client.exec_chat_stream(target(settings), request, Some(&options)).await.map_err(to_model_error)?;
        let answer = AnswerStream {
            events: answer.stream,
            tool_calls,
            begun_calls: Vec::new(),
            text: String::new(),
            ready: VecDeque::new(),
            is_over: false,
        };
        Ok(futures::stream::unfold(answer, |mut answer| async move { Some((answer.next().await?, answer)) }))
    }

    fn client(&mut self) -> Result<Client, ModelError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let http = reqwest::Client::builder()
            .unix_socket(self.socket.clone())
            .tls_backend_preconfigured(tls::no_roots())
            // After a restart of the server, a kept connection would fail the next call.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| ModelError::Rejected(error.to_string()))?;
        let client = Client::builder().with_reqwest(http).build().map_err(to_model_error)?;
        Ok(self.client.insert(client).clone())
    }
}

fn target(settings: &AgentSettings) -> ModelSpec {
    let (kind, path) = match settings.api {
        ProviderApi::Anthropic => (AdapterKind::Anthropic, "http://gateway/anthropic/v1/"),
        ProviderApi::Openai => (AdapterKind::OpenAI, "http://gateway/openai/v1/"),
    };
    ModelSpec::Target(ServiceTarget {
        endpoint: Endpoint::from_static(path),
        // The gateway sets the real key.
        auth: AuthData::from_single("set-by-the-gateway"),
        model: ModelIden::new(kind, settings.model.as_str()),
    })
}

fn tools() -> Vec<Tool> {
    let tool =
        |tool: &tools::AgentTool| Tool::new(tool.name).with_description(tool.about).with_schema((tool.arguments)());
    tools::TOOLS.iter().map(tool).collect()
}

fn messages(entry: ConversationEntry, api: ProviderApi) -> Vec<ChatMessage> {
    match entry {
        ConversationEntry::User(text) => vec![ChatMessage::user(text)],
        ConversationEntry::Assistant(message) => {
            let mut parts = message.thoughts;
            if !message.text.is_empty() {
                parts.push(ContentPart::Text(message.text));
            }
            parts.extend(message.calls.into_iter().map(|call| {
                let ToolCallRequest { id, name, arguments } = call;
                // A call with invalid JSON was answered with an error. Providers still require an
                // object.
                let arguments = if arguments.is_object() { arguments } else { Value::Object(Default::default()) };
                ContentPart::ToolCall(ToolCall {
                    call_id: id_to_send(id),
                    fn_name: name_to_send(name),
                    fn_arguments: arguments,
                    thought_signatures: None,
                })
            }));
            vec![ChatMessage::assistant(MessageContent::from_parts(parts))]
        }
        ConversationEntry::Results { results, user } => {
            let responses = results.into_iter().map(|result| ToolResponse::new(id_to_send(result.id), result.text));
            let mut parts: Vec<ContentPart> = responses.map(ContentPart::ToolResponse).collect();
            match api {
                // In this format, results are part of the user's message, so the user's text joins
                // them.
                ProviderApi::Anthropic => {
                    parts.extend((!user.is_empty()).then_some(ContentPart::Text(user)));
                    vec![ChatMessage::user(MessageContent::from_parts(parts))]
                }
                ProviderApi::Openai => {
                    let results = ChatMessage::tool(MessageContent::from_parts(parts));
                    let user = (!user.is_empty()).then(|| ChatMessage::user(user));
                    std::iter::once(results).chain(user).collect()
                }
            }
        }
    }
}

/// Returns `true` for an id or a name that every provider accepts.
fn is_plain(text: &str, longest: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= longest && text.bytes().all(is_plain)
}

/// Returns a call id that the provider accepts. Providers reject ids of other providers, and a
/// session may hold both.
fn id_to_send(id: String) -> String {
    if is_plain(&id, 40) {
        return id;
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("call_{:016x}", hasher.finish())
}

/// Returns a tool name that the provider accepts. A misspelt name was answered with an error; sent
/// back unchanged, the provider would reject the whole request.
fn name_to_send(name: String) -> String {
    if is_plain(&name, 64) { name } else { "no_such_tool".to_owned() }
}

/// Answer that is being received.
struct AnswerStream {
    events: ChatStream,
    /// Calls so far, for an answer in OpenAI's format.
    tool_calls: Option<Arc<Mutex<ToolCallParser>>>,
    /// Id and arguments of each call so far, for Anthropic's format. The calls come one after the
    /// other.
    begun_calls: Vec<(String, String)>,
    text: String,
    ready: VecDeque<AnswerPiece>,
    is_over: bool,
}

impl AnswerStream {
    async fn next(&mut self) -> Option<Result<AnswerPiece, ModelError>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(Ok(piece));
            }
            if self.is_over {
                return None;
            }
            let event = self.events.next().await;
            let error = match event.map(|event| event.map_err(to_model_error)) {
                Some(Ok(event)) => {
                    self.take_event(event);
                    continue;
                }
                Some(Err(error)) => error,
                None => ModelError::Cut("the stream ended early".into()),
            };
            match error {
                ModelError::Cut(_) if self.tool_calls().is_some_and(|calls| calls.is_complete()) => {
                    self.end(AssistantMessage::default())
                }
                error => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
    }

    fn take_event(&mut self, event: ChatStreamEvent) {
        match event {
            ChatStreamEvent::Chunk(chunk) => {
                self.text.push_str(&chunk.content);
                self.ready.push_back(AnswerPiece::Text(chunk.content));
            }
            ChatStreamEvent::ReasoningChunk(chunk) => self.ready.push_back(AnswerPiece::Thinking(chunk.content)),
            // In OpenAI's format, the calls come from the raw frames instead.
            ChatStreamEvent::ToolCallChunk(chunk) if self.tool_calls.is_none() => self.tool_call(chunk.tool_call),
            ChatStreamEvent::End(end) => return self.end(captured_message(end)),
            ChatStreamEvent::Start
            | ChatStreamEvent::ToolCallChunk(_)
            | ChatStreamEvent::ThoughtSignatureChunk(_)
            | ChatStreamEvent::Heartbeat => {}
        }
        self.take_deltas();
    }

    fn tool_call(&mut self, call: ToolCall) {
        let Value::String(so_far) = call.fn_arguments else { return };
        if self
            .begun_calls
            .last()
            .is_none_or(|(id, before)| *id != call.call_id || !so_far.starts_with(before.as_str()))
        {
            self.begun_calls.push((call.call_id.clone(), String::new()));
        }
        let at = self.begun_calls.len() - 1;
        let before = &mut self.begun_calls[at].1;
        let arguments = so_far[before.len()..].to_owned();
        *before = so_far;
        self.ready.push_back(AnswerPiece::ToolInput(ToolCallDelta { call: at, id: call.call_id, arguments }));
    }

    fn take_deltas(&mut self) {
        let deltas = self.tool_calls().map(|mut calls| calls.take_deltas()).unwrap_or_default();
        self.ready.extend(deltas.into_iter().map(AnswerPiece::ToolInput));
    }

    fn tool_calls(&self) -> Option<MutexGuard<'_, ToolCallParser>> {
        self.tool_calls.as_deref().map(lock)
    }

    fn end(&mut self, mut message: AssistantMessage) {
        self.take_deltas();
        if message.text.is_empty() {
            message.text = std::mem::take(&mut self.text);
        }
        message.calls.extend(self.tool_calls().map(|mut calls| calls.take()).unwrap_or_default());
        self.ready.push_back(AnswerPiece::End(message));
        self.is_over = true;
    }
}

fn lock(calls: &Mutex<ToolCallParser>) -> MutexGuard<'_, ToolCallParser> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

fn captured_message(end: StreamEnd) -> AssistantMessage {
    let mut message = AssistantMessage::default();
    for part in end.captured_content.into_iter().flat_map(MessageContent::into_parts) {
        match part {
            ContentPart::Text(text) => message.text.push_str(&text),
            ContentPart::ToolCall(call) => {
                message.calls.push(ToolCallRequest {
                    id: call.call_id,
                    name: call.fn_name,
                    arguments: call.fn_arguments,
                });
            }
            thought
            @ (ContentPart::ThoughtSignature(_) | ContentPart::ReasoningContent(_) | ContentPart::Custom(_)) => {
                message.thoughts.push(thought);
            }
            ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    message
}

fn to_model_error(error: genai::Error) -> ModelError {
    match error {
        genai::Error::HttpError { status, body, .. } => provider_errors::from_response(status.as_u16(), &body),
        genai::Error::WebStream { error, cause, .. } => match error.downcast::<genai::Error>() {
            Ok(inner) => to_model_error(*inner),
            Err(error) => match error.downcast::<reqwest::Error>() {
                // Before the first byte the gateway did not answer. After it, the answer was cut.
                Ok(error) if error.is_connect() || error.is_request() => ModelError::Unreachable(innermost(&error)),
                Ok(error) => ModelError::Cut(innermost(&error)),
                Err(_) => ModelError::Cut(cause),
            },
        },
        genai::Error::ChatResponse { body, .. } => provider_errors::from_stream(&body),
        genai::Error::StreamParse { serde_error, .. } => ModelError::Cut(serde_error.to_string()),
        other => ModelError::Rejected(other.to_string()),
    }
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

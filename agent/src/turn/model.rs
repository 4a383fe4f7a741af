//! The model behind the gateway. The only file that knows the crate that speaks the providers' formats.

use std::{error::Error as _, path::PathBuf};

use futures::{Stream, StreamExt};
use genai::{
    Client, ModelIden, ModelSpec, ServiceTarget,
    adapter::AdapterKind,
    chat::{
        CacheControl, ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, MessageContent, StreamEnd,
        Tool, ToolCall, ToolResponse,
    },
    resolver::{AuthData, Endpoint},
};
use greenroom_protocol::link::{Api, Settings};
use serde_json::Value;

use super::conversation::{Call, Entry, Said};
use crate::{tls, tools};

/// A thought that the model has signed, or encrypted, and wants back untouched.
pub(super) type Thought = ContentPart;

/// One piece of an answer.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Thinking(String),
    /// A tool call so far, by the model's own id.
    ToolInput {
        id: String,
        so_far: String,
    },
    /// The whole answer. The last piece.
    End(Said),
}

/// Why there is no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
pub(super) enum ModelError {
    /// The session may not call its model any more.
    #[error("{0}")]
    Budget(String),
    #[error("the conversation is too long for the model: {0}")]
    TooLong(String),
    /// The provider, or the gateway, will not answer this request.
    #[error("{0}")]
    Refused(String),
    /// The provider broke off with an error of its own.
    #[error("the model broke off: {0}")]
    BrokeOff(String),
    /// The gateway cannot be reached.
    #[error("the model gateway does not answer: {0}")]
    Unreachable(String),
    /// The answer was cut.
    #[error("the model's answer was cut: {0}")]
    Cut(String),
}

/// The way to the model. Nothing is built before the first call.
pub(super) struct Model {
    socket: PathBuf,
    client: Option<Client>,
}

impl Model {
    pub(super) fn new(socket: PathBuf) -> Model {
        Model { socket, client: None }
    }

    /// Where the gateway listens.
    pub(super) fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Asks for one answer, as a stream that ends with [`Piece::End`] or an error.
    pub(super) async fn ask(
        &mut self,
        settings: &Settings,
        system: String,
        entries: Vec<Entry>,
    ) -> Result<impl Stream<Item = Result<Piece, ModelError>> + Send + use<>, ModelError> {
        let client = self.client()?;
        let mut messages: Vec<_> = entries.into_iter().flat_map(|entry| messages(entry, settings.api)).collect();
        if let (Api::Anthropic, Some(last)) = (settings.api, messages.last_mut()) {
            // The next step sends all of this again and a little more; other providers notice that by themselves.
            last.options = Some(CacheControl::Ephemeral.into());
        }
        let request = ChatRequest::new(messages).with_system(system).with_tools(tools());
        let options = ChatOptions::default()
            .with_capture_usage(true)
            .with_capture_content(true)
            .with_capture_reasoning_content(true)
            .with_capture_tool_calls(true);
        let answer = client.exec_chat_stream(target(settings), request, Some(&options)).await.map_err(explain)?;
        let pieces = answer.stream.filter_map(|event| async {
            match event {
                Ok(event) => piece(event).map(Ok),
                Err(error) => Some(Err(explain(error))),
            }
        });
        let cut = || Err(ModelError::Cut("it ended in the middle".into()));
        Ok(pieces.chain(futures::stream::once(async move { cut() })))
    }

    fn client(&mut self) -> Result<Client, ModelError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let http = reqwest::Client::builder()
            .unix_socket(self.socket.clone())
            .tls_backend_preconfigured(tls::none())
            // A connection kept from before a restart of the server would be found dead by the next call.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| ModelError::Refused(error.to_string()))?;
        let client = Client::builder().with_reqwest(http).build().map_err(explain)?;
        Ok(self.client.insert(client).clone())
    }
}

fn target(settings: &Settings) -> ModelSpec {
    let (kind, path) = match settings.api {
        Api::Anthropic => (AdapterKind::Anthropic, "http://gateway/anthropic/v1/"),
        Api::Openai => (AdapterKind::OpenAI, "http://gateway/openai/v1/"),
    };
    ModelSpec::Target(ServiceTarget {
        endpoint: Endpoint::from_static(path),
        // The gateway sets the real key.
        auth: AuthData::from_single("set-by-the-gateway"),
        model: ModelIden::new(kind, settings.model.as_str()),
    })
}

fn tools() -> Vec<Tool> {
    let tool = |tool: tools::Schema| Tool::new(tool.name).with_description(tool.about).with_schema(tool.arguments);
    tools::all().into_iter().map(tool).collect()
}

fn messages(entry: Entry, api: Api) -> Vec<ChatMessage> {
    match entry {
        Entry::User(text) => vec![ChatMessage::user(text)],
        Entry::Assistant(said) => {
            let mut parts = said.thoughts;
            if !said.text.is_empty() {
                parts.push(ContentPart::Text(said.text));
            }
            parts.extend(said.calls.into_iter().map(|call| {
                let Call { id, name, arguments } = call;
                // A call that was not valid JSON was answered with an error; providers want an object all the same.
                let arguments = if arguments.is_object() { arguments } else { Value::Object(Default::default()) };
                ContentPart::ToolCall(ToolCall {
                    call_id: id,
                    fn_name: name,
                    fn_arguments: arguments,
                    thought_signatures: None,
                })
            }));
            vec![ChatMessage::assistant(MessageContent::from_parts(parts))]
        }
        Entry::Results { results, user } => {
            let responses = results.into_iter().map(|result| ToolResponse::new(result.id, result.text));
            let mut parts: Vec<ContentPart> = responses.map(ContentPart::ToolResponse).collect();
            match api {
                // Results are the user's side there, so what the user said goes into the same message.
                Api::Anthropic => {
                    parts.extend((!user.is_empty()).then_some(ContentPart::Text(user)));
                    vec![ChatMessage::user(MessageContent::from_parts(parts))]
                }
                Api::Openai => {
                    let results = ChatMessage::tool(MessageContent::from_parts(parts));
                    let user = (!user.is_empty()).then(|| ChatMessage::user(user));
                    std::iter::once(results).chain(user).collect()
                }
            }
        }
    }
}

fn piece(event: ChatStreamEvent) -> Option<Piece> {
    match event {
        ChatStreamEvent::Chunk(chunk) => Some(Piece::Text(chunk.content)),
        ChatStreamEvent::ReasoningChunk(chunk) => Some(Piece::Thinking(chunk.content)),
        ChatStreamEvent::ToolCallChunk(chunk) => {
            let so_far = chunk.tool_call.fn_arguments.as_str().unwrap_or_default().to_owned();
            Some(Piece::ToolInput { id: chunk.tool_call.call_id, so_far })
        }
        ChatStreamEvent::End(end) => Some(Piece::End(said(end))),
        ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => None,
    }
}

fn said(end: StreamEnd) -> Said {
    let mut said = Said::default();
    for part in end.captured_content.into_iter().flat_map(MessageContent::into_parts) {
        match part {
            ContentPart::Text(text) => said.text.push_str(&text),
            ContentPart::ToolCall(call) => {
                said.calls.push(Call { id: call.call_id, name: call.fn_name, arguments: call.fn_arguments });
            }
            thought
            @ (ContentPart::ThoughtSignature(_) | ContentPart::ReasoningContent(_) | ContentPart::Custom(_)) => {
                said.thoughts.push(thought);
            }
            ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    said
}

fn explain(error: genai::Error) -> ModelError {
    match error {
        genai::Error::HttpError { status, body, .. } => answered(status.as_u16(), &body),
        genai::Error::WebStream { error, cause, .. } => match error.downcast::<genai::Error>() {
            Ok(inner) => explain(*inner),
            Err(error) => match error.downcast::<reqwest::Error>() {
                // Before the first byte of an answer there was nobody to answer; after it, the answer was cut.
                Ok(error) if error.is_connect() || error.is_request() => ModelError::Unreachable(innermost(&error)),
                Ok(error) => ModelError::Cut(innermost(&error)),
                Err(_) => ModelError::Cut(cause),
            },
        },
        genai::Error::ChatResponse { body, .. } => ModelError::BrokeOff(in_words(&body)),
        genai::Error::StreamParse { serde_error, .. } => ModelError::Cut(serde_error.to_string()),
        other => ModelError::Refused(other.to_string()),
    }
}

fn answered(status: u16, body: &str) -> ModelError {
    let words = serde_json::from_str(body).map_or_else(|_| body.trim().to_owned(), |body| in_words(&body));
    let told_too_long = ["too long", "context length", "context_length", "context window", "too many tokens"];
    let lower = words.to_lowercase();
    match status {
        402 => ModelError::Budget(words),
        413 => ModelError::TooLong(words),
        400 if told_too_long.iter().any(|sign| lower.contains(sign)) => ModelError::TooLong(words),
        _ => ModelError::Refused(format!("the model answered {status}: {words}")),
    }
}

/// What a provider's error says, without its wrapping.
fn in_words(body: &Value) -> String {
    let message = body.pointer("/error/message").or_else(|| body.get("message"));
    message.and_then(Value::as_str).map_or_else(|| body.to_string(), str::to_owned)
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

//! Model call that the server makes for a user. It takes the way of a sandbox's calls, without a
//! socket.

use std::sync::Arc;

use bytes::Bytes;
use greenroom_protocol::link::ProviderApi;
use greenroom_provider::{
    AnswerPiece, AnswerReader, AnswerVerdict, ProviderError, WireFormat,
    request::{ModelRequest, RequestMessage, UserPart},
};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode, header::CONTENT_TYPE};
use tokio_util::sync::CancellationToken;

use super::{
    Gateway, SessionAccount,
    call::{self, RejectedCall},
    catalog,
    endpoint::EndpointContext,
    error_response::{describe_rejection, scrubbed},
    relay::RelayBody,
};

/// Longest answer that is read, bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// First line of a question for a commit message. The demo model recognizes it.
pub const COMMIT_MESSAGE_REQUEST: &str = "Write the commit message for these changes.";

/// Question to a model, which answers with text.
#[derive(Debug, Clone)]
pub struct ModelQuestion<'a> {
    /// Model name as sessions use it.
    pub model: &'a str,
    pub system: &'a str,
    pub text: String,
    /// Limit of output tokens, thinking included.
    pub max_tokens: u64,
}

/// Reason why a question has no answer. The text is shown to the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// A budget does not allow the call.
    #[error("{0}")]
    Denied(String),
    /// The model failed, or its answer is no text.
    #[error("{0}")]
    Failed(String),
}

impl Gateway {
    /// Asks a model, at the cost of `account`. A dropped future ends the call; its usage is booked
    /// all the same.
    ///
    /// # Errors
    /// [`QuestionError`].
    pub async fn ask(
        &self,
        account: Arc<dyn SessionAccount>,
        question: ModelQuestion<'_>,
    ) -> Result<String, QuestionError> {
        let context = EndpointContext::new(self.clone(), account);
        let left = CancellationToken::new();
        let _leaves = left.clone().drop_guard();
        tokio::spawn(context.clone().attend(left));

        let resolved = catalog::resolve(question.model);
        let (format, path, body) = request_of(resolved.api, &resolved.model, &question);
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .header("anthropic-version", "2023-06-01")
            .body(Full::new(body));
        let request = request.map_err(|e| QuestionError::Failed(format!("`{}` is no model: {e}", question.model)))?;
        let (head, mut body) = request.into_parts();
        let describe = |error: &ProviderError| {
            let message = scrubbed(&error.message, self.options().provider(resolved.api).api_key.expose());
            describe_rejection(resolved.api, &resolved.model, &ProviderError { message, ..error.clone() })
        };
        match call::answer(&context, &head, &mut body).await {
            Ok(response) => read_answer(format, response, describe).await,
            Err(RejectedCall::Gateway(error)) if error.status == StatusCode::PAYMENT_REQUIRED => {
                Err(QuestionError::Denied(error.message))
            }
            Err(RejectedCall::Gateway(error)) => Err(QuestionError::Failed(error.message)),
            Err(RejectedCall::Provider { status, headers, body }) => {
                let header = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
                let error = ProviderError::of_response(status.as_u16(), header, &body);
                Err(QuestionError::Failed(describe(&error)))
            }
        }
    }
}

/// Returns format, path and body of a question.
fn request_of(api: ProviderApi, model: &str, question: &ModelQuestion<'_>) -> (WireFormat, String, Bytes) {
    let request = ModelRequest {
        model,
        system: question.system,
        messages: vec![RequestMessage::User(vec![UserPart::Text(question.text.clone())])],
        tools: Vec::new(),
        effort: None,
        max_tokens: question.max_tokens,
    };
    let (format, path, body) = match api {
        ProviderApi::Anthropic => (WireFormat::Messages, "/anthropic/v1/messages".to_owned(), request.messages_body()),
        ProviderApi::Openai => (WireFormat::Chat, "/openai/v1/chat/completions".to_owned(), request.chat_body()),
        ProviderApi::Gemini => {
            let path = format!("/gemini/v1beta/models/{model}:streamGenerateContent?alt=sse");
            (WireFormat::Gemini, path, request.gemini_body())
        }
    };
    (format, path, body.to_string().into())
}

async fn read_answer(
    format: WireFormat,
    response: Response<RelayBody>,
    describe: impl Fn(&ProviderError) -> String,
) -> Result<String, QuestionError> {
    let (mut reader, mut pieces) = (AnswerReader::new(format), Vec::new());
    let mut body = response.into_body();
    let mut text = String::new();
    let is_broken = loop {
        let Some(frame) = body.frame().await else { break false };
        let Ok(frame) = frame else { break true };
        if let Ok(data) = frame.into_data() {
            reader.read(&data, &mut pieces);
        }
        append_text(&mut text, &mut pieces);
        if text.len() > MAX_ANSWER_BYTES {
            return Err(QuestionError::Failed(format!("the model's answer exceeds {} KiB", MAX_ANSWER_BYTES >> 10)));
        }
    };
    reader.finish(is_broken, &mut pieces);
    append_text(&mut text, &mut pieces);
    if let Some(error) = reader.error() {
        return Err(QuestionError::Failed(describe(error)));
    }
    match reader.verdict() {
        AnswerVerdict::Complete if !text.trim().is_empty() => Ok(text),
        AnswerVerdict::Complete => Err(QuestionError::Failed(AnswerVerdict::Empty.rule().words.to_owned())),
        verdict => {
            let words = verdict.rule().words;
            Err(QuestionError::Failed(reader.reason().map_or(words.to_owned(), |reason| format!("{words}: {reason}"))))
        }
    }
}

/// Moves the text of `pieces` to `text`. Thinking is dropped.
fn append_text(text: &mut String, pieces: &mut Vec<AnswerPiece>) {
    for piece in pieces.drain(..) {
        if let AnswerPiece::Text(more) = piece {
            text.push_str(&more);
        }
    }
}

//! `browse`: fetches a page without a browser and returns it as text.

use std::{error::Error, io, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind, observation::TruncationMark};
use reqwest::{Client, Response, header::CONTENT_TYPE, redirect};
use serde_json::json;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult, for_model, not_a_tool, own_action, schema, shorten_label,
    tool_output::ToolOutput,
};
use crate::{clock, threads::off_thread, tls};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "browse",
    about: "Fetch a web page and get it as text. Most sandboxes have no network; the answer says so then.",
    arguments: || schema::object(&["url"], json!({ "url": schema::text("An http or https address.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Browse { url } => browse(url, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

/// Size limit of a page, in bytes.
const PAGE_LIMIT: usize = 2 * 1024 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Columns of the text that a page is rendered to.
const WIDTH: usize = 100;

async fn browse(url: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    tokio::select! {
        page = fetch(url, context) => page,
        () = clock::sleep(TIMEOUT) => {
            Err(ToolError::Failed(format!("`{url}` did not answer within {} s", TIMEOUT.as_secs())))
        }
    }
}

async fn fetch(url: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(ToolError::Failed(format!("`{url}` is not an http or https address; use `read` for a file")));
    }
    let client = Client::builder()
        .tls_backend_preconfigured(tls::web_roots())
        .user_agent(concat!("greenroom-agent/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::limited(10))
        .build()
        .map_err(ToolError::from_error)?;
    let response = client.get(url).send().await.map_err(|error| unreachable(url, &error))?;
    let status = response.status();
    let url = response.url().to_string();
    let is_html = response.headers().get(CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.as_bytes().to_ascii_lowercase();
        kind.starts_with(b"text/html") || kind.starts_with(b"application/xhtml")
    });
    let (body, cut) = body(response, &url).await?;
    if body.contains(&0) {
        return Err(ToolError::Failed(format!("`{url}` is not text; fetch it with `run` and curl, if there is one")));
    }
    let size = body.len() as u64;
    let (title, content) = if is_html {
        // Rendering a large page takes long, and the agent's only thread must receive interrupts
        // meanwhile.
        off_thread(move || page(&body)).await
    } else {
        (None, String::from_utf8_lossy(&body).into_owned())
    };
    if !status.is_success() {
        return Err(ToolError::Failed(format!("`{url}` answered {status}:\n{}", for_model(&content))));
    }
    let title = title.map(|title| shorten_label(&title));
    let model_text = match &title {
        Some(title) => format!("{title}\n{url}\n\n{}", for_model(&content)),
        None => for_model(&content),
    };
    // The text may be many times longer than its page: `<hr>` has four bytes and becomes a line.
    let mut output = ToolOutput::new();
    output.push(&content);
    let output = output.finish(context).await;
    let truncated = output.truncated().or(cut.then_some(TruncationMark { bytes: size, href: None }));
    let kind = ObservationKind::Browse { url, title, screenshot: None, truncated };
    Ok(ToolResult { observation: Observation { kind, content: output.content() }, model_text })
}

/// Reads the body up to [`PAGE_LIMIT`]. Returns `true` with it if the body is longer.
async fn body(mut response: Response, url: &str) -> Result<(Vec<u8>, bool), ToolError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| unreachable(url, &error))? {
        body.extend_from_slice(&piece);
        if body.len() > PAGE_LIMIT {
            body.truncate(PAGE_LIMIT);
            return Ok((body, true));
        }
    }
    Ok((body, false))
}

fn page(html: &[u8]) -> (Option<String>, String) {
    let source = String::from_utf8_lossy(html);
    let text = html2text::from_read(source.as_bytes(), WIDTH).unwrap_or_else(|_| source.clone().into_owned());
    (title(&source), text)
}

fn title(html: &str) -> Option<String> {
    let lower = html.to_ascii_lowercase();
    let open = lower.find("<title")?;
    let start = open + lower[open..].find('>')? + 1;
    let end = start + lower[start..].find("</title")?;
    // The renderer decodes entities.
    let text = html2text::from_read(&html.as_bytes()[start..end], usize::MAX / 2).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn unreachable(url: &str, error: &reqwest::Error) -> ToolError {
    let mut causes = vec![];
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        if error.downcast_ref::<io::Error>().is_some_and(no_network) {
            return ToolError::Failed(format!("this sandbox has no network, so `{url}` cannot be fetched"));
        }
        cause = error.source();
    }
    let detail = causes.pop().unwrap_or_else(|| error.to_string());
    if error.is_connect() && detail.contains("lookup address") {
        return ToolError::Failed(format!(
            "`{url}` cannot be found ({detail}); most likely this sandbox has no network"
        ));
    }
    ToolError::Failed(format!("`{url}` cannot be fetched: {detail}"))
}

fn no_network(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_yields_title_and_text() {
        let (title, text) =
            page(b"<html><head><TITLE>\n A &amp; B </TITLE></head><body><p>Hello <b>you</b></p></body>");
        assert_eq!(title.as_deref(), Some("A & B"));
        assert!(text.contains("Hello"), "{text}");
        assert!(!text.contains('<'), "{text}");
    }
}

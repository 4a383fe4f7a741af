//! Plain fetch of a page, for sandboxes without a browser.

use std::{error::Error, io};

use reqwest::{Client, Response, header::CONTENT_TYPE, redirect};

use super::{ToolError, for_model};
use crate::{threads::off_thread, tls};

/// Size limit of a page, in bytes.
const PAGE_LIMIT: usize = 2 * 1024 * 1024;
/// Columns of the text that a page is rendered to.
const WIDTH: usize = 100;

/// Page without its scripts.
pub(super) struct FetchedPage {
    /// Address after all redirects.
    pub(super) url: String,
    /// Title of an HTML page.
    pub(super) title: Option<String>,
    pub(super) text: String,
    /// Bytes that were read of a page that is longer.
    pub(super) cut_at: Option<u64>,
}

/// Fetches `url` without a browser.
pub(super) async fn fetch(url: &str) -> Result<FetchedPage, ToolError> {
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
    let (title, text) = if is_html {
        // Rendering a large page takes long, and the agent's only thread must receive interrupts
        // meanwhile.
        off_thread(move || {
            let source = String::from_utf8_lossy(&body);
            (title(&source), page_text(&source))
        })
        .await
    } else {
        (None, String::from_utf8_lossy(&body).into_owned())
    };
    if !status.is_success() {
        return Err(ToolError::Failed(format!("`{url}` answered {status}:\n{}", for_model(&text))));
    }
    Ok(FetchedPage { url, title, text, cut_at: cut.then_some(size) })
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

/// Renders HTML as text. Links have numbers, and their addresses follow the text.
pub(super) fn page_text(html: &str) -> String {
    html2text::from_read(html.as_bytes(), WIDTH).unwrap_or_else(|_| html.to_owned())
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
        let html = "<html><head><TITLE>\n A &amp; B </TITLE></head><body><p>Hello <b>you</b></p></body>";
        let text = page_text(html);
        assert_eq!(title(html).as_deref(), Some("A & B"));
        assert!(text.contains("Hello"), "{text}");
        assert!(!text.contains('<'), "{text}");
    }
}

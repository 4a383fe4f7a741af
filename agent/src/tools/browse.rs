//! `browse`: opens a page in the session's browser and returns it as text. Without a browser,
//! fetches the page.

use std::time::Duration;

use futures::FutureExt;
use greenroom_protocol::{Action, Observation, ObservationKind, observation::TruncationMark};
use serde_json::json;

use super::{
    AgentTool, ToolContext, ToolError, ToolResult,
    fetch::{FetchedPage, fetch, page_text},
    for_model, not_a_tool, own_action, schema, shorten_label,
    tool_output::{ToolOutput, send_html, send_screenshot},
};
use crate::{
    browser::{BrowserError, PageSnapshot},
    clock,
    threads::off_thread,
};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "browse",
    about: "Open a web page in a browser and get it as text, with numbered links and the errors of its console. The \
        user sees a picture of it. A server in this sandbox is at http://127.0.0.1:PORT. Most sandboxes have no \
        other network; the answer says so then.",
    arguments: || schema::object(&["url"], json!({ "url": schema::text("An http or https address.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Browse { url } => browse(url, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: false,
};

/// Time limit of a load, and of a plain fetch.
const LOAD_LIMIT: Duration = Duration::from_secs(30);

async fn browse(url: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    if !scheme.is_some_and(|scheme| scheme == "http" || scheme == "https") {
        return Err(ToolError::Failed(format!("`{url}` is not an http or https address; use `read` for a file")));
    }
    // Half of the time of all tools is left to start the browser and to read the page.
    let load_limit = LOAD_LIMIT.min(context.timeout / 2);
    match context.browser.open(context.owner, url, load_limit).await {
        Ok(page) => shown_page(page, context).await,
        Err(BrowserError::Unavailable(reason)) => tokio::select! {
            page = fetch(url) => fetched_page(page?, &reason, context).await,
            () = clock::sleep(LOAD_LIMIT) => {
                Err(ToolError::Failed(format!("`{url}` did not answer within {} s", LOAD_LIMIT.as_secs())))
            }
        },
        Err(BrowserError::Unreachable(error)) => Err(ToolError::Failed(unreachable(url, &error))),
        Err(error @ BrowserError::NoAnswer(_)) => Err(ToolError::Failed(format!("`{url}` {error}"))),
        Err(
            error @ (BrowserError::Download
            | BrowserError::Unresponsive
            | BrowserError::Crashed
            | BrowserError::Failed(_)),
        ) => Err(ToolError::Failed(format!("`{url}` was not read: {error}"))),
    }
}

/// Returns the result of a page in the browser. Its picture and its HTML go ahead of it.
async fn shown_page(page: PageSnapshot, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let PageSnapshot { url, title, html, text, whole, failed_status, console, screenshot } = page;
    let (html, text) = match text {
        Some(text) => (html, text),
        // Rendering a large page takes long, and the agent's only thread must receive interrupts
        // meanwhile.
        None => {
            off_thread(move || {
                let text = page_text(&html);
                (html, text)
            })
            .await
        }
    };
    if let Some(status) = failed_status {
        return Err(ToolError::Failed(format!("`{url}` answered {status}:\n{}", for_model(&text))));
    }
    send_html(&html, context).await;
    if let Some(picture) = screenshot {
        send_screenshot(&picture, context).await;
    }
    let title = Some(shorten_label(title.trim())).filter(|title| !title.is_empty());
    let mut model_text = headed(title.as_deref(), &url, &for_model(&text));
    if !console.is_empty() {
        model_text.push_str(&format!("\n[Console of the page:]\n{}\n", console.join("\n")));
    }
    let page = PageText { url, title, text, cut_at: whole, console, plain: false };
    Ok(ToolResult { observation: observation(page, context).await, model_text })
}

/// Returns the result of a page that was fetched because of `reason`.
async fn fetched_page(page: FetchedPage, reason: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    let FetchedPage { url, title, text, cut_at } = page;
    let title = title.map(|title| shorten_label(&title));
    let mut model_text = match &title {
        Some(title) => headed(Some(title), &url, &for_model(&text)),
        None => for_model(&text),
    };
    model_text.push_str(&format!("\n[Fetched without a browser, so no script ran: {reason}.]\n"));
    let page = PageText { url, title, text, cut_at, console: Vec::new(), plain: true };
    Ok(ToolResult { observation: observation(page, context).await, model_text })
}

fn headed(title: Option<&str>, url: &str, text: &str) -> String {
    let title = title.map(|title| format!("{title}\n")).unwrap_or_default();
    format!("{title}{url}\n\n{text}")
}

/// Page for the journal.
struct PageText {
    url: String,
    title: Option<String>,
    text: String,
    /// Size of a page of which `text` is a part.
    cut_at: Option<u64>,
    console: Vec<String>,
    plain: bool,
}

async fn observation(page: PageText, context: &ToolContext<'_>) -> Observation {
    let PageText { url, title, text, cut_at, console, plain } = page;
    // The text may be many times longer than its page: `<hr>` has four bytes and becomes a line.
    let mut output = ToolOutput::new();
    output.push(&text);
    let output = output.finish(context).await;
    let truncated = output.truncated().or(cut_at.map(|bytes| TruncationMark { bytes, href: None }));
    let kind = ObservationKind::Browse { url, title, screenshot: None, html: None, console, plain, truncated };
    Observation { kind, content: output.content() }
}

/// Returns the error text for the browser's name of a network error.
fn unreachable(url: &str, error: &str) -> String {
    match error {
        "net::ERR_INTERNET_DISCONNECTED" | "net::ERR_NETWORK_UNREACHABLE" | "net::ERR_ADDRESS_UNREACHABLE" => {
            format!("this sandbox has no network, so `{url}` cannot be fetched")
        }
        "net::ERR_NAME_NOT_RESOLVED" => {
            format!("`{url}` cannot be found ({error}); most likely this sandbox has no network")
        }
        "net::ERR_INVALID_AUTH_CREDENTIALS" => {
            format!("`{url}` asks for a user name and a password; fetch it with `run` and curl, if there is one")
        }
        _ => format!("`{url}` cannot be fetched: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_network_is_named() {
        let check = |error: &str, expected: &str| {
            let text = unreachable("http://a/", error);
            assert!(text.contains(expected) && text.contains("`http://a/`"), "{text}");
        };
        check("net::ERR_INTERNET_DISCONNECTED", "this sandbox has no network");
        check("net::ERR_NAME_NOT_RESOLVED", "most likely this sandbox has no network");
        check("net::ERR_INVALID_AUTH_CREDENTIALS", "asks for a user name");
        check("net::ERR_CONNECTION_REFUSED", "cannot be fetched: net::ERR_CONNECTION_REFUSED");
    }
}

//! Terminals of a session over REST: list, rename, close. Their bytes travel over the terminal
//! socket.

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, dev,
    http::StatusCode,
    web::{Data, Json},
};
use greenroom_protocol::{
    observation::AgentState,
    terminal::{TERMINAL_NAME_LIMIT, TERMINALS_LIMIT, TerminalErrorCode, TerminalRequest, check_terminal_name},
};
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
    },
};

use crate::{
    api_schema::{api_schema, text},
    clock,
    frontend::{TerminalRequestError, request_terminals},
    sandbox::RunDir,
    session::{RequestError, TerminalsListed},
    store::SessionId,
    web::{
        error::{ApiError, ApiResult},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![terminals, rename_terminal, close_terminal];

api_schema! {
    TerminalNameSchema as "TerminalName" = text()
        .description(Some("Letters, digits, `.`, `_` and `-`, and not only dots."))
        .pattern(Some(format!("^[A-Za-z0-9._-]{{1,{TERMINAL_NAME_LIMIT}}}$")));
}

/// Open terminals of a session.
#[derive(Serialize, utoipa::ToSchema)]
struct TerminalList {
    /// At most 8, oldest first.
    #[schema(max_items = 8)]
    items: Vec<TerminalView>,
}

/// Open terminal.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Terminal)]
struct TerminalView {
    #[schema(value_type = TerminalNameSchema)]
    name: String,
    /// Title that a program has set.
    title: Option<String>,
    /// Size in force, which is the smallest of all clients.
    cols: u16,
    rows: u16,
    /// Number of attached clients.
    clients: u32,
    /// Command line in the foreground. `null` if it cannot be read.
    command: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    created_at: String,
}

/// New name of a terminal.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct TerminalRename {
    #[schema(value_type = TerminalNameSchema)]
    name: String,
}

/// Terminal that the path names.
struct TerminalPath(String);

impl FromRequest for TerminalPath {
    type Error = ApiError;
    type Future = Ready<Result<TerminalPath, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let name = req.match_info().query("name");
        ready(match check_terminal_name(name) {
            Ok(()) => Ok(TerminalPath(name.to_owned())),
            Err(_) => Err(ApiError::not_found(format!("`{name}` is not the name of a terminal"))),
        })
    }
}

impl IntoParams for TerminalPath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ParameterBuilder::new()
            .name("name")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Terminal, by its name."))
            .schema(Some(TerminalNameSchema::schema()));
        vec![name.build()]
    }
}

/// Lists the open terminals. A session without a running sandbox has none.
#[utoipa::path(get, path = "/api/sessions/{id}/terminals", tag = "sessions", params(SessionPath),
    responses((status = 200, body = TerminalList, description = "The open terminals.")))]
async fn terminals(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    let items = match services.snapshot(id.0).await?.record.state {
        AgentState::Starting | AgentState::Stopped | AgentState::Failed | AgentState::Ended => Vec::new(),
        AgentState::Paused => {
            return Err(ApiError::unavailable(
                "the session is paused, so its terminals cannot answer; resume it first",
            ));
        }
        AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Interrupting => {
            ask(&services, id.0, &TerminalRequest::List {}).await?
        }
    };
    Ok(HttpResponse::Ok().json(TerminalList { items }))
}

/// Renames a terminal. Its clients stay attached.
#[utoipa::path(patch, path = "/api/sessions/{id}/terminals/{name}", tag = "sessions",
    params(SessionPath, TerminalPath), request_body = TerminalRename,
    responses((status = 200, body = TerminalList, description = "The open terminals, with the new name.")))]
async fn rename_terminal(
    services: Data<WebServices>,
    id: SessionPath,
    name: TerminalPath,
    rename: Json<TerminalRename>,
) -> ApiResult {
    let to = rename.into_inner().name;
    check_terminal_name(&to).map_err(ApiError::invalid)?;
    change(&services, id.0, &TerminalRequest::Rename { name: name.0, to }).await
}

/// Closes a terminal with all of its processes.
#[utoipa::path(delete, path = "/api/sessions/{id}/terminals/{name}", tag = "sessions",
    params(SessionPath, TerminalPath),
    responses((status = 200, body = TerminalList, description = "The terminals that are left.")))]
async fn close_terminal(services: Data<WebServices>, id: SessionPath, name: TerminalPath) -> ApiResult {
    change(&services, id.0, &TerminalRequest::Close { name: name.0 }).await
}

/// Sends a request that changes the terminals, and answers with those that are open then.
async fn change(services: &WebServices, id: SessionId, request: &TerminalRequest) -> ApiResult {
    match services.snapshot(id).await?.record.state {
        AgentState::Ended => return Err(RequestError::Ended.into()),
        AgentState::Starting | AgentState::Stopped | AgentState::Failed => {
            return Err(ApiError::not_found("the session has no open terminal: its sandbox does not run"));
        }
        AgentState::Paused => {
            let (request, way_out) = ("change its terminals", "resume it first");
            return Err(RequestError::WrongState { state: "paused", request, way_out }.into());
        }
        AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Interrupting => {}
    }
    ask(services, id, request).await?;
    let items = ask(services, id, &TerminalRequest::List {}).await?;
    let names = items.iter().map(|terminal| terminal.name.clone()).collect();
    services.send_to_session(id, TerminalsListed { names }).await??;
    Ok(HttpResponse::Ok().json(TerminalList { items }))
}

async fn ask(services: &WebServices, id: SessionId, request: &TerminalRequest) -> Result<Vec<TerminalView>, ApiError> {
    let run = RunDir::of(&services.sockets.runs, id);
    let items = request_terminals(&run, request).await?;
    let now = clock::now_ms();
    let items = items.into_iter().map(|status| TerminalView {
        name: status.name,
        title: status.title,
        cols: status.cols,
        rows: status.rows,
        clients: status.clients,
        command: status.command,
        created_at: clock::rfc3339(now.saturating_sub_unsigned(status.age_s.saturating_mul(1000))),
    });
    Ok(items.take(TERMINALS_LIMIT).collect())
}

impl From<TerminalRequestError> for ApiError {
    fn from(error: TerminalRequestError) -> ApiError {
        let (status, code) = match error {
            TerminalRequestError::Rejected { code, .. } => match code {
                TerminalErrorCode::InvalidArgs => (StatusCode::BAD_REQUEST, "invalid_args"),
                TerminalErrorCode::NoTerminal => (StatusCode::NOT_FOUND, "not_found"),
                TerminalErrorCode::NameTaken => (StatusCode::CONFLICT, "name_taken"),
                TerminalErrorCode::TooManyTerminals => (StatusCode::CONFLICT, "too_many_terminals"),
                TerminalErrorCode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            },
            TerminalRequestError::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        ApiError::new(status, code, error.to_string())
    }
}

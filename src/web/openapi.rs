//! OpenAPI document, generated from the documented routes.

use actix_web::{HttpResponse, Responder, http::StatusCode, web::Data};
use serde_json::Value;
use utoipa::{
    Modify, OpenApi, ToSchema,
    openapi::{
        self, Content, HeaderBuilder, Ref, RefOr, ResponseBuilder,
        path::{Operation, PathItem},
        schema::{ObjectBuilder, Type},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{error::ErrorAnswer, request::IdempotencyKeySchema, routes, state::WebServices};
use crate::{api_schema::wire_schemas, files::WorkspacePathSchema, store::SessionId};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Greenroom",
        description = "Supervises interactive AI-agent sessions. Every error is `{\"error\": {\"code\", \"message\"}}`. \
                       The session socket `GET /ws` is described in the project's documentation."
    ),
    servers((url = "/", description = "This server.")),
    tags(
        (name = "sessions", description = "Sessions, and requests to them."),
        (name = "approvals", description = "Decisions about tool calls: modes, rules, risk, open requests."),
        (name = "journal", description = "Events of a session, and their large contents."),
        (name = "files", description = "Files of a session's workspace."),
        (name = "checkpoints", description = "Captures of a session's workspace, their differences, and restores."),
        (name = "repositories", description = "Repositories that workspaces are clones of, commits and pushes."),
        (name = "admin", description = "Views for operators."),
        (name = "access", description = "Sign-in of browsers, and tickets for links that a browser follows itself."),
        (name = "options", description = "Values that a client can offer its user."),
        (name = "health", description = "Endpoints for monitoring.")
    ),
    // Schemas that parameters name. The others follow from the bodies.
    components(schemas(ErrorAnswer, IdempotencyKeySchema, SessionId, WorkspacePathSchema)),
    security(("token" = [])),
    modifiers(&BearerScheme)
)]
struct ApiDoc;

/// Authentication of clients: a bearer token.
struct BearerScheme;

impl Modify for BearerScheme {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Error answers, which follow from the form of an operation.
struct ErrorAnswers;

impl Modify for ErrorAnswers {
    fn modify(&self, api: &mut openapi::OpenApi) {
        for (path, item) in &mut api.paths.paths {
            for (is_write, operation) in operations(item) {
                let facts = OperationFacts::of(path, is_write, operation);
                for error in ERRORS.iter().filter(|error| (error.applies)(&facts)) {
                    let answer = || Ref::from_response_name(error.name).into();
                    let responses = &mut operation.responses.responses;
                    responses.entry(error.status.as_str().to_owned()).or_insert_with(answer);
                }
            }
        }
        let components = api.components.get_or_insert_default();
        components.responses.extend(ERRORS.iter().map(|error| (error.name.to_owned(), error.response().into())));
    }
}

/// Returns the operations of a path, each with the mark of a write.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (bool, &mut Operation)> {
    let reads = [&mut item.get].into_iter().map(|operation| (false, operation));
    let writes = [&mut item.post, &mut item.put, &mut item.patch, &mut item.delete].into_iter();
    reads.chain(writes.map(|operation| (true, operation))).filter_map(|(is_write, it)| Some((is_write, it.as_mut()?)))
}

/// Form of an operation, as far as its errors follow from it.
struct OperationFacts {
    needs_token: bool,
    has_path_parameter: bool,
    /// Has parameters or a body.
    has_input: bool,
    has_json_body: bool,
    has_body: bool,
    is_write: bool,
    is_about_session: bool,
}

impl OperationFacts {
    fn of(path: &str, is_write: bool, operation: &Operation) -> OperationFacts {
        let body = match &operation.request_body {
            Some(RefOr::T(body)) => Some(body),
            Some(RefOr::Ref(_)) | None => None,
        };
        let has_parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
        OperationFacts {
            // An operation has security requirements of its own only to waive them.
            needs_token: operation.security.is_none(),
            has_path_parameter: path.contains('{'),
            has_input: has_parameters || body.is_some(),
            has_json_body: body.is_some_and(|body| body.content.contains_key("application/json")),
            has_body: body.is_some(),
            is_write,
            is_about_session: path.starts_with("/api/sessions"),
        }
    }
}

/// Error answer of the operations that it applies to.
struct DocumentedError {
    status: StatusCode,
    /// Name in the document.
    name: &'static str,
    description: &'static str,
    applies: fn(&OperationFacts) -> bool,
}

impl DocumentedError {
    fn response(&self) -> ResponseBuilder {
        let answer = Content::new(Some(Ref::from_schema_name(ErrorAnswer::name())));
        let response = ResponseBuilder::new().description(self.description).content("application/json", answer);
        match self.status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
                let retry_after = HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds to wait."));
                response.header("Retry-After", retry_after.build())
            }
            _ => response,
        }
    }
}

/// Errors of the API, by status. The codes are those of docs/reference/rest.md.
const ERRORS: [DocumentedError; 10] = [
    DocumentedError {
        status: StatusCode::BAD_REQUEST,
        name: "BadRequest",
        description: "An argument is wrong (`invalid_args`), or the body is not JSON (`invalid_json`).",
        applies: |facts| facts.has_input,
    },
    DocumentedError {
        status: StatusCode::UNAUTHORIZED,
        name: "Unauthorized",
        description: "The token is missing or wrong (`unauthenticated`).",
        applies: |facts| facts.needs_token,
    },
    DocumentedError {
        status: StatusCode::FORBIDDEN,
        name: "Forbidden",
        description: "The host or the origin is not one of this server (`foreign_host`, `foreign_origin`).",
        applies: |_| true,
    },
    DocumentedError {
        status: StatusCode::NOT_FOUND,
        name: "NotFound",
        description: "The named thing does not exist (`not_found`).",
        applies: |facts| facts.has_path_parameter,
    },
    DocumentedError {
        status: StatusCode::CONFLICT,
        name: "Conflict",
        description: "The state of the session does not allow the request (`busy`, `already`, `wrong_state`, \
                      `nothing_to_interrupt`, `ended`, `conflict`), the name belongs to another terminal \
                      (`name_taken`), or the key names another request (`id_reused`).",
        applies: |facts| facts.is_about_session && facts.is_write,
    },
    DocumentedError {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        name: "TooLarge",
        description: "The body is too large (`too_large`); `GET /api/options` has the limits.",
        applies: |facts| facts.has_body,
    },
    DocumentedError {
        status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
        name: "NotJson",
        description: "The body is not declared as JSON (`not_json`).",
        applies: |facts| facts.is_write && (facts.has_json_body || !facts.has_body),
    },
    DocumentedError {
        status: StatusCode::TOO_MANY_REQUESTS,
        name: "Overloaded",
        description: "Too many sandboxes wait for their start (`overloaded`).",
        applies: |facts| facts.is_about_session && facts.is_write,
    },
    DocumentedError {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        name: "Failed",
        description: "The server failed (`internal`), the journal is damaged (`damaged`), or the request may be done \
                      or not (`unanswered`).",
        applies: |facts| facts.needs_token,
    },
    DocumentedError {
        status: StatusCode::SERVICE_UNAVAILABLE,
        name: "Unavailable",
        description: "A part of the server does not answer now (`unavailable`, `journal_unavailable`, `not_ready`).",
        applies: |facts| facts.needs_token,
    },
];

/// Builds the OpenAPI document.
pub(super) fn build() -> Value {
    let mut api =
        routes::documented().into_iter().fold(ApiDoc::openapi(), |api, routes| api.merge_from(routes.document));
    ErrorAnswers.modify(&mut api);
    let mut document = serde_json::to_value(api).expect("the document is JSON");
    // Types of the wire have their schemas from the crate that defines them.
    let schemas = document["components"]["schemas"].as_object_mut().expect("the document has schemas");
    schemas.extend(wire_schemas().clone());
    document
}

/// Returns the OpenAPI document, `GET /api/openapi.json`. Its server is the origin that the
/// document comes from, with the base path.
pub(super) async fn document(services: Data<WebServices>) -> impl Responder {
    let mut document = build();
    document["servers"][0]["url"] = format!("{}/", services.config.server.base_path.as_str()).into();
    HttpResponse::Ok().json(document)
}

//! OpenAPI document, generated from the handlers.

use actix_web::{HttpResponse, Responder};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{admin, error::ErrorAnswer, files, health, journal, sessions};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Greenroom",
        description = "Supervises interactive AI-agent sessions. Every error is `{\"error\": {\"code\", \"message\"}}`. \
                       The session socket `GET /ws` is described in the project's documentation."
    ),
    paths(
        sessions::create, sessions::list, sessions::look, sessions::change, sessions::end, sessions::message,
        sessions::interrupt, sessions::pause, sessions::resume, sessions::stop,
        journal::events, journal::export, journal::content,
        files::put,
        admin::logs, admin::options, admin::actors, admin::sandboxes, admin::sweep,
        health::alive, health::ready, health::metrics,
    ),
    components(schemas(ErrorAnswer)),
    security(("token" = [])),
    modifiers(&BearerScheme)
)]
pub(super) struct ApiDoc;

/// Authentication of clients: a bearer token.
struct BearerScheme;

impl Modify for BearerScheme {
    fn modify(&self, api: &mut openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Returns the OpenAPI document, `GET /api/openapi.json`.
pub(super) async fn document() -> impl Responder {
    HttpResponse::Ok().json(ApiDoc::openapi())
}

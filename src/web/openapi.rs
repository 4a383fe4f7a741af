//! OpenAPI document, generated from the documented routes.

use actix_web::{HttpResponse, Responder};
use utoipa::{
    Modify, OpenApi,
    openapi::{
        self,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::{error::ErrorAnswer, routes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Greenroom",
        description = "Supervises interactive AI-agent sessions. Every error is `{\"error\": {\"code\", \"message\"}}`. \
                       The session socket `GET /ws` is described in the project's documentation."
    ),
    components(schemas(ErrorAnswer)),
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

/// Builds the OpenAPI document.
pub(super) fn build() -> openapi::OpenApi {
    routes::documented().into_iter().fold(ApiDoc::openapi(), |api, routes| api.merge_from(routes.document))
}

/// Returns the OpenAPI document, `GET /api/openapi.json`.
pub(super) async fn document() -> impl Responder {
    HttpResponse::Ok().json(build())
}

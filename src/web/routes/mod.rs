//! Routes, one module for each kind of thing.
//!
//! [`documented`] lists the modules of the OpenAPI document. [`page`] and [`sockets`] are outside
//! of it; `web::register` marks each of their routes.

use actix_web::HttpRequest;

use super::{
    error::{ApiError, ApiResult},
    route_table::DocumentedRoutes,
};

mod admin;
mod approvals;
mod browsers;
mod checkpoints;
mod contents;
mod events;
mod export;
mod files;
mod fork;
mod health;
mod options;
pub(super) mod page;
mod repository;
mod search;
mod sessions;
pub(super) mod sockets;
mod terminals;

/// Returns all documented routes.
pub(super) fn documented() -> [DocumentedRoutes; 15] {
    [
        sessions::documented(),
        fork::documented(),
        approvals::documented(),
        events::documented(),
        export::documented(),
        search::documented(),
        contents::documented(),
        files::documented(),
        checkpoints::documented(),
        repository::documented(),
        terminals::documented(),
        admin::documented(),
        browsers::documented(),
        options::documented(),
        health::documented(),
    ]
}

/// Rejects addresses below `/api` that have no route.
pub(super) async fn not_found(req: HttpRequest) -> ApiResult {
    Err(ApiError::not_found(format!("there is nothing at `{}`; `/api/openapi.json` lists all addresses", req.path())))
}

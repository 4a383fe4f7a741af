//! Route table: registers all routes.
//!
//! A documented route is one entry of [`documented_routes`] in its module. The router takes path
//! and method from the OpenAPI document of that entry, so the two cannot differ. A route outside
//! the document is marked at its registration, with [`RouteTable::undocumented`].

use std::collections::BTreeSet;

use actix_web::{
    FromRequest, Handler, Resource, Responder, Route,
    dev::HttpServiceFactory,
    http::Method,
    web::{self, JsonConfig, ServiceConfig},
};
use utoipa::openapi::{OpenApi, PathItem, path::Operation};

use super::error::bad_json;

/// Route that anybody may send a body to.
const SIGN_IN_PATH: &str = "/api/sign-in";
/// Size limit of that body, in bytes.
const SIGN_IN_BODY_LIMIT: usize = 4096;

/// Documented routes of one module.
pub(super) struct DocumentedRoutes {
    /// OpenAPI document of these routes alone.
    pub document: OpenApi,
    pub handlers: Vec<DocumentedHandler>,
}

/// Handler of a documented route.
pub(super) struct DocumentedHandler {
    /// Name of the handler, which the document has as operation id.
    pub name: &'static str,
    pub route: Route,
    /// Route for `HEAD`, if the documented method is `GET`.
    pub head: Route,
}

impl DocumentedRoutes {
    /// Returns the routes of two modules as those of one.
    pub(super) fn merge(mut self, other: DocumentedRoutes) -> DocumentedRoutes {
        self.handlers.extend(other.handlers);
        DocumentedRoutes { document: self.document.merge_from(other.document), handlers: self.handlers }
    }
}

/// Declares `documented()`, the documented routes of a module.
///
/// Lists handlers with `#[utoipa::path]`. A handler for `GET` also takes `HEAD`, which the document
/// does not list.
macro_rules! documented_routes {
    ($($handler:ident),+ $(,)?) => {
        /// Returns the documented routes of this module.
        pub(in crate::web) fn documented() -> $crate::web::route_table::DocumentedRoutes {
            use $crate::web::route_table::{DocumentedHandler, DocumentedRoutes};

            #[derive(utoipa::OpenApi)]
            #[openapi(paths($($handler),+))]
            struct ModuleDoc;

            let route = actix_web::web::route;
            DocumentedRoutes {
                document: <ModuleDoc as utoipa::OpenApi>::openapi(),
                handlers: vec![$(DocumentedHandler {
                    name: stringify!($handler),
                    route: route().to($handler),
                    head: route().to($handler),
                }),+],
            }
        }
    };
}

pub(super) use documented_routes;

/// Registers routes with the application.
pub(super) struct RouteTable<'a> {
    app: &'a mut ServiceConfig,
    documented_paths: BTreeSet<String>,
}

impl RouteTable<'_> {
    pub(super) fn new(app: &mut ServiceConfig) -> RouteTable<'_> {
        RouteTable { app, documented_paths: BTreeSet::new() }
    }

    /// Registers the documented routes of a module.
    ///
    /// # Panics
    /// If two modules have routes at the same path: the router would never reach the second.
    pub(super) fn documented(&mut self, routes: DocumentedRoutes) -> &mut Self {
        let DocumentedRoutes { document, mut handlers } = routes;
        for (path, item) in document.paths.paths {
            let mut resource = web::resource(router_path(&path));
            if path == SIGN_IN_PATH {
                let limited = JsonConfig::default().limit(SIGN_IN_BODY_LIMIT).error_handler(bad_json);
                resource = resource.app_data(limited);
            }
            for (method, operation) in operations(item) {
                let is_named = |handler: &DocumentedHandler| operation.operation_id.as_deref() == Some(handler.name);
                let at = handlers.iter().position(is_named).expect("an operation's id is the name of its handler");
                let DocumentedHandler { route, head, .. } = handlers.swap_remove(at);
                if method == Method::GET {
                    resource = resource.route(head.method(Method::HEAD));
                }
                resource = resource.route(route.method(method));
            }
            self.app.service(resource);
            assert!(self.documented_paths.insert(path.clone()), "the routes of `{path}` must be in one module");
        }
        let left: Vec<_> = handlers.iter().map(|handler| handler.name).collect();
        assert!(left.is_empty(), "handlers without a route, for lack of a supported method: {left:?}");
        self
    }

    /// Registers routes that the OpenAPI document does not list.
    pub(super) fn undocumented(&mut self, routes: impl HttpServiceFactory + 'static) -> &mut Self {
        self.app.service(routes);
        self
    }
}

/// Returns a resource whose handler takes `GET` and `HEAD`.
pub(super) fn readable<H, A>(path: &str, handler: H) -> Resource
where
    H: Handler<A>,
    A: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    web::resource(path).route(web::get().to(handler.clone())).route(web::head().to(handler))
}

/// Returns the router's form of a documented path. The parameter `path` takes all further segments.
fn router_path(documented: &str) -> String {
    documented.replace("{path}", "{path:.*}")
}

/// Returns the operations of a path with their methods.
fn operations(item: PathItem) -> impl Iterator<Item = (Method, Operation)> {
    [
        (Method::GET, item.get),
        (Method::POST, item.post),
        (Method::PUT, item.put),
        (Method::PATCH, item.patch),
        (Method::DELETE, item.delete),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation?)))
}

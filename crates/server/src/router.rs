//! The table of routes, and what every request passes on its way to them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::app::App;
use crate::error::ApiError;
use crate::guard::guard;
use crate::{ServeError, ServerOptions, anthropic, health, metrics, openai, openapi, responses};

/// Everything that is served, each route of the API with and without `/v1`.
pub(crate) fn router(app: Arc<App>) -> Result<Router, ServeError> {
    let api = Router::new()
        .route("/chat/completions", post(openai::chat::complete))
        .route("/completions", post(openai::completions::complete))
        .route("/responses", post(responses::routes::create))
        .route("/messages", post(anthropic::routes::create))
        .route("/messages/count_tokens", post(anthropic::routes::count_tokens))
        .route("/models", get(openai::models::list))
        .route("/models/{*id}", get(openai::models::one));
    let root = Router::new()
        .route("/", get(health::root))
        .route("/health", get(health::health))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::json))
        .nest("/v1", api.clone())
        .merge(api);
    let prefix = app.options.path_prefix.as_str();
    let routes = match prefix {
        "" => root,
        prefix => Router::new().route(&format!("{prefix}/"), get(health::root)).nest(prefix, root),
    };
    let routes = routes
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), guard));
    let routes = match cors(&app.options)? {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    let routes = routes.layer(from_fn_with_state(app.clone(), metrics::count));
    Ok(routes.layer(CatchPanicLayer::custom(crashed)).with_state(app))
}

/// Lets pages of some origins use the server, their preflights without a key. `None` if there are none.
fn cors(options: &ServerOptions) -> Result<Option<CorsLayer>, ServeError> {
    let origins = &options.cors_origins;
    let allowed = match origins.iter().any(|origin| origin == "*") {
        _ if origins.is_empty() => return Ok(None),
        true => AllowOrigin::any(),
        false => {
            let parse = |origin: &String| {
                let origin = origin.trim_end_matches('/');
                HeaderValue::from_str(origin).map_err(|_| ServeError::Origin { origin: origin.into() })
            };
            AllowOrigin::list(origins.iter().map(parse).collect::<Result<Vec<_>, _>>()?)
        }
    };
    let layer = CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::HEAD, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([header::RETRY_AFTER])
        .allow_private_network(true)
        .max_age(Duration::from_secs(600));
    Ok(Some(layer))
}

async fn unknown_path(uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::not_found(format!("there is nothing at {path}; /openapi.json lists what there is")).code("unknown_url")
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::status(StatusCode::METHOD_NOT_ALLOWED, format!("{path} does not take {method}"))
}

fn crashed(_panic: Box<dyn Any + Send>) -> Response {
    // What it said is in the log, where the panic was reported.
    ApiError::internal("the request crashed; this is a fault of Kapitsa, please report it").into_response()
}

//! `/openapi.json`: what is served, for programs.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa::OpenApi;

use crate::app::App;
use crate::error::ErrorBody;
use crate::{anthropic, health, metrics, openai, responses};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Kapitsa",
        description = "A model over HTTP, in the forms of the OpenAI and the Anthropic API. Routes under /v1 are also served without it. \
                       Fields that are not listed are ignored."
    ),
    paths(
        health::root,
        health::health,
        metrics::metrics,
        json,
        openai::models::list,
        openai::models::one,
        openai::chat::complete,
        openai::completions::complete,
        responses::routes::create,
        anthropic::routes::create,
        anthropic::routes::count_tokens
    ),
    components(schemas(ErrorBody, openai::ChatChunk))
)]
struct Document;

/// The document, without a path prefix.
///
/// # Errors
/// If it cannot be written as JSON.
pub fn document() -> Result<String, serde_json::Error> {
    Document::openapi().to_pretty_json()
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", operation_id = "openapi", responses((status = 200, body = Object)))]
pub(crate) async fn json(State(app): State<Arc<App>>) -> Json<utoipa::openapi::OpenApi> {
    let mut document = Document::openapi();
    if !app.options.path_prefix.is_empty() {
        document.servers = Some(vec![utoipa::openapi::Server::new(app.options.path_prefix.as_str())]);
    }
    Json(document)
}

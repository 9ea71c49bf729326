//! `/models`: the one model that is loaded.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::anthropic;
use crate::app::App;
use crate::error::{ApiError, ErrorBody};

/// The models of this server.
#[derive(Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// `list`.
    object: &'static str,
    data: Vec<Model>,
}

/// A model.
#[derive(Serialize, ToSchema)]
pub(crate) struct Model {
    id: String,
    /// `model`.
    object: &'static str,
    /// When the server started, in seconds since 1970.
    created: u64,
    owned_by: &'static str,
    /// Tokens that prompt and reply may have together, as enforced.
    context_length: usize,
    /// The same.
    max_model_len: usize,
}

impl Model {
    fn loaded(app: &App) -> Self {
        Model {
            id: app.model.id.clone(),
            object: "model",
            created: app.started,
            owned_by: "kapitsa",
            context_length: app.llm.context(),
            max_model_len: app.llm.context(),
        }
    }
}

/// Lists the models.
#[utoipa::path(get, path = "/v1/models", operation_id = "models", responses((status = 200, body = ModelList)))]
pub(crate) async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if is_for_anthropic(&headers) {
        return Json(anthropic::models::list(&[&app.model.id], app.started)).into_response();
    }
    Json(ModelList { object: "list", data: vec![Model::loaded(&app)] }).into_response()
}

/// Clients of the Messages API say which version of it they speak; its listings have another form.
fn is_for_anthropic(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// Describes a model by one of its names.
#[utoipa::path(get, path = "/v1/models/{id}", operation_id = "model", params(("id" = String, Path,)), responses(
    (status = 200, body = Model),
    (status = 404, description = "the loaded model has another name", body = ErrorBody),
))]
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // What is no text is no name.
    let id = id.map_or_else(|_| String::new(), |Path(id)| id);
    match app.is_named(&id) {
        true if is_for_anthropic(&headers) => {
            Ok(Json(anthropic::models::one(&app.model.id, app.started)).into_response())
        }
        true => Ok(Json(Model::loaded(&app)).into_response()),
        false => Err(app.unknown_model(&id)),
    }
}

//! `/` and `/health`: whether there is a server, and whether its engine works.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, ErrorBody};

/// That there is a server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Greeting {
    /// `kapitsa`.
    name: &'static str,
    version: &'static str,
}

/// The state of the engine.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
    /// The loaded model.
    model: String,
    slots: usize,
    slots_busy: usize,
    queue: usize,
    queue_limit: usize,
}

/// Says that there is a server.
#[utoipa::path(get, path = "/", operation_id = "root", responses((status = 200, body = Greeting)))]
pub(crate) async fn root() -> Json<Greeting> {
    Json(Greeting { name: "kapitsa", version: env!("CARGO_PKG_VERSION") })
}

/// Says whether the engine works: not only that the process runs.
#[utoipa::path(get, path = "/health", operation_id = "health", responses(
    (status = 200, body = Health),
    (status = 503, description = "the engine has stopped", body = ErrorBody),
))]
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    if !app.llm.is_alive() {
        return Err(kapitsa::Error::from(kapitsa::EngineError::Stopped).into());
    }
    let stats = app.llm.stats();
    Ok(Json(Health {
        status: "ok",
        model: app.model.id.clone(),
        slots: stats.slots,
        slots_busy: stats.slots_busy,
        queue: stats.queue,
        queue_limit: stats.queue_limit,
    }))
}

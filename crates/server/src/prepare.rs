//! Turning requests into tokens, away from the threads that serve sockets.

use std::sync::Arc;

use crate::app::App;
use crate::error::ApiError;

/// Runs `work`, which may take seconds for a long prompt, on a thread of its own; few at a time. Refused at once where the
/// request could not be queued anyway.
///
/// # Errors
/// Those of `work`, and what stands in the way of any request.
pub(crate) async fn prepare<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    app.llm.check_room()?;
    // The semaphore is never closed.
    let permit = app.preparing.clone().acquire_owned().await.ok();
    let app = app.clone();
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&app)
    });
    work.await.unwrap_or_else(|_| Err(ApiError::internal("the request could not be read; this is a fault of Kapitsa")))
}

/// Fails if so many bytes of text cannot fit beside the tokens of images, however they become tokens: megabytes are not read
/// for nothing.
pub(crate) fn check_length(app: &App, bytes: usize, image_tokens: usize) -> Result<(), ApiError> {
    let (context, least) = (app.llm.context(), bytes / app.longest_token + image_tokens);
    if least >= context { Err(ApiError::too_long(context, least, " or more")) } else { Ok(()) }
}

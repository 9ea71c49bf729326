//! The turns that a request asks for, on their way to the client: what all APIs share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, select_all, unfold};
use kapitsa::turn::{ImageSource, TurnEvent, TurnRequest, TurnStream};
use kapitsa::{EngineError, Error, ImageFile};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::error::ApiError;
use crate::{prepare, sse};

/// Most images of a request.
const MAX_IMAGES: usize = 32;

/// Turns under way. Dropping them cancels all that have not ended.
pub(crate) struct Turns {
    /// Of each of them.
    pub(crate) prompt_tokens: usize,
    pub(crate) count: usize,
    turns: SelectAll<BoxStream<'static, (usize, Result<TurnEvent, Error>)>>,
    /// What the images take of the memory for all.
    share: OwnedSemaphorePermit,
}

/// How an API writes what happens: each call gives the events to send, as they are sent.
pub(crate) trait TurnWriter: Send + 'static {
    /// What a stream begins with.
    fn opening(&mut self) -> Vec<String>;
    /// What turn `index` did.
    fn event(&mut self, index: usize, event: TurnEvent) -> Vec<String>;
    /// What a stream ends with when all turns are over.
    fn closing(&mut self) -> Vec<String>;
    /// What a stream ends with when something failed.
    fn failure(&mut self, error: ApiError) -> Vec<String>;
    /// What is sent when there was nothing to send for long.
    fn sign_of_life(&mut self) -> String;
}

impl Turns {
    /// Starts `count` turns.
    ///
    /// # Errors
    /// If they cannot be served; then none is.
    pub(crate) fn start(app: &App, request: &mut TurnRequest, count: usize) -> Result<Self, ApiError> {
        let budget = &mut request.thinking.budget;
        *budget = budget.or(app.options.thinking_budget);
        let images = images(app, request)?;
        let share = app.images_share(&images)?;
        let now = app.options.now.map(|now| now());
        let turns = app.llm.start_turns(request, &images, now, count).map_err(|error| placed(request, error))?;
        let prompt_tokens = turns.first().map_or(0, TurnStream::prompt_tokens);
        let turns = turns.into_iter().enumerate().map(|(index, turn)| {
            let next = move |mut turn: TurnStream| async move {
                let event = turn.next().await?;
                Some(((index, event), turn))
            };
            unfold(turn, next).boxed()
        });
        Ok(Turns { prompt_tokens, count, turns: select_all(turns), share })
    }

    /// Tokens of the prompt of a turn.
    ///
    /// # Errors
    /// If it cannot be served.
    pub(crate) fn count(app: &App, request: &mut TurnRequest) -> Result<usize, ApiError> {
        let images = images(app, request)?;
        let now = app.options.now.map(|now| now());
        app.llm.count_turn(request, &images, now).map_err(|error| placed(request, error))
    }

    /// Reads all turns to their ends.
    pub(crate) async fn whole(mut self, mut hear: impl FnMut(usize, TurnEvent)) -> Result<(), ApiError> {
        while let Some((index, event)) = self.turns.next().await {
            hear(index, event?);
        }
        Ok(())
    }

    /// The events of a stream.
    pub(crate) fn events(self, app: &Arc<App>, writer: impl TurnWriter) -> sse::Events {
        let Turns { count, turns, share, .. } = self;
        let silence = app.options.limits.keep_alive;
        let ready = VecDeque::new();
        let mut stream = Stream { writer, turns, open: count, ready, silence, _share: share };
        stream.ready.extend(stream.writer.opening());
        sse::events(unfold(stream, |mut stream| async move { Some((stream.next().await?, stream)) }).boxed())
    }
}

struct Stream<W: TurnWriter> {
    writer: W,
    turns: SelectAll<BoxStream<'static, (usize, Result<TurnEvent, Error>)>>,
    /// Turns that have not ended.
    open: usize,
    ready: VecDeque<String>,
    silence: Duration,
    _share: OwnedSemaphorePermit,
}

impl<W: TurnWriter> Stream<W> {
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        let end = tokio::time::Instant::now() + self.silence;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let Ok(next) = tokio::time::timeout_at(end, self.turns.next()).await else {
                return Some(self.writer.sign_of_life());
            };
            let (index, event) = next?;
            match event {
                Ok(event) => {
                    let is_over = matches!(event, TurnEvent::Finished { .. });
                    self.ready.extend(self.writer.event(index, event));
                    self.open -= usize::from(is_over);
                    if self.open == 0 {
                        self.ready.extend(self.writer.closing());
                    }
                }
                Err(error) => {
                    // All of it ends, without the word that it is complete.
                    self.turns.clear();
                    self.ready.extend(self.writer.failure(error.into()));
                }
            }
        }
    }
}

/// The request's images, of which the headers are read, once it is clear that all can fit.
fn images(app: &App, request: &mut TurnRequest) -> Result<Vec<ImageFile>, ApiError> {
    if !app.llm.sees_images() {
        request.note_tool_images();
        if let Some(ImageSource { place, .. }) = request.images.first() {
            let what = format!("is an image, but the model `{}` sees no images; send text only", app.model.id);
            return Err(ApiError::place(place, what));
        }
    }
    if let Some(ImageSource { place, .. }) = request.images.get(MAX_IMAGES) {
        let what = format!("is one image more than the {MAX_IMAGES} that a request may have");
        return Err(ApiError::place(place, what));
    }
    let images = app.llm.turn_images(request).map_err(|error| placed(request, error))?;
    prepare::check_length(app, text_bytes(request), images.iter().map(ImageFile::tokens).sum())?;
    Ok(images)
}

/// An error with the place of what it is about.
fn placed(request: &TurnRequest, error: Error) -> ApiError {
    match error {
        Error::Image { index, source } => {
            let place = &request.images[index].place;
            ApiError::field(place, format!("{place}: {source}"))
        }
        Error::Engine(EngineError::EmptyPrompt) => {
            ApiError::field("messages", "the messages make an empty prompt; at least one token is needed")
        }
        error => error.into(),
    }
}

/// The bytes of text in a request, without what the assistant said: templates leave out parts of that.
fn text_bytes(request: &TurnRequest) -> usize {
    let said = request.messages.iter().filter(|message| message.role != "assistant");
    let bytes = said.map(|message| match &message.content {
        Value::String(text) => text.len(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).map(str::len).sum(),
        _ => 0,
    });
    bytes.sum()
}

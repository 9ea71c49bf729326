//! What all handlers share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use kapitsa::{ImageFile, Llm};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::metrics::Metrics;
use crate::responses::Store;
use crate::{ServedModel, ServerOptions};

/// Responses that are kept for requests that go on from them, and their bytes.
const KEPT_RESPONSES: usize = 256;
const KEPT_BYTES: usize = 64 << 20;

/// Requests that are turned into tokens at a time. More would only take cores from the engine.
const PREPARING: usize = 2;

pub(crate) struct App {
    pub(crate) llm: Arc<Llm>,
    pub(crate) model: ServedModel,
    pub(crate) options: ServerOptions,
    /// When the server started, in seconds since 1970: the model's `created`.
    pub(crate) started: u64,
    pub(crate) metrics: Metrics,
    /// Bytes of the longest token that text can become, at least 1.
    pub(crate) longest_token: usize,
    pub(crate) preparing: Arc<Semaphore>,
    /// Kilobytes that bodies may still take.
    pub(crate) body_kilobytes: Arc<Semaphore>,
    /// Kilobytes that images of prompts may still take.
    image_kilobytes: Arc<Semaphore>,
    responses: Mutex<Store>,
}

impl App {
    pub(crate) fn new(llm: Arc<Llm>, model: ServedModel, options: ServerOptions) -> Self {
        let kilobytes = |bytes: usize| Arc::new(Semaphore::new((bytes >> 10).min(Semaphore::MAX_PERMITS)));
        let tokenizer = llm.tokenizer();
        let longest = (0..tokenizer.vocab_len() as u32).map(|id| tokenizer.token_bytes(id).len()).max();
        App {
            longest_token: longest.unwrap_or(0).max(1),
            llm,
            model,
            started: now(),
            metrics: Metrics::default(),
            preparing: Arc::new(Semaphore::new(PREPARING)),
            body_kilobytes: kilobytes(options.limits.all_bodies_bytes),
            image_kilobytes: kilobytes(options.limits.all_images_bytes),
            responses: Mutex::new(Store::new(KEPT_RESPONSES, KEPT_BYTES)),
            options,
        }
    }

    /// Responses that requests can go on from.
    pub(crate) fn responses(&self) -> MutexGuard<'_, Store> {
        // What it holds is whole between two calls, whoever panicked.
        self.responses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of images in the memory that all may take, for as long as replies to them are made: a file of a few bytes
    /// can become a hundred megabytes.
    pub(crate) fn images_share(&self, images: &[ImageFile]) -> Result<OwnedSemaphorePermit, ApiError> {
        let bytes: usize = images.iter().map(ImageFile::memory).sum();
        let limit = self.options.limits.all_images_bytes;
        if bytes > limit {
            let what = format!("the images take {bytes} bytes, at most {limit} are there; send fewer or smaller ones");
            return Err(ApiError::field("messages", what));
        }
        let kilobytes = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let share = self.image_kilobytes.clone().try_acquire_many_owned(kilobytes);
        share.map_err(|_| ApiError::busy("too many images at a time; try again later"))
    }

    /// Fails if the name is another model's and names are taken strictly.
    pub(crate) fn check_model(&self, name: Option<&str>) -> Result<(), ApiError> {
        match name {
            Some(name) if self.options.strict_models && !self.is_named(name) => Err(self.unknown_model(name)),
            _ => Ok(()),
        }
    }

    /// Whether the loaded model has this name.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.model.id == name || self.model.aliases.iter().any(|alias| alias == name)
    }

    pub(crate) fn unknown_model(&self, name: &str) -> ApiError {
        let shown: String = name.chars().take(200).collect();
        ApiError::not_found(format!("there is no model `{shown}`; this server has `{}`", self.model.id))
            .code("model_not_found")
            .param("model")
    }
}

/// An id that no other answer has.
pub(crate) fn new_id(prefix: &str) -> String {
    use std::hash::{BuildHasher, RandomState};
    // Hash keys of the standard library are random.
    let half = |salt: u8| RandomState::new().hash_one((salt, now()));
    format!("{prefix}{:016x}{:016x}", half(0), half(1))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

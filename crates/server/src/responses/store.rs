//! Responses that later requests go on from, in memory.

use std::collections::VecDeque;

use kapitsa::Message;
use serde_json::Value;

use super::ResponsesRequest;
use super::input::Conversation;
use super::tools::Offers;
use crate::error::ApiError;

/// Finished responses, bounded by number and bytes: the oldest leave first.
pub(crate) struct Store {
    kept: VecDeque<Kept>,
    bytes: usize,
    max_responses: usize,
    max_bytes: usize,
}

/// What was said up to the end of a response.
struct Kept {
    id: String,
    said: Conversation,
    bytes: usize,
}

/// What was said before a response that is under way, and the tools that it may call.
pub(crate) struct Pending(Conversation, Offers);

impl Pending {
    /// Of a request that `Store::resume` has seen; `None` if its response is not to be kept.
    pub(crate) fn new(request: &ResponsesRequest) -> Option<Self> {
        if !request.store {
            return None;
        }
        let messages = request.turn.messages[usize::from(request.instructed)..].to_vec();
        let mut images = request.turn.images.clone();
        for image in &mut images {
            image.place = "previous_response_id".into();
        }
        Some(Pending(Conversation { messages, images }, request.offers.clone()))
    }
}

impl Store {
    pub(crate) fn new(max_responses: usize, max_bytes: usize) -> Self {
        Store { kept: VecDeque::new(), bytes: 0, max_responses, max_bytes }
    }

    /// Keeps a response that has ended, with what was said before it, unless it alone is too much.
    pub(crate) fn keep(&mut self, pending: Pending, response: &Value) {
        let Pending(mut said, offers) = pending;
        for item in response["output"].as_array().into_iter().flatten() {
            // It is our own, so it can be read.
            if said.add_item("output", item, &offers).is_err() {
                return;
            }
        }
        let id = response["id"].as_str().unwrap_or_default().to_owned();
        let bytes = bytes(&said);
        if bytes > self.max_bytes {
            return;
        }
        self.bytes += bytes;
        self.kept.push_back(Kept { id, said, bytes });
        while self.kept.len() > self.max_responses || self.bytes > self.max_bytes {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    /// Puts what was said up to the response that a request goes on from before its own messages.
    ///
    /// # Errors
    /// If there is no such response (any more).
    pub(crate) fn resume(&self, request: &mut ResponsesRequest) -> Result<(), ApiError> {
        let Some(id) = &request.previous_response_id else { return Ok(()) };
        let Some(Kept { said, .. }) = self.kept.iter().rev().find(|kept| kept.id == *id) else {
            let shown: String = id.chars().take(100).collect();
            let message = format!("previous response with id `{shown}` not found; send what was said as input");
            return Err(ApiError::field("previous_response_id", message).code("previous_response_not_found"));
        };
        let at = usize::from(request.instructed);
        request.turn.messages.splice(at..at, said.messages.iter().cloned());
        request.turn.images.splice(0..0, said.images.iter().cloned());
        Ok(())
    }
}

fn bytes(said: &Conversation) -> usize {
    let text = |message: &Message| serde_json::to_string(message).map_or(0, |json| json.len());
    let images = said.images.iter().map(|image| match &image.data {
        kapitsa::turn::ImageData::Url(data) | kapitsa::turn::ImageData::Base64(data) => data.len(),
    });
    said.messages.iter().map(text).chain(images).sum()
}
